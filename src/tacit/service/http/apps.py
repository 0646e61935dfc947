"""FastAPI applications of the coordinator and the helper, with complete OpenAPI documents.

It maps paths, statuses and JSON to methods of `Coordinator` and `Helper`. Requests that
write participants' data wait for the group commit that contains them; other requests run in
threads. Docstrings of routes and models are part of the OpenAPI documents.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Route

from tacit.aggregation.announcements import binding_of
from tacit.errors import Rejected, TacitError, Unavailable
from tacit.service import definition_files, round_scheduler
from tacit.service.config import PartyConfig
from tacit.service.coordinator import Coordinator
from tacit.service.errors import Forbidden
from tacit.service.helper import Helper
from tacit.service.http import models, problems, reports
from tacit.service.http.bodies import CALL_SCOPE, BodyRules
from tacit.service.http.calls import (
    CALL,
    CALL_PATTERN,
    SIGNATURE,
    SIGNATURE_PATTERN,
    CallCheck,
    CallHeader,
)
from tacit.service.http.coalescing_cache import CacheInvalidation, CoalescingCache
from tacit.service.http.driver import Driver
from tacit.service.http.helper_client import HttpHelperClient
from tacit.service.http.metrics import CONTENT_TYPE, Gauges, Metrics
from tacit.service.http.middleware import LIMITS_SCOPE, Frequent, LimitsMiddleware, Shutdown
from tacit.service.http.pages import add_pages
from tacit.service.http.problems import ProblemDocument, responses
from tacit.service.http.stages import StageRoute, add_stages
from tacit.service.http.writer import GroupWriter
from tacit.service.leases import Leads, Leases, holder_of
from tacit.service.party import ServerParty
from tacit.service.time_series import csv_text, time_series
from tacit.terms import Terms, in_words
from tacit.version import __version__

_bearer = HTTPBearer(auto_error=False, description="admin token of this party")
Digest = Annotated[
    str, Path(pattern="^[0-9a-f]{64}$", description="name of an experiment: digest of its terms")
]
Identity = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="name of a round")]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
Called = Annotated[str, Header(alias=CALL, pattern=CALL_PATTERN)]
CallSignature = Annotated[str, Header(alias=SIGNATURE, pattern=SIGNATURE_PATTERN)]
HEALTH: dict[str, Any] = {"tags": ["health"]}
DEVICES: dict[str, Any] = {"tags": ["devices"], "responses": responses(404)}


class CsvResponse(PlainTextResponse):
    """A table as CSV."""

    media_type = "text/csv"


@dataclass(frozen=True)
class Service:
    """The components of a running application."""

    party: ServerParty
    config: PartyConfig
    metrics: Metrics
    writer: GroupWriter
    driver: Driver
    leases: Leases
    link: HttpHelperClient | None
    shutdown: Shutdown = field(default_factory=Shutdown)

    @classmethod
    def of(
        cls,
        party: ServerParty,
        config: PartyConfig,
        step: Callable[[Leads], float],
        link: HttpHelperClient | None = None,
    ) -> Service:
        """Create the components of a party's process without starting them."""
        waiting: list[GroupWriter] = []

        def gauges() -> Gauges:
            return party.gauges() | {"waiting_requests": {"all": float(len(waiting[0]))}}

        metrics = Metrics(gauges)
        writer = GroupWriter(config.limits.waiting, metrics.group)
        waiting.append(writer)
        leases = Leases(party.store, holder_of(config.listen))
        party.steps.count = metrics.failure
        driver = Driver(lambda: step(leases), metrics.failure)
        return cls(party, config, metrics, writer, driver, leases, link)

    def report_kept(self, identity: bytes) -> None:
        """Notify the driver of a round that may be full, if this process advances rounds."""
        if self.leases.leading and self.party.may_be_full(identity):
            self.driver.notify()

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """Lifespan of the application; pending work is committed before it ends."""
        self.writer.start()
        self.leases.start()
        self.driver.start()
        try:
            yield
        finally:
            self.driver.stop()
            self.writer.stop()
            self.leases.stop()
            self.party.store.close()
            if self.link is not None:
                self.link.close()


def coordinator_app(
    coordinator: Coordinator, config: PartyConfig, link: HttpHelperClient
) -> LimitsMiddleware:
    """The coordinator's application; `link` connects it to the helper."""
    coordinator.link = link
    service = Service.of(coordinator, config, partial(round_scheduler.step, coordinator), link)
    app = _application("coordinator", service)
    places = _add_slots(app, service, coordinator)
    _add_experiments(app, service, coordinator)
    stages = StageRoute(coordinator, service.writer, service.driver)
    add_stages(app, stages)
    add_pages(app, coordinator, config, service.shutdown)
    return _with_middleware(app, service, places, stages=stages)


def helper_app(helper: Helper, config: PartyConfig) -> LimitsMiddleware:
    """The helper's application."""
    service = Service.of(helper, config, helper.step)
    app = _application("helper", service)
    _add_admission(app, service, helper)
    calls = _add_calls(app, service, helper)
    return _with_middleware(app, service, calls, CallCheck(helper.coordinator_key))


def _application(role: str, service: Service) -> FastAPI:
    """Create the parts common to both applications."""
    app = FastAPI(
        title=f"tacit {role}",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=service.running,
        separate_input_output_schemas=False,
        responses=responses(),
    )
    app.state.service = service
    for kind in (TacitError, RequestValidationError, StarletteHTTPException, Exception):
        app.add_exception_handler(kind, _error)
    _add_health(app, service)
    _add_reading(app, service.party)
    return app


def _with_middleware(
    app: FastAPI,
    service: Service,
    posts: Frequent,
    check: CallCheck | None = None,
    stages: StageRoute | None = None,
) -> LimitsMiddleware:
    """The application behind its middleware: limits, sizes, headers and frequent requests."""
    put = reports.ReportRoute(service.party, service.writer, service.report_kept)
    app.router.routes.append(Route(reports.PATH, put, methods=["PUT"]))  # the middleware calls it
    app.openapi = cache(partial(_document, app))  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    def described() -> JSONResponse:
        return JSONResponse(app.openapi())

    config = service.config
    answer = None if stages is None else stages.size
    is_admin = _bearer_check(config.admin_token)
    bodies = BodyRules(config.limits, put.size, is_admin, check, answer, put.sender)
    limits = config.limits.of(config.address, config.listen)
    front = LimitsMiddleware(app, limits, config.cors_origins, service.metrics, bodies)
    staged = () if stages is None else (stages,)
    front.frequent = {"PUT": (put, *staged), "POST": (posts,), "GET": staged}
    front.shutdown = service.shutdown
    return front


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, including the report operation, which is not a FastAPI route."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    document["components"]["schemas"]["Problem"] = ProblemDocument.model_json_schema()
    errors = {str(number): said for number, said in responses(403, 404, 409, 410).items()}
    document["paths"][reports.PATH] = {"put": reports.operation(errors)}
    return document


# Errors


def _error(request: Request, error: Exception) -> JSONResponse:
    """The problem document of an exception."""
    match error:
        case TacitError():
            return problems.rejected(error)
        case RequestValidationError():
            return problems.invalid(error.errors())
        case StarletteHTTPException(status_code=400):
            return problems.problem(422, "Request validation failed: the body cannot be parsed.")
        case StarletteHTTPException(status_code=405):
            return problems.problem(405, headers={"allow": ", ".join(sorted(_methods(request)))})
        case StarletteHTTPException():
            return problems.problem(error.status_code, headers=error.headers)
    return problems.problem(500)


def _methods(request: Request) -> set[str]:
    """Methods allowed on the path of a request."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.path_regex.match(request.url.path):
            found |= route.methods
    return found


# Routes of both parties


def _add_health(app: FastAPI, service: Service) -> None:
    """Add the probes and the metrics of a party."""

    @app.get("/healthz", **HEALTH)
    async def alive(request: Request, response: Response) -> models.Health:
        """Liveness check; header `RateLimit` states the remaining requests of this address."""
        response.headers.update(request.scope.get(LIMITS_SCOPE, {}))
        return models.Health()

    @app.get("/readyz", **HEALTH)
    def ready() -> models.Health:
        """Whether database and key files are usable and the background thread runs."""
        if not service.driver.alive:
            raise Unavailable(
                "the background thread does not run: the party is starting or stopping"
            )
        service.party.ready()
        return models.Health()

    @app.get("/metrics", response_class=PlainTextResponse, **HEALTH)
    def metrics() -> Response:
        """Metrics for Prometheus; none per participant."""
        return Response(service.metrics.page(), media_type=CONTENT_TYPE)


def _terms(party: ServerParty, digest: str) -> bytes:
    known, state, successor = party.terms_status(bytes.fromhex(digest))
    signatures = known.signatures or (party.signature(known.terms.digest),)
    said = {
        "terms": known.terms.encode().decode(),
        "signatures": list(map(bytes.hex, signatures)),
        "state": state,
        "successor": successor
        and {
            "terms": successor.terms.encode().decode(),
            "signatures": list(map(bytes.hex, successor.signatures)),
            "approvals": list(map(bytes.hex, successor.approvals)),
        },
    }
    return bytes(JSONResponse(said).body)


def _add_reading(app: FastAPI, party: ServerParty) -> None:
    """Add the read routes of every party: experiments, terms and outcomes."""
    cache = CoalescingCache(partial(_terms, party))
    app.add_middleware(CacheInvalidation, cache=cache)

    @app.get("/experiments", **DEVICES)
    def experiments() -> list[models.ExperimentSummary]:
        """All experiments of this party."""
        return [
            models.ExperimentSummary(
                digest=known.terms.digest.hex(),
                question=known.terms.question,
                state=party.state(known),
            )
            for known in party.experiments()
        ]

    @app.get("/experiments/{digest}/terms", response_model=models.TermsAnswer, **DEVICES)
    async def terms(digest: Digest) -> Response:
        """The terms, their signatures, and their successor if there is one."""
        return Response(await cache(digest), media_type="application/json")

    @app.get("/experiments/{digest}/words", response_class=PlainTextResponse, **DEVICES)
    def words(digest: Digest) -> PlainTextResponse:
        """The terms in plain language."""
        lines = in_words(party.terms(bytes.fromhex(digest)).terms)
        return PlainTextResponse("\n".join(lines) + "\n")

    octets = {"application/octet-stream": {"schema": {"type": "string"}}}
    signed = {"description": "the signed outcome, once the round is over", "content": octets}
    how = DEVICES | {"responses": {**responses(404, 425), 200: signed}}

    @app.get("/rounds/{identity}/outcome", response_class=Response, **how)
    def outcome(identity: Identity) -> Response:
        """The outcome of a round: the same signed bytes for every client."""
        said = party.outcome(bytes.fromhex(identity))
        return Response(said, media_type="application/octet-stream")


def _bearer_check(token: str) -> Callable[[str], bool]:
    """Return a predicate: whether an `Authorization` header has the token, in constant time."""
    expected = hashlib.sha256(token.encode()).digest()

    def is_admin(header: str) -> bool:
        scheme, _, given = header.partition(" ")
        same = hmac.compare_digest(hashlib.sha256(given.encode()).digest(), expected)
        return same and scheme.lower() == "bearer"

    return is_admin


def _admin(service: Service) -> dict[str, Any]:
    """Settings of routes that require the admin token."""
    is_admin = _bearer_check(service.config.admin_token)

    def check(request: Request, _documented: Credentials) -> None:
        if not is_admin(request.headers.get("authorization", "")):
            raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})

    return {
        "tags": ["admin"],
        "dependencies": [Depends(check)],
        "responses": responses(401, 404, 409),
    }


# The coordinator


def _add_slots(app: FastAPI, service: Service, coordinator: Coordinator) -> reports.SlotRoute:
    slot = models.AssignedSlot | models.NotAsked
    how = DEVICES | {"responses": responses(403, 404, 409)}
    put = reports.SlotRoute(coordinator, service.writer)

    @app.post(reports.SlotRoute.path, response_model=slot, **how)
    async def place(digest: Digest, body: models.TicketRequest) -> JSONResponse:
        """A slot in a round, or the best option so far if no slot is free."""
        return await put.join(digest, body)

    return put


def _add_experiments(app: FastAPI, service: Service, coordinator: Coordinator) -> None:
    """Add the administrators' requests of the coordinator."""
    admin = _admin(service)

    @app.post("/experiments", status_code=201, **admin)
    def create(body: models.CreateRequest) -> models.Created:
        """Publish an experiment; it starts when the helper has signed its terms."""
        defined = definition_files.parse(body.definition)
        terms = defined.terms(service.config.address, coordinator.public_key)
        coordinator.create(terms, defined.experiment(), defined.timing, body.definition)
        service.driver.notify()
        return models.Created(digest=terms.digest.hex(), terms=terms.encode().decode())

    helper: dict[str, Any] = {"tags": ["helper"], "responses": responses(404, 409)}

    @app.post("/experiments/{digest}/cosignature", status_code=204, **helper)
    def cosign(digest: Digest, body: models.CosignRequest) -> None:
        """Add the helper's signature to the terms. Anyone may send it; it must be valid."""
        signature, approval = (bytes.fromhex(one) for one in (body.signature, body.approval or ""))
        coordinator.cosign(bytes.fromhex(digest), signature, approval)
        service.driver.notify()

    @app.post("/experiments/{digest}/successor", status_code=201, **admin)
    def succeed(digest: Digest, body: models.SucceedRequest) -> models.Created:
        """Publish successor terms; they take effect with the helper's signature and approval."""
        terms = Terms.decode(body.terms.encode())
        if terms.predecessor.hex() != digest:
            raise Rejected("the predecessor of these terms must be the experiment in the path")
        coordinator.succeed(terms, body.participants)
        return models.Created(digest=terms.digest.hex(), terms=body.terms)

    for change in (coordinator.pause, coordinator.resume, coordinator.stop):
        name, done = change.__name__, _changing(change, service.driver.notify)
        app.post(f"/experiments/{{digest}}/{name}", status_code=204, name=name, **admin)(done)
    for answer in (coordinator.status, coordinator.estimates, coordinator.export):
        name, told = answer.__name__, _answering(answer)
        app.get(f"/experiments/{{digest}}/{name}", name=name, **admin)(told)

    @app.get("/experiments/{digest}/history.csv", response_class=CsvResponse, **admin)
    def history(digest: Digest) -> CsvResponse:
        """The estimates of every option after every round, as CSV."""
        rows = time_series(coordinator.export(bytes.fromhex(digest))["history"])
        return CsvResponse(csv_text(rows))


def _changing(change: Callable[[bytes], None], then: Callable[[], None]) -> Callable[[str], None]:
    """The endpoint that changes an experiment, with the docstring of the change."""

    def changed(digest: Digest) -> None:
        change(bytes.fromhex(digest))
        then()

    changed.__doc__ = change.__doc__
    return changed


def _answering(answer: Callable[[bytes], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    def answered(digest: Digest) -> dict[str, Any]:
        return answer(bytes.fromhex(digest))

    answered.__doc__ = answer.__doc__
    return answered


# The helper


def _add_admission(app: FastAPI, service: Service, helper: Helper) -> None:
    @app.post("/experiments", status_code=201, **_admin(service))
    def admit(body: models.AdmitRequest) -> models.Admitted:
        """Admit terms that this helper's operator has signed."""
        terms = Terms.decode(body.terms.encode())
        signatures, approvals = (
            [bytes.fromhex(one) for one in several] for several in (body.signatures, body.approvals)
        )
        helper.admit(terms, signatures, approvals)
        return models.Admitted(digest=terms.digest.hex())


def _add_calls(app: FastAPI, service: Service, helper: Helper) -> reports.CallRoute:
    """Add the requests that the coordinator sends to the helper."""

    def check(call: CallHeader, digest: bytes) -> None:
        """Reject calls signed for another experiment than that of the round."""
        if call.experiment != digest:
            raise Forbidden("the signed header must name the experiment of the round")

    calls: dict[str, Any] = {"tags": ["coordinator"], "responses": responses(403, 404, 409, 410)}

    @app.post("/rounds/{identity}/keys", **calls)
    def keys(identity: Identity, body: models.KeysRequest, call: Call) -> models.KeysAnswer:
        """The helper's public keys for a new round; repeated calls get the same keys."""
        digest = bytes.fromhex(body.experiment)
        check(call, digest)
        made = helper.keys(digest, bytes.fromhex(identity), body.sealing)
        return models.KeysAnswer(keys=made.hex())

    @app.post("/rounds/{identity}/description", **calls)
    def describe(
        identity: Identity, body: models.DescribeRequest, call: Call
    ) -> models.SignedRound:
        """The helper's signature of a round's description; at most one description per round."""
        digest, description = (bytes.fromhex(said) for said in (body.experiment, body.description))
        check(call, digest)
        named, about = binding_of(description)
        if (named.hex(), about.terms) != (identity, digest):
            raise Rejected(
                "the description must be of the round in the path and of this experiment"
            )
        made = helper.describe(description, bytes.fromhex(body.signature))
        service.driver.notify()
        return models.SignedRound(announcement=made.hex())

    @app.post("/rounds/{identity}/exchange", **calls)
    def exchange(
        identity: Identity, body: models.ExchangeRequest, call: Call
    ) -> models.ExchangeAnswer:
        """Exchange the lists of reports; also returns the helper's answer for the collector."""
        name = bytes.fromhex(identity)
        check(call, helper.round(name).terms)
        listing, answer = helper.exchange(name, bytes.fromhex(body.listing))
        return models.ExchangeAnswer(listing=listing.hex(), answer=answer.hex())

    operations: dict[str, reports.Operation] = {
        "keys": (models.KeysRequest, keys),
        "description": (models.DescribeRequest, describe),
        "exchange": (models.ExchangeRequest, exchange),
    }
    return reports.CallRoute(operations)


def _checked(request: Request, _call: Called, _signature: CallSignature) -> CallHeader:
    """The signed header of a call, which the middleware has checked."""
    found = request.scope[CALL_SCOPE]
    assert isinstance(found, CallHeader)
    return found


Call = Annotated[CallHeader, Depends(_checked)]
