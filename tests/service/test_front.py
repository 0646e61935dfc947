"""What every request passes: bodies, addresses, origins, headers, counting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.service.config import Limits
from tacit.service.http import limits as limits_module
from tacit.service.http.limits import MOST_ADDRESSES, Buckets
from tacit.service.http.metrics import Metrics
from tacit.service.http.middleware import Front
from tacit.service.http.problems import TYPES

PLACES = f"/experiments/{'a' * 64}/places"
REPORT = f"/rounds/{'b' * 32}/reports/3"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that says how long the body was; some paths fail."""
    message = await receive()
    assert not message["more_body"]
    if scope["path"] == "/fails":
        raise KeyError("a secret")
    body = str(len(message["body"])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def front(limits: Limits | None = None, origins: tuple[str, ...] = ("*",)) -> Front:
    """A front in whose world no time passes, so that nobody's bucket fills while a test is held
    up.
    """
    made = Front(echo, limits or Limits(), origins, Metrics(dict))
    if made._buckets is not None:
        made._buckets._clock = lambda: 0.0
    return made


def ask(app: Front, method: str, path: str, **more: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, path, **more)

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("method", "path", "most"),
    [
        ("PUT", REPORT, 10),
        ("POST", PLACES, 20),
        ("POST", f"/rounds/{'b' * 32}/keys", 20),
        ("GET", f"/rounds/{'b' * 32}/outcome", 20),
        ("POST", f"/rounds/{'b' * 32}/exchange", 30),
    ],
)
def test_a_body_is_taken_up_to_its_limit_and_not_beyond(method: str, path: str, most: int) -> None:
    app = front(Limits(report_bytes=10, request_bytes=20, call_bytes=30))

    async def in_parts(size: int) -> AsyncIterator[bytes]:
        for _ in range(size):
            yield b"x"

    assert ask(app, method, path, content=b"x" * most).text == str(most)
    assert ask(app, method, path, content=in_parts(most)).text == str(most)
    for content in (b"x" * (most + 1), in_parts(most + 1)):
        refused = ask(app, method, path, content=content)
        assert refused.status_code == 413
        assert refused.json()["type"] == "/problems/body-too-large"
        assert refused.json()["detail"] == f"The body must have at most {most} bytes."


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "SLOWEST", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(0.5)
        yield b"x"

    assert ask(front(), "PUT", REPORT, content=slow()).status_code == 408


def test_an_address_that_asks_too_often_is_told_when_to_come_back() -> None:
    app = front(Limits(rate=1, burst=2, behind_proxy=False))
    assert [ask(app, "GET", "/").status_code for _ in range(3)] == [200, 200, 429]
    assert ask(app, "GET", "/").headers["retry-after"] == "1"


def test_behind_a_proxy_only_the_named_header_counts_and_its_last_entry() -> None:
    app = front(Limits(rate=1, burst=1))
    assert {ask(app, "GET", "/").status_code for _ in range(5)} == {200}
    app = front(Limits(rate=1, burst=1, address_header="X-Forwarded-For"))
    for lie in ("1.1.1.1", "2.2.2.2"):
        headers = {"X-Forwarded-For": f"{lie}, 192.0.2.9"}
        told = ask(app, "GET", "/", headers=headers).status_code
        assert told == (200 if lie == "1.1.1.1" else 429)
    assert ask(app, "GET", "/", headers={"X-Forwarded-For": "192.0.2.8"}).status_code == 200


def test_addresses_in_memory_are_bounded() -> None:
    buckets = Buckets(1, 1, clock=lambda: 0.0)
    for number in range(MOST_ADDRESSES + 10):
        assert not buckets.wait(f"a{number}")
    assert len(buckets) == MOST_ADDRESSES
    assert buckets.wait(f"a{MOST_ADDRESSES + 9}")


def test_pages_of_any_origin_may_ask_what_devices_ask_without_credentials() -> None:
    app, origin = front(), {"Origin": "https://page.example"}
    for method, path in (("GET", "/experiments"), ("POST", PLACES), ("PUT", REPORT)):
        said = ask(app, method, path, headers=origin).headers
        assert said["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in said
        preflight = ask(
            app, "OPTIONS", path, headers=origin | {"Access-Control-Request-Method": method}
        )
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-methods"] == method
        assert "tacit-invitation" in preflight.headers["access-control-allow-headers"]


def test_no_page_of_another_origin_may_read_what_admins_ask() -> None:
    app, origin = front(), {"Origin": "https://page.example"}
    for what in ("status", "estimates", "export", "stop"):
        path = f"/experiments/{'a' * 64}/{what}"
        assert "access-control-allow-origin" not in ask(app, "GET", path, headers=origin).headers
        asked = origin | {"Access-Control-Request-Method": "POST"}
        assert (
            "access-control-allow-methods" not in ask(app, "OPTIONS", path, headers=asked).headers
        )
    asked = origin | {"Access-Control-Request-Method": "POST"}
    preflight = ask(app, "OPTIONS", "/experiments", headers=asked)
    assert preflight.headers["access-control-allow-methods"] == "GET"


def test_named_origins_alone_may_ask_where_some_are_named() -> None:
    app = front(origins=("https://app.example",))
    said = ask(app, "GET", "/experiments", headers={"Origin": "https://app.example"}).headers
    assert (said["access-control-allow-origin"], said["vary"]) == ("https://app.example", "Origin")
    said = ask(app, "GET", "/experiments", headers={"Origin": "https://other.example"}).headers
    assert "access-control-allow-origin" not in said


def test_every_answer_has_the_headers_that_keep_browsers_careful() -> None:
    for path in ("/", "/fails"):
        said = ask(front(), "GET", path).headers
        assert said["x-content-type-options"] == "nosniff"
        assert said["cache-control"] == "no-store"
        assert "default-src 'none'" in said["content-security-policy"]


def test_what_fails_inside_is_logged_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    failed = ask(front(), "GET", "/fails")
    assert (failed.status_code, failed.json()["type"]) == (500, "/problems/internal-error")
    assert "secret" not in failed.text + caplog.text
    assert caplog.records[0].message == "request failed"
    assert vars(caplog.records[0])["where"][0] == "KeyError"


def test_paths_are_counted_by_template_and_methods_by_name() -> None:
    app = front()
    ask(app, "GET", "/rounds/who-was-it/outcome")
    ask(app, "BREW", "/pot")
    page = app._metrics.page().decode()
    assert 'tacit_requests_total{method="GET",route="(none)",status="200"} 1.0' in page
    assert 'method="other"' in page
    assert "who-was-it" not in page
    assert "BREW" not in page


def test_every_problem_type_is_documented() -> None:
    page = Path(__file__).parents[2].joinpath("docs/operations.md").read_text(encoding="utf-8")
    for status, (name, title) in TYPES.items():
        assert f"| {status} | `/problems/{name}` | {title} |" in page
