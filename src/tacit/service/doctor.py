"""External checks of a deployment: findings (ok, warning or broken), each with a remedy.

The checks change nothing. Requests that could change state are sent without a token or with a wrong
one, and must be rejected. The terms that the first party publishes lead to the second party.
"""

from __future__ import annotations

import base64
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tacit.client.loopback import NEARBY, is_loopback
from tacit.errors import TacitError
from tacit.service.admin import PartyClient, Published
from tacit.service.config import PartyConfig
from tacit.signatures import fingerprint
from tacit.version import __version__

OK, WARNING, BROKEN = "ok", "warning", "broken"
TIMEOUT = httpx.Timeout(15.0, connect=5.0)
SKEW = (2.0, 30.0)  # clock skew in seconds: above the first a warning, above the second broken
ORIGIN = "https://somewhere-else.example"
NOBODY = "0" * 64
CLAIMED = "192.0.2.77"  # of a network for documentation (RFC 5737)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    where: str
    what: str
    state: str
    said: str
    fix: str = ""


@dataclass(frozen=True)
class ExaminedParty:
    """A party under examination: its address, its role and its published terms."""

    url: str
    role: str
    published: Mapping[str, Published]


def examine(
    urls: Iterable[str],
    pins: Iterable[str] = (),
    *,
    metrics_meant: bool = False,
    today: date | None = None,
) -> list[Finding]:
    """Check the parties at these addresses and those that their terms name."""
    wanted = [_pin(one) for one in pins]
    findings: list[Finding] = []
    parties: dict[str, ExaminedParty] = {}
    waiting = [url.rstrip("/") for url in urls]
    with httpx.Client(timeout=TIMEOUT, follow_redirects=False, mounts=NEARBY) as client:
        while waiting:
            url = waiting.pop(0)
            if url in parties:
                continue
            try:
                found, party = _examine_party(client, url, metrics_meant)
            except httpx.HTTPError as problem:
                said = f"it stopped answering ({str(problem) or type(problem).__name__})"
                fix = "run doctor again; check the logs of the party and of its proxy"
                found = [Finding(url, "reachable", BROKEN, said, fix)]
                party = ExaminedParty(url, "", {})
            findings += found
            parties[url] = party
            named = {p.address for one in party.published.values() for p in one.terms.parties}
            waiting += sorted(named - set(parties))
    findings += _examine_terms(parties, wanted, today or datetime.now(UTC).date())
    findings += _examine_separation(parties)
    return findings


def _examine_party(
    client: httpx.Client, url: str, metrics_meant: bool
) -> tuple[list[Finding], ExaminedParty]:
    """Probe one party: reachable, ready, clock, version and headers."""
    try:
        before = time.time()
        alive = client.get(f"{url}/healthz", headers={"Origin": ORIGIN})
        now = (before + time.time()) / 2
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        said = f"no answer ({str(problem) or type(problem).__name__})"
        fix = "start it with tacit serve; check its proxy, host name and certificate"
        return [Finding(url, "reachable", BROKEN, said, fix)], ExaminedParty(url, "", {})
    role, findings = _role(client, url)
    findings = [_reachable(url, alive), *findings]
    if role:
        findings += [
            _ready(client, url),
            _clock(url, alive, now),
            _encrypted(url, alive),
            *_check_admin_routes(client, url, role),
            _headers(url, alive),
            *_cross_origin(client, url),
            _limited(client, url),
            _metrics(client, url, metrics_meant),
        ]
    published, unreadable = _published(url) if role else ({}, [])
    return [*findings, *unreadable], ExaminedParty(url, role, published)


def _reachable(url: str, alive: httpx.Response) -> Finding:
    if alive.status_code == 200:
        return Finding(url, "reachable", OK, "it answers")
    fix = "check the address; the proxy must forward every path"
    return Finding(
        url, "reachable", BROKEN, f"/healthz answers with status {alive.status_code}", fix
    )


def _role(client: httpx.Client, url: str) -> tuple[str, list[Finding]]:
    """The party's role and version, from its OpenAPI document."""
    try:
        about = client.get(f"{url}/openapi.json").json()["info"]
        found = re.fullmatch(r"tacit (coordinator|helper)", about["title"])
        version = str(about["version"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        found, version = None, ""
    if found is None:
        fix = "give the address of a coordinator or a helper; the proxy must forward /openapi.json"
        return "", [Finding(url, "version", BROKEN, "not a tacit server", fix)]
    said = f"{found[1]}, tacit {version}"
    if version.split(".")[:2] != __version__.split(".")[:2]:
        fix = f"this command is tacit {__version__}: use the same version everywhere"
        return found[1], [Finding(url, "version", WARNING, said, fix)]
    return found[1], [Finding(url, "version", OK, said)]


def _ready(client: httpx.Client, url: str) -> Finding:
    answer = client.get(f"{url}/readyz")
    if answer.status_code == 200:
        return Finding(url, "ready", OK, "database and key files are usable")
    try:
        said = str(answer.json()["error"])
    except (ValueError, LookupError, TypeError):
        said = f"/readyz answers with status {answer.status_code}"
    return Finding(url, "ready", BROKEN, said, "check its log, its database and its disk")


def _clock(url: str, alive: httpx.Response, now: float) -> Finding:
    """Compare clocks by the Date header, which has a resolution of one second."""
    try:
        skew = parsedate_to_datetime(alive.headers["date"]).timestamp() + 0.5 - now
    except (LookupError, ValueError, TypeError):
        return Finding(url, "clock", WARNING, "no Date header", "forward the Date header")
    said = f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) <= SKEW[0]:
        return Finding(url, "clock", OK, f"{said} (resolution 1 s)")
    state = WARNING if abs(skew) <= SKEW[1] else BROKEN
    fix = "synchronise both clocks by NTP: each party closes rounds by its own clock"
    return Finding(url, "clock", state, said, fix)


def _encrypted(url: str, alive: httpx.Response) -> Finding:
    if urlsplit(url).scheme == "https":
        if "strict-transport-security" in alive.headers:
            return Finding(url, "TLS", OK, "https with Strict-Transport-Security")
        fix = "add the header Strict-Transport-Security: max-age=31536000 in the proxy"
        return Finding(url, "TLS", WARNING, "https without Strict-Transport-Security", fix)
    if is_loopback(url):
        fix = "sufficient for a trial; for participants put a proxy with TLS in front"
        return Finding(url, "TLS", WARNING, "http on this machine", fix)
    fix = "put a proxy with TLS in front: the network sees who takes part"
    return Finding(url, "TLS", BROKEN, "http, which the network can read", fix)


def _check_admin_routes(client: httpx.Client, url: str, role: str) -> Iterator[Finding]:
    """Admin routes must reject requests without the token and with a wrong one."""
    doors = [("POST", "/experiments")]
    if role == "coordinator":
        doors += [("GET", f"/experiments/{NOBODY}/{name}") for name in ("status", "export")]
        doors += [("POST", f"/experiments/{NOBODY}/{name}") for name in ("pause", "stop")]
    keys: tuple[dict[str, str], ...] = ({}, {"Authorization": "Bearer not-the-token-of-this-party"})
    said = {
        (method, path): {
            client.request(method, url + path, headers=key, json={}).status_code for key in keys
        }
        for method, path in doors
    }
    open_ = [f"{method} {path[:24]}" for (method, path), found in said.items() if found != {401}]
    if open_:
        fix = "the proxy must neither add a token nor answer for the party"
        yield Finding(url, "admin closed", BROKEN, f"not rejected: {', '.join(open_)}", fix)
    else:
        yield Finding(url, "admin closed", OK, "requests without the token are rejected")


def _headers(url: str, alive: httpx.Response) -> Finding:
    missing = [name for name, part in HEADERS.items() if part not in alive.headers.get(name, "")]
    if missing:
        fix = "forward the party's headers unchanged"
        return Finding(url, "headers", WARNING, f"missing: {', '.join(missing)}", fix)
    return Finding(url, "headers", OK, "no sniffing, framing, caching or referrer")


def _cross_origin(client: httpx.Client, url: str) -> Iterator[Finding]:
    page = client.get(f"{url}/experiments", headers={"Origin": ORIGIN})
    closed = client.get(f"{url}/experiments/{NOBODY}/status", headers={"Origin": ORIGIN})
    allowed = "access-control-allow-origin"
    answers = (page, closed)
    if any(one.headers.get("access-control-allow-credentials") == "true" for one in answers):
        fix = "add no CORS headers in the proxy: the party sends its own"
        yield Finding(url, "CORS", BROKEN, "other origins may send credentials", fix)
    elif allowed in closed.headers:
        fix = "add no CORS headers in the proxy: the party sends its own"
        yield Finding(url, "CORS", BROKEN, "other origins may read admin routes", fix)
    elif allowed in page.headers:
        yield Finding(url, "CORS", OK, "any origin may take part, without credentials")
    else:
        yield Finding(url, "CORS", OK, "only the origins in cors_origins may take part")


def _limited(client: httpx.Client, url: str) -> Finding:
    """Requests must be counted by an address that clients cannot choose.

    The request claims an address of documentation networks in the usual headers.
    """
    fix = "set limits.rate and limits.address_header in party.toml, and let the proxy "
    headers = {"X-Real-IP": CLAIMED, "X-Forwarded-For": CLAIMED}
    policy = client.get(f"{url}/healthz", headers=headers).headers.get("ratelimit", "")
    found = re.search(r"pk=:([A-Za-z0-9+/=]*):", policy)
    if found is None:
        fix += "write the client's address into that header"
        return Finding(url, "limits", BROKEN, "requests are not limited per address", fix)
    if base64.b64decode(found[1]) == CLAIMED.encode():
        fix += "overwrite that header with the client's address"
        return Finding(url, "limits", BROKEN, "clients choose the address that they count by", fix)
    return Finding(url, "limits", OK, "requests are limited per address")


def _metrics(client: httpx.Client, url: str, expected: bool) -> Finding:
    public = client.get(f"{url}/metrics").status_code == 200
    if public and not expected:
        fix = "reject /metrics in the proxy, or give --metrics-public if this is intended"
        return Finding(url, "metrics", WARNING, "anyone can read them", fix)
    return Finding(url, "metrics", OK, "public, as intended" if public else "not public")


def _published(url: str) -> tuple[dict[str, Published], list[Finding]]:
    party, found, findings = PartyClient(url), {}, list[Finding]()
    try:
        for one in party.experiments():
            published = party.terms(one["digest"])
            published.check()
            found[one["digest"]] = published
    except TacitError as problem:
        fix = "do not take part; ask both operators which terms they signed"
        findings.append(Finding(url, "terms", BROKEN, str(problem), fix))
    return found, findings


def _examine_terms(
    parties: Mapping[str, ExaminedParty], pins: list[bytes], today: date
) -> Iterator[Finding]:
    """Check that both parties publish the same terms, signed by both, with the expected keys."""
    digests = dict.fromkeys(d for one in parties.values() for d in one.published)
    keys: dict[bytes, str] = {}
    for digest in digests:
        having = [one for one in parties.values() if digest in one.published]
        terms = having[0].published[digest].terms
        name, where = f"terms {digest[:8]}", ", ".join(one.role for one in having)
        keys |= {party.key: party.role for party in terms.parties}
        if terms.last_day < today:
            yield Finding(name, "signed", OK, f"ended on {terms.last_day}")
        elif not all(one.published[digest].signed for one in having):
            fix = f"the helper's operator signs with: tacit terms cosign …/experiments/{digest}"
            yield Finding(name, "signed", WARNING, "not signed by the helper yet", fix)
        elif {one.role for one in having} != {"coordinator", "helper"}:
            fix = "make the other party reachable, then run tacit terms cosign again"
            yield Finding(name, "signed", BROKEN, f"published by the {where} alone", fix)
        else:
            yield Finding(name, "signed", OK, "identical at both parties, signed by both")
    if not digests:
        fix = "publish an experiment, or give the addresses of both parties"
        yield Finding("terms", "signed", WARNING, "no terms are published", fix)
    yield from _compare_pins(keys, pins)


def _compare_pins(keys: Mapping[bytes, str], pins: list[bytes]) -> Iterator[Finding]:
    for key, role in keys.items():
        said = fingerprint(key)
        if not pins:
            fix = f"compare it with what the {role}'s operator told you, then give it with --pin"
            yield Finding(f"{role}'s key", "pinned", WARNING, said, fix)
        elif any(pin in (key, _digits(said)) for pin in pins):
            yield Finding(f"{role}'s key", "pinned", OK, said)
        else:
            fix = (
                "keys were rotated, or an adversary intercepts: do not take part; ask the operators"
            )
            yield Finding(
                f"{role}'s key", "pinned", BROKEN, f"{said} differs from every --pin", fix
            )


def _examine_separation(parties: Mapping[str, ExaminedParty]) -> Iterator[Finding]:
    """Check that the parties have different IP addresses.

    If one operator runs both, the guarantee is void.
    """
    places = {url: _addresses(url) for url, one in parties.items() if one.role}
    known = list(places.values())
    if len(known) == 2 and known[0] & known[1]:
        fix = "the guarantee assumes two operators: use another account, machine and key at least"
        yield Finding("both", "apart", WARNING, "both parties have the same IP address", fix)
    elif len(known) == 2:
        yield Finding("both", "apart", OK, "different IP addresses")


def examine_files(config: PartyConfig) -> list[Finding]:
    """Check who can read the files of the operator's own party."""
    paths = {"key files": config.records, "long-term key": config.signing_key}
    return [_private(what, path) for what, path in paths.items()]


def _private(name: str, path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as problem:
        fix = "tacit serve creates it; otherwise correct its path in the configuration"
        return Finding(name, "private", WARNING, f"{path}: {problem.strerror}", fix)
    if mode & 0o077:
        return Finding(name, "private", BROKEN, f"{path} has mode {mode:o}", f"chmod go= {path}")
    fix = "exclude it from backups" if path.is_dir() else "keep a copy, and one of its lock"
    return Finding(name, "private", OK, str(path), fix)


def _addresses(url: str) -> frozenset[str]:
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname, None)
    except OSError:
        return frozenset()
    return frozenset(str(entry[4][0]) for entry in found)


def _pin(text: str) -> bytes:
    """Parse a key or a fingerprint in hexadecimal digits."""
    digits = _digits(text)
    if len(digits) not in (16, 32):
        raise TacitError(
            f"--pin is {text!r}: must be a key (64 hexadecimal digits) or a fingerprint (32)"
        )
    return digits


def _digits(text: str) -> bytes:
    try:
        return bytes.fromhex(re.sub(r"[\s:]", "", text))
    except ValueError:
        return b""
