"""Middleware: bodies, addresses, origins, headers, metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tacit.errors import Unavailable
from tacit.service.config import Limits
from tacit.service.errors import Unknown
from tacit.service.http import bodies
from tacit.service.http.bodies import BodyRules, ExpectedBody, Sender
from tacit.service.http.metrics import Metrics
from tacit.service.http.middleware import MOST_ADDRESSES, LimitsMiddleware, Shutdown, TokenBuckets
from tacit.service.http.pages import ExperimentSnapshot, RenderedExperiments, Streams
from tacit.service.http.problems import TYPES

PLACES = f"/experiments/{'a' * 64}/places"
REPORT = f"/rounds/{'b' * 32}/reports/3"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that returns the body's length; some paths fail."""
    message = await receive()
    assert not message["more_body"]
    if scope["path"] == "/fails":
        raise KeyError("a secret")
    body = str(len(message["body"])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def front(limits: Limits | None = None, origins: tuple[str, ...] = ("*",)) -> LimitsMiddleware:
    """A middleware with a stopped clock, so that no rate bucket refills during a slow test."""
    found = limits or Limits()

    async def report_size(scope: Any) -> int | None:
        return 10 if scope["path"] == REPORT else None

    rules = BodyRules(found, report_size, lambda header: header == "Bearer right")
    made = LimitsMiddleware(echo, found, origins, Metrics(dict), rules)
    if made._buckets is not None:
        made._buckets._clock = lambda: 0.0
    return made


def send_request(app: LimitsMiddleware, method: str, path: str, **more: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, path, **more)

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("method", "path", "most"),
    [
        ("PUT", REPORT, 10),
        ("PUT", "/elsewhere", 20),
        ("POST", PLACES, 20),
        ("POST", f"/rounds/{'b' * 32}/keys", 20),
        ("GET", f"/rounds/{'b' * 32}/outcome", 20),
        ("POST", f"/rounds/{'b' * 32}/exchange", 20),
        ("POST", "/experiments", 20),
    ],
)
def test_a_body_is_accepted_up_to_its_limit(method: str, path: str, most: int) -> None:
    app = front(Limits(request_bytes=20, admin_bytes=20, call_bytes=30))

    async def in_parts(size: int) -> AsyncIterator[bytes]:
        for _ in range(size):
            yield b"x"

    assert send_request(app, method, path, content=b"x" * most).text == str(most)
    assert send_request(app, method, path, content=in_parts(most)).text == str(most)
    for content in (b"x" * (most + 1), in_parts(most + 1)):
        rejected = send_request(app, method, path, content=content)
        assert rejected.status_code == 413
        assert rejected.json()["type"] == "/problems/body-too-large"
        rule = "exactly" if path == REPORT else "at most"
        assert rejected.json()["detail"] == f"The body must have {rule} {most} bytes."


def test_a_report_body_has_an_exact_size() -> None:
    async def in_parts() -> AsyncIterator[bytes]:
        yield b"x" * 9

    for content in (b"x" * 9, in_parts(), b""):
        rejected = send_request(front(), "PUT", REPORT, content=content)
        assert (rejected.status_code, "exactly 10 bytes" in rejected.text) == (422, True)


def test_a_larger_body_needs_the_admin_token() -> None:
    app = front(Limits(request_bytes=20, admin_bytes=30))
    for path in ("/experiments", f"/experiments/{'a' * 64}/successor"):
        for header, size, status in (
            ("Bearer right", 30, 200),
            ("Bearer right", 31, 413),
            ("Bearer wrong", 20, 200),
            ("Bearer wrong", 21, 401),
            ("Bearer wrong", 31, 413),
        ):
            said = send_request(
                app, "POST", path, content=b"x" * size, headers={"authorization": header}
            )
            assert said.status_code == status, (header, size)
    assert said.headers["connection"] == "close"
    asked = send_request(
        app, "POST", PLACES, content=b"x" * 21, headers={"authorization": "Bearer right"}
    )
    assert asked.status_code == 413


def test_the_total_size_of_large_bodies_is_bounded() -> None:
    rules = front(Limits(admin_bytes=10, call_bytes=100))._bodies
    with rules.holding(ExpectedBody(60)), rules.holding(ExpectedBody(10)):
        with rules.holding(ExpectedBody(40)):
            pass
        with (
            pytest.raises(Unavailable, match="another large call"),
            rules.holding(ExpectedBody(41)),
        ):
            pass
    with rules.holding(ExpectedBody(100)):
        pass


def test_large_bodies_of_one_experiment_keep_out_no_calls_and_no_other_experiment() -> None:
    """Strangers who take slots where admission is open begin as many reports as they have slots."""
    rules = front(Limits(admin_bytes=10, call_bytes=100))._bodies

    def report(size: int, experiment: bytes, slot: int) -> AbstractContextManager[None]:
        return rules.holding(
            ExpectedBody(size, sender=lambda _: Sender(experiment, bytes(16), slot))
        )

    with ExitStack() as held:
        for slot in range(3):
            held.enter_context(report(25, b"first", slot))
        with pytest.raises(Unavailable, match="another large call"):
            held.enter_context(report(25, b"first", 3))
        held.enter_context(rules.holding(ExpectedBody(100)))
        held.enter_context(report(25, b"second", 0))
        with pytest.raises(Unavailable, match="another large call"):
            held.enter_context(report(11, b"third", 0))
    with report(100, b"first", 0):
        pass
    assert not rules._held


def test_experiments_take_turns_with_large_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator whose calls do not end kept out those of another experiment, one by one."""
    rules = front(Limits(admin_bytes=10, call_bytes=100))._bodies
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def call(experiment: bytes) -> AbstractContextManager[None]:
        return rules.holding(ExpectedBody(90, caller=experiment))

    def rejects(experiment: bytes) -> None:
        with pytest.raises(Unavailable, match="another large call"), call(experiment):
            pass

    for waiting in ((b"second",), (b"second", b"third")):
        with call(b"first"):
            for one in waiting:
                rejects(one)
        for one in waiting:
            rejects(b"first")
            with call(one):
                rejects(b"first")
    with call(b"first"):
        rejects(b"gone")
    rejects(b"first")
    now[0] += bodies.SLOWEST
    with call(b"first"):
        pass
    assert not rules._rejected


def test_a_stalled_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SLOWEST", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 5
        await asyncio.sleep(0.5)
        yield b"x" * 5

    assert send_request(front(), "PUT", REPORT, content=slow()).status_code == 408


def test_an_address_over_its_rate_gets_a_retry_time() -> None:
    app = front(Limits(rate=1, burst=2, behind_proxy=False))
    assert [send_request(app, "GET", "/").status_code for _ in range(3)] == [200, 200, 429]
    assert send_request(app, "GET", "/").headers["retry-after"] == "1"


def test_behind_a_proxy_the_last_entry_of_the_configured_header_counts() -> None:
    app = front(Limits(rate=1, burst=1))
    assert {send_request(app, "GET", "/").status_code for _ in range(5)} == {200}
    app = front(Limits(rate=1, burst=1, address_header="X-Forwarded-For"))
    for lie in ("1.1.1.1", "2.2.2.2"):
        headers = {"X-Forwarded-For": f"{lie}, 192.0.2.9"}
        told = send_request(app, "GET", "/", headers=headers).status_code
        assert told == (200 if lie == "1.1.1.1" else 429)
    assert (
        send_request(app, "GET", "/", headers={"X-Forwarded-For": "192.0.2.8"}).status_code == 200
    )


def test_requests_with_the_admin_token_have_no_limit_per_address() -> None:
    app = front(Limits(rate=1, burst=1, behind_proxy=False))
    headers = [{"Authorization": f"Bearer {token}"} for token in ("right", "right", "wrong")]
    told = [send_request(app, "GET", "/", headers=one).status_code for one in headers]
    assert told == [200, 200, 429]


def test_a_full_rate_bucket_is_forgotten() -> None:
    now = [0.0]
    buckets = TokenBuckets(2, 3, clock=lambda: now[0])
    for _ in range(4):
        buckets.wait("a")
    now[0] = 1.0
    assert not buckets.wait("b")
    assert len(buckets) == 2
    now[0] = 1.4
    buckets.wait("c")
    assert len(buckets) == 3  # a has 2.8 of 3
    now[0] = 1.6
    buckets.wait("c")
    assert len(buckets) == 1
    now[0] = 1.7
    assert [buckets.wait("a") > 0 for _ in range(4)] == [False] * 3 + [True]


def test_a_burst_opens_at_most_the_limit_of_streams() -> None:
    async def burst() -> None:
        started, go = 0, asyncio.Event()

        class Slow(RenderedExperiments):
            async def current(self, digest: bytes) -> ExperimentSnapshot:
                nonlocal started
                started += 1
                await go.wait()
                if not digest:
                    raise Unknown("no such experiment")
                return ExperimentSnapshot({}, {}, "")

        streams = Streams(Slow(lambda _: {}), 3, Shutdown(lambda: True))
        asked = [asyncio.ensure_future(streams.response(bytes(n > 0), "")) for n in range(8)]
        await asyncio.sleep(0)
        assert (started, streams.open) == (3, 3)
        go.set()
        said = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(said[0], Unknown)
        assert streams.open == 2
        assert [one.status_code for one in said[1:] if isinstance(one, Response)] == [200] * 2 + [
            503
        ] * 5

        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(_message: Any) -> None:
            raise OSError

        for one in said[1:3]:
            assert isinstance(one, Response)
            with suppress(OSError, ExceptionGroup, ClientDisconnect):
                await one({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        assert streams.open == 0

    asyncio.run(burst())


def test_the_number_of_remembered_addresses_is_bounded() -> None:
    buckets = TokenBuckets(1, 1, clock=lambda: 0.0)
    for number in range(MOST_ADDRESSES + 10):
        assert not buckets.wait(f"a{number}")
    assert len(buckets) == MOST_ADDRESSES
    assert buckets.wait(f"a{MOST_ADDRESSES + 9}")


def test_clients_of_a_dual_stack_socket_are_limited_separately() -> None:
    """All IPv4 clients shared the limit of one /64 network: one of them kept all others out."""
    buckets = TokenBuckets(1, 2, clock=lambda: 0.0)
    for _ in range(3):
        stranger = buckets.wait("::ffff:192.0.2.1")
    assert stranger
    assert not buckets.wait("::ffff:198.51.100.7")
    assert buckets.wait("192.0.2.1"), "the same client by its other name"
    assert not buckets.wait("::1")


def test_any_origin_may_call_device_endpoints_without_credentials() -> None:
    app, origin = front(), {"Origin": "https://page.example"}
    for method, path in (("GET", "/experiments"), ("POST", PLACES), ("PUT", REPORT)):
        said = send_request(app, method, path, headers=origin).headers
        assert said["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in said
        assert send_request(app, method, path).headers["vary"] == "Origin"
        preflight = send_request(
            app, "OPTIONS", path, headers=origin | {"Access-Control-Request-Method": method}
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-methods"] == method
        assert "tacit-invitation" in preflight.headers["access-control-allow-headers"]


def test_preflights_count_against_the_limit_of_their_address() -> None:
    app = front(Limits(rate=1, burst=2, behind_proxy=False))
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "PUT"}
    told = [send_request(app, "OPTIONS", REPORT, headers=asked) for _ in range(3)]
    assert [one.status_code for one in told] == [200, 200, 429]
    assert told[2].headers["retry-after"] == "1"
    assert send_request(app, "GET", "/").status_code == 429


def test_no_foreign_origin_may_read_admin_endpoints() -> None:
    app, origin = front(), {"Origin": "https://page.example"}
    for what in ("status", "estimates", "export", "stop"):
        path = f"/experiments/{'a' * 64}/{what}"
        assert (
            "access-control-allow-origin"
            not in send_request(app, "GET", path, headers=origin).headers
        )
        asked = origin | {"Access-Control-Request-Method": "POST"}
        assert (
            "access-control-allow-methods"
            not in send_request(app, "OPTIONS", path, headers=asked).headers
        )
    asked = origin | {"Access-Control-Request-Method": "POST"}
    preflight = send_request(app, "OPTIONS", "/experiments", headers=asked)
    assert preflight.headers["access-control-allow-methods"] == "GET"


def test_only_configured_origins_may_call() -> None:
    app = front(origins=("https://app.example",))
    said = send_request(
        app, "GET", "/experiments", headers={"Origin": "https://app.example"}
    ).headers
    assert (said["access-control-allow-origin"], said["vary"]) == ("https://app.example", "Origin")
    said = send_request(
        app, "GET", "/experiments", headers={"Origin": "https://other.example"}
    ).headers
    assert "access-control-allow-origin" not in said


def test_every_response_has_security_headers() -> None:
    for path in ("/", "/fails"):
        said = send_request(front(), "GET", path).headers
        assert said["x-content-type-options"] == "nosniff"
        assert said["cache-control"] == "no-store"
        assert "default-src 'none'" in said["content-security-policy"]


def test_internal_errors_are_logged_without_their_message(caplog: pytest.LogCaptureFixture) -> None:
    failed = send_request(front(), "GET", "/fails")
    assert (failed.status_code, failed.json()["type"]) == (500, "/problems/internal-error")
    assert "secret" not in failed.text + caplog.text
    assert caplog.records[0].message == "request failed"
    assert vars(caplog.records[0])["where"][0] == "KeyError"


def test_paths_are_counted_by_template_and_methods_by_name() -> None:
    app = front()
    send_request(app, "GET", "/rounds/who-was-it/outcome")
    send_request(app, "BREW", "/pot")
    page = app._metrics.page().decode()
    assert 'tacit_requests_total{method="GET",route="(none)",status="200"} 1.0' in page
    assert 'method="other"' in page
    assert "who-was-it" not in page
    assert "BREW" not in page


def test_every_problem_type_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text(encoding="utf-8")
    for status, (name, title) in TYPES.items():
        assert f"| {status} | `/problems/{name}` | {title} |" in page
