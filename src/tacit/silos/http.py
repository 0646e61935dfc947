"""Local HTTP of a silo's agent, for the site's own applications and for the engine's adapter.

The agent listens on the loopback interface only. Two tokens separate two callers: an application
decides and records; the engine relays messages and sees no record.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tacit.errors import Rejected, TacitError, Unavailable
from tacit.silos.agent import SiloAgent
from tacit.silos.messages import LARGEST

LOG = logging.getLogger("tacit.silos")
SMALL = 1 << 20  # bytes of an application's request
TITLES = {
    401: "Token missing or wrong",
    409: "Conflict with the current state",
    413: "Request body too large",
    422: "Request validation failed",
    503: "Temporarily unavailable",
}
Handler = Callable[[Request], Awaitable[Response]]


def _problem(status: int, detail: str = "") -> Response:
    title = TITLES[status]
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail or title}
    return JSONResponse(document, status, media_type="application/problem+json")


def _guarded(token: str, handler: Handler) -> Handler:
    """Require the token, and answer errors as problem documents (RFC 9457)."""
    wanted = f"Bearer {token}".encode()

    async def guarded(request: Request) -> Response:
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, wanted):
            return _problem(401)
        try:
            return await handler(request)
        except Unavailable as problem:
            return _problem(503, str(problem))
        except Rejected as problem:
            LOG.warning("rejected: %s", problem)
            return _problem(409, str(problem))
        except TacitError as problem:
            return _problem(422, str(problem))

    return guarded


async def _body(request: Request, limit: int) -> bytes:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > limit:
            raise TacitError(f"request has over {limit} bytes: must have fewer")
    return bytes(content)


async def _document(request: Request, *, required: set[str], optional: set[str]) -> dict[str, Any]:
    """A JSON object with exactly these members."""
    try:
        document = json.loads(await _body(request, SMALL))
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, TacitError):
            raise
        raise TacitError("request is not a JSON document: send an object") from None
    if not isinstance(document, dict) or not required <= set(document) <= required | optional:
        others = f"optionally {', '.join(sorted(optional))}" if optional else "no other members"
        raise TacitError(
            f"request is invalid: must be an object with {', '.join(sorted(required))} and {others}"
        )
    return document


def agent_app(agent: SiloAgent, application_token: str, engine_token: str) -> Starlette:
    """The agent's HTTP application."""

    async def decide(request: Request) -> Response:
        asked = await _document(request, required={"context"}, optional=set())
        decision = await run_in_threadpool(agent.decide, asked["context"])
        return JSONResponse(asdict(decision))

    async def record(request: Request) -> Response:
        asked = await _document(request, required={"id", "outcome"}, optional={"action"})
        identity, action = asked["id"], asked.get("action")
        if not isinstance(identity, str) or not isinstance(action, (str, type(None))):
            raise TacitError("id and action must be texts, as decide returned them")
        await run_in_threadpool(agent.record, identity, asked["outcome"], action)
        return Response(status_code=204)

    async def status(_request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(agent.status))

    async def policy(_request: Request) -> Response:
        exported = await run_in_threadpool(agent.export)
        return Response(exported.to_json(), media_type="application/json")

    async def respond(request: Request) -> Response:
        message = await _body(request, LARGEST)
        stage = str(request.path_params["stage"])
        answer = await run_in_threadpool(agent.respond, stage, message)
        return Response(answer, media_type="application/octet-stream")

    routes: list[tuple[str, str, str, Handler]] = [
        ("/decide", "POST", application_token, decide),
        ("/record", "POST", application_token, record),
        ("/status", "GET", application_token, status),
        ("/policy", "GET", application_token, policy),
        ("/respond/{stage}", "POST", engine_token, respond),
    ]
    return Starlette(
        routes=[
            Route(path, _guarded(token, handler), methods=[method])
            for path, method, token, handler in routes
        ]
    )


def bind_agent(host: str, port: int) -> socket.socket:
    """The agent's address, reserved; an error if another process has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as problem:
        raise TacitError(
            f"port is {port}: must be free ({problem.strerror}). Stop the other agent, or change "
            "port in silo.toml"
        ) from None


def serve_agent(app: Starlette, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = uvicorn.Config(app, access_log=False, log_level="warning", server_header=False)
    uvicorn.Server(settings).run(sockets=[bound])
