"""HTTP routes of the web pages: access control, content security policy, server-sent events.

A stream of server-sent events carries the changed parts of a page as HTML. Each process queries an
experiment at most every two seconds, once for all viewers, and only while there are any. Processes
need no coordination, because the version of a page is a hash of its content.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tacit.client.deadlines import limit_exchanges
from tacit.client.loopback import NEARBY
from tacit.errors import TacitError
from tacit.service.config import PartyConfig
from tacit.service.coordinator import Coordinator
from tacit.service.errors import Unknown, public_message, status
from tacit.service.http.middleware import Shutdown
from tacit.service.pages import STATIC, experimenter, participant, sentences
from tacit.service.pages.experimenter import Parts
from tacit.terms import Terms
from tacit.terms.models import LEADING

FRESH = 2.0  # seconds that a snapshot is cached
PACE = 1.0  # seconds between polls of a stream
QUIET = 15.0  # seconds after which a stream sends a keep-alive comment
LONGEST = 600.0  # maximum seconds of a stream; then the browser reconnects
AGAIN = 5  # seconds before a browser reconnects
PULSE, PATIENCE = 10.0, 2.0  # seconds between readiness checks of the helper; their timeout
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_DIGEST = re.compile("[0-9a-f]{64}")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-]+(:[0-9]+)?|https?://\[[0-9a-fA-F:]+\](:[0-9]+)?")


@dataclass(frozen=True)
class ExperimentSnapshot:
    """The rendered page of an experiment at one moment."""

    view: dict[str, Any]
    parts: Parts
    told: str

    @property
    def marks(self) -> dict[str, str]:
        """Hash of each part."""
        return {name: _mark(part) for name, part in self.parts.items()}

    @property
    def version(self) -> str:
        """Hash of the whole page, equal in every process."""
        return _mark("".join(self.marks.values()))


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RenderedExperiments:
    """Cache of rendered experiments; one query at a time, at most every `FRESH` seconds."""

    def __init__(self, seen: Callable[[bytes], dict[str, Any]]) -> None:
        self._seen = seen
        self._known: dict[bytes, tuple[float, ExperimentSnapshot]] = {}
        self._up: dict[str, tuple[float, bool]] = {}
        self._lock = asyncio.Lock()

    async def current(self, digest: bytes) -> ExperimentSnapshot:
        """The current snapshot of the experiment with these terms."""
        if (found := self._fresh(digest)) is not None:
            return found
        async with self._lock:
            if (found := self._fresh(digest)) is not None:
                return found
            shown = await run_in_threadpool(self._take_snapshot, digest)
            self._known[digest] = (time.monotonic(), shown)
            return shown

    def _fresh(self, digest: bytes) -> ExperimentSnapshot | None:
        when, shown = self._known.get(digest, (0.0, None))
        return shown if time.monotonic() - when < FRESH else None

    def _take_snapshot(self, digest: bytes) -> ExperimentSnapshot:
        view = self._seen(digest)
        others = [one for one in view["terms"]["parties"] if one["role"] not in LEADING]
        up = all(self._answers(one["address"]) for one in others)
        return ExperimentSnapshot(view, experimenter.parts(view, up), sentences.announced(view, up))

    def _answers(self, address: str) -> bool:
        """Whether the helper's readiness check succeeds; cached for `PULSE` seconds."""
        when, up = self._up.get(address, (-PULSE, False))
        if time.monotonic() - when >= PULSE:
            try:
                with httpx.Client(timeout=PATIENCE, mounts=NEARBY) as client:
                    limit_exchanges(client, PATIENCE)
                    with client.stream("GET", f"{address.rstrip('/')}/readyz") as said:
                        up = said.status_code == httpx.codes.OK  # the body is not read
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError):
                up = False
            self._up[address] = (time.monotonic(), up)
        return up


class Streams:
    """Server-sent event streams of a process, limited in number."""

    def __init__(self, views: RenderedExperiments, limit: int, closing: Shutdown) -> None:
        self._views, self._most, self._closing = views, limit, closing
        self.open = 0

    async def response(self, digest: bytes, seen: str) -> Response:
        """The response of a stream, or 503 beyond the limit; counted before anything is awaited."""
        if self.open >= self._most:
            return Response(status_code=503, headers={"retry-after": "30"})
        self.open += 1
        try:
            await self._views.current(digest)
        except BaseException:
            self.open -= 1
            raise
        return _Stream(self, self.events(digest, seen))

    async def events(self, digest: bytes, seen: str) -> AsyncIterator[bytes]:
        """Events with all changes since the version that the browser has seen."""
        yield f"retry: {1000 * AGAIN}\n\n".encode()
        start = spoken = time.monotonic()
        known: Mapping[str, str] | None = None
        while time.monotonic() - start < LONGEST and not self._closing.is_set():
            shown = await self._views.current(digest)
            marks = shown.marks
            if known is None:
                known = marks if seen == shown.version else {}
            new = {name: shown.parts[name] for name in marks if known.get(name) != marks[name]}
            known = marks
            if new:
                said = json.dumps({"parts": new, "told": shown.told}, ensure_ascii=False)
                yield f"id: {shown.version}\ndata: {said}\n\n".encode()
                spoken = time.monotonic()
            elif time.monotonic() - spoken > QUIET:
                yield b":\n\n"
                spoken = time.monotonic()
            await asyncio.sleep(PACE)


class _Stream(StreamingResponse):
    """The response of a counted stream."""

    def __init__(self, streams: Streams, events: AsyncIterator[bytes]) -> None:
        headers = {"x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the stream or the connection ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


# Access control


def _policy(*connects: str) -> dict[str, str]:
    """Content security policy: own scripts and styles, and connections to the parties."""
    sources = " ".join(("'self'", *connects))
    return {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src {sources}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    }


def _origin(address: str) -> list[str]:
    """The origin of an address, if it is valid in a policy; otherwise nothing."""
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    return [origin] if _ORIGIN.fullmatch(origin) else []


def _access_rule(config: PartyConfig) -> Callable[[Request], bool]:
    """Return a predicate: whether a request may see results.

    Results are public unless the configuration requires the admin token. Browsers send the token as
    the password of basic authentication, which requests that change an experiment do not accept.
    """
    expected = hashlib.sha256(config.admin_token.encode()).digest()

    def may(request: Request) -> bool:
        if config.results == "open":
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except ValueError:
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), expected)

    return may


# Routes


def add_pages(
    app: FastAPI, coordinator: Coordinator, config: PartyConfig, closing: Shutdown
) -> None:
    """Add the routes of a coordinator's pages."""
    views = RenderedExperiments(
        coordinator.public if config.results == "open" else coordinator.view
    )
    streams = Streams(views, config.limits.streams, closing)
    may = _access_rule(config)

    def route(path: str, root: str, *, guarded: bool = True) -> Callable[..., Any]:
        """Register a page, or an error page, at `path`; `root` is the relative URL of the index."""

        def wrap(make: Callable[..., Awaitable[Response]]) -> None:
            async def answer(request: Request) -> Response:
                if guarded and not may(request):
                    return _locked(root)
                try:
                    return await make(request, _experiment_in_path(request))
                except TacitError as reason:
                    return _error_page(reason, root)

            app.add_api_route(path, answer, methods=["GET"], include_in_schema=False)

        return wrap

    @route("/", "")
    async def index(_request: Request, _digest: bytes) -> Response:
        listed = await run_in_threadpool(coordinator.listed)
        return HTMLResponse(experimenter.index(listed, ""), headers=_policy())

    @route("/e/{digest}", "../")
    async def experiment(_request: Request, digest: bytes) -> Response:
        shown = await views.current(digest)
        body = experimenter.page(shown.view, shown.parts, version=shown.version, root="../")
        return HTMLResponse(body, headers=_policy())

    @route("/e/{digest}/live", "../../")
    async def live(request: Request, digest: bytes) -> Response:
        seen = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        return await streams.response(digest, seen)

    @route("/e/{digest}/take-part", "../../", guarded=False)
    async def take_part(_request: Request, digest: bytes) -> Response:
        terms, state = await run_in_threadpool(_terms_and_state, coordinator, digest)
        parties = [origin for party in terms.parties for origin in _origin(party.address)]
        body = participant.page(terms, state, "../../")
        return HTMLResponse(body, headers=_policy(*parties))

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str, request: Request) -> Response:
        return _file(name, request)


def _experiment_in_path(request: Request) -> bytes:
    """The experiment named in the path."""
    digest = request.path_params.get("digest", "0" * 64)
    if not _DIGEST.fullmatch(digest):
        raise Unknown(f"digest is {digest[:64]!r}: must be 64 hexadecimal digits")
    return bytes.fromhex(digest)


def _terms_and_state(coordinator: Coordinator, digest: bytes) -> tuple[Terms, str]:
    known = coordinator.terms(digest)
    return known.terms, coordinator.state(known)


def _locked(root: str) -> Response:
    body = experimenter.problem(
        "Results are not public here",
        "The operator of this coordinator requires the admin token: load this page again, leave "
        "the name empty, and give the token as the password.",
        root,
    )
    asks = {"www-authenticate": 'Basic realm="results", charset="UTF-8"'}
    return HTMLResponse(body, 401, _policy() | asks)


def _error_page(reason: TacitError, root: str) -> Response:
    number = status(reason)
    title = "There is no such experiment" if number == 404 else "This cannot be shown now"
    headers = _policy() | ({"retry-after": "5"} if number == 503 else {})
    return HTMLResponse(
        experimenter.problem(title, _sentence(public_message(reason)), root), number, headers
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


# Static files


@dataclass(frozen=True)
class _File:
    content: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def _files() -> dict[str, _File]:
    """All static files by name."""
    found = {}
    for entry in STATIC.iterdir():
        kind = KINDS.get(entry.name.rpartition(".")[2])
        if kind is not None:
            content = entry.read_bytes()
            mark = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[entry.name] = _File(content, gzip.compress(content, 9, mtime=0), kind, mark)
    return found


def _file(name: str, request: Request) -> Response:
    """Serve a static file with an ETag for revalidation."""
    found = _files().get(name)
    if found is None:
        raise Unknown(f"static file is {name[:64]!r}: there is no such file")
    headers = {"etag": found.tag, "cache-control": "no-cache", "vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["content-encoding"] = "gzip"
    body = found.packed if packed else found.content
    return Response(body, headers=headers, media_type=f"{found.kind}; charset=utf-8")
