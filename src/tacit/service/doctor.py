"""External checks of a deployment: findings (ok, warning or broken), each with a remedy.

The checks change nothing. Requests that could change state are sent without a token or with a wrong
one, and must be rejected. The terms that the first party publishes lead to the second party.
"""

from __future__ import annotations

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

from tacit.client.loopback import NEARBY, on_this_machine
from tacit.errors import TacitError
from tacit.service.admin import Operated, Published
from tacit.service.config import PartyConfig
from tacit.signatures import fingerprint
from tacit.version import __version__

OK, WARNING, BROKEN = "ok", "warning", "broken"
TIMEOUT = httpx.Timeout(15.0, connect=5.0)
SKEW = (2.0, 30.0)  # clock skew in seconds: above the first a warning, above the second broken
ORIGIN = "https://somewhere-else.example"
NOBODY = "0" * 64
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
class Patient:
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
    patients: dict[str, Patient] = {}
    waiting = [url.rstrip("/") for url in urls]
    with httpx.Client(timeout=TIMEOUT, follow_redirects=False, mounts=NEARBY) as client:
        while waiting:
            url = waiting.pop(0)
            if url in patients:
                continue
            try:
                found, patient = _examine_party(client, url, metrics_meant)
            except httpx.HTTPError as problem:
                said = f"it stopped answering ({str(problem) or type(problem).__name__})"
                fix = "look again later; see its log, and that of its proxy"
                found = [Finding(url, "reachable", BROKEN, said, fix)]
                patient = Patient(url, "", {})
            findings += found
            patients[url] = patient
            named = {p.address for one in patient.published.values() for p in one.terms.parties}
            waiting += sorted(named - set(patients))
    findings += _examine_terms(patients, wanted, today or datetime.now(UTC).date())
    findings += _examine_separation(patients)
    return findings


def _examine_party(
    client: httpx.Client, url: str, metrics_meant: bool
) -> tuple[list[Finding], Patient]:
    try:
        before = time.time()
        alive = client.get(f"{url}/healthz", headers={"Origin": ORIGIN})
        now = (before + time.time()) / 2
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        said = f"no answer ({str(problem) or type(problem).__name__})"
        fix = "start it with tacit serve, and see that its proxy, its name and its certificate work"
        return [Finding(url, "reachable", BROKEN, said, fix)], Patient(url, "", {})
    role, findings = _role(client, url)
    findings = [_reachable(url, alive), *findings]
    if role:
        findings += [
            _ready(client, url),
            _clock(url, alive, now),
            _encrypted(url, alive),
            *_closed(client, url, role),
            _headers(url, alive),
            *_cross_origin(client, url),
            _metrics(client, url, metrics_meant),
        ]
    published, unreadable = _published(url) if role else ({}, [])
    return [*findings, *unreadable], Patient(url, role, published)


def _reachable(url: str, alive: httpx.Response) -> Finding:
    if alive.status_code == 200:
        return Finding(url, "reachable", OK, "it answers")
    fix = "is this the address of a party? its proxy must pass every path on"
    return Finding(url, "reachable", BROKEN, f"/healthz says {alive.status_code}", fix)


def _role(client: httpx.Client, url: str) -> tuple[str, list[Finding]]:
    """The party's role and version, from its OpenAPI document."""
    try:
        about = client.get(f"{url}/openapi.json").json()["info"]
        found = re.fullmatch(r"tacit (coordinator|helper)", about["title"])
        version = str(about["version"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        found, version = None, ""
    if found is None:
        fix = "give the address of a coordinator or a helper; /openapi.json must be passed on"
        return "", [Finding(url, "version", BROKEN, "this is no party of tacit", fix)]
    said = f"{found[1]}, tacit {version}"
    if version.split(".")[:2] != __version__.split(".")[:2]:
        fix = f"this command is tacit {__version__}: use the same version everywhere"
        return found[1], [Finding(url, "version", WARNING, said, fix)]
    return found[1], [Finding(url, "version", OK, said)]


def _ready(client: httpx.Client, url: str) -> Finding:
    answer = client.get(f"{url}/readyz")
    if answer.status_code == 200:
        return Finding(url, "ready", OK, "database and key files can be used")
    try:
        said = str(answer.json()["error"])
    except (ValueError, LookupError, TypeError):
        said = f"/readyz says {answer.status_code}"
    return Finding(url, "ready", BROKEN, said, "see its log; mend the database or the disk")


def _clock(url: str, alive: httpx.Response, now: float) -> Finding:
    """Compare clocks by the Date header, which has a resolution of one second."""
    try:
        skew = parsedate_to_datetime(alive.headers["date"]).timestamp() + 0.5 - now
    except (LookupError, ValueError, TypeError):
        return Finding(url, "clock", WARNING, "it does not say what time it is", "let Date through")
    said = f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) <= SKEW[0]:
        return Finding(url, "clock", OK, f"{said}, as far as can be told")
    state = WARNING if abs(skew) <= SKEW[1] else BROKEN
    fix = "set both clocks by NTP, here and there: rounds close by each party's own"
    return Finding(url, "clock", state, said, fix)


def _encrypted(url: str, alive: httpx.Response) -> Finding:
    if urlsplit(url).scheme == "https":
        if "strict-transport-security" in alive.headers:
            return Finding(url, "TLS", OK, "https, and browsers are told to stay with it")
        fix = "let the proxy add Strict-Transport-Security: max-age=31536000"
        return Finding(url, "TLS", WARNING, "https, but browsers are not told to stay", fix)
    if on_this_machine(url):
        fix = "fine for trying out; for people put a proxy with TLS in front"
        return Finding(url, "TLS", WARNING, "http on this machine", fix)
    fix = "put a proxy with TLS in front: whoever is on the way sees who takes part"
    return Finding(url, "TLS", BROKEN, "http, which everybody on the way can read", fix)


def _closed(client: httpx.Client, url: str, role: str) -> Iterator[Finding]:
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
        fix = "nothing before the party may add a token or answer for it"
        yield Finding(url, "admin closed", BROKEN, f"not refused: {', '.join(open_)}", fix)
    else:
        yield Finding(url, "admin closed", OK, "refused without the token")


def _headers(url: str, alive: httpx.Response) -> Finding:
    missing = [name for name, part in HEADERS.items() if part not in alive.headers.get(name, "")]
    if missing:
        fix = "let the proxy pass the party's headers on as they are"
        return Finding(url, "headers", WARNING, f"missing: {', '.join(missing)}", fix)
    return Finding(url, "headers", OK, "nothing is sniffed, framed, cached or referred")


def _cross_origin(client: httpx.Client, url: str) -> Iterator[Finding]:
    page = client.get(f"{url}/experiments", headers={"Origin": ORIGIN})
    closed = client.get(f"{url}/experiments/{NOBODY}/status", headers={"Origin": ORIGIN})
    allowed = "access-control-allow-origin"
    answers = (page, closed)
    if any(one.headers.get("access-control-allow-credentials") == "true" for one in answers):
        fix = "let the proxy add no CORS headers: the party has its own"
        yield Finding(url, "CORS", BROKEN, "pages of others may send credentials", fix)
    elif allowed in closed.headers:
        fix = "let the proxy add no CORS headers: the party has its own"
        yield Finding(url, "CORS", BROKEN, "pages of others may read what is the operator's", fix)
    elif allowed in page.headers:
        yield Finding(url, "CORS", OK, "any page may take part, without credentials")
    else:
        yield Finding(url, "CORS", OK, "only pages that are named in cors_origins may take part")


def _metrics(client: httpx.Client, url: str, meant: bool) -> Finding:
    public = client.get(f"{url}/metrics").status_code == 200
    if public and not meant and not on_this_machine(url):
        fix = "let the proxy refuse /metrics, or say --metrics-public if that is meant"
        return Finding(url, "metrics", WARNING, "anybody can read them", fix)
    return Finding(url, "metrics", OK, "public, as meant" if public else "not public")


def _published(url: str) -> tuple[dict[str, Published], list[Finding]]:
    party, found, findings = Operated(url), {}, list[Finding]()
    try:
        for one in party.experiments():
            published = party.terms(one["digest"])
            published.check()
            found[one["digest"]] = published
    except TacitError as problem:
        fix = "do not take part: ask both operators which terms they signed"
        findings.append(Finding(url, "terms", BROKEN, str(problem), fix))
    return found, findings


def _examine_terms(
    patients: Mapping[str, Patient], pins: list[bytes], today: date
) -> Iterator[Finding]:
    """Check that both parties publish the same terms, signed by both, with the expected keys."""
    digests = dict.fromkeys(d for one in patients.values() for d in one.published)
    keys: dict[bytes, str] = {}
    for digest in digests:
        having = [one for one in patients.values() if digest in one.published]
        terms = having[0].published[digest].terms
        name, where = f"terms {digest[:8]}", ", ".join(one.role for one in having)
        keys |= {party.key: party.role for party in terms.parties}
        if terms.last_day < today:
            yield Finding(name, "signed", OK, f"over since {terms.last_day}")
        elif not all(one.published[digest].signed for one in having):
            fix = f"who runs the helper signs: tacit terms cosign …/experiments/{digest}"
            yield Finding(name, "signed", WARNING, "the helper has not signed them yet", fix)
        elif {one.role for one in having} != {"coordinator", "helper"}:
            fix = "the other one must be reachable and have them: tacit terms cosign, once more"
            yield Finding(name, "signed", BROKEN, f"only the {where} gives them out", fix)
        else:
            yield Finding(name, "signed", OK, "the same at both parties, signed by both")
    if not digests:
        fix = "publish an experiment, or give the addresses of both parties"
        yield Finding("terms", "signed", WARNING, "there are none", fix)
    yield from _pinned(keys, pins)


def _pinned(keys: Mapping[bytes, str], pins: list[bytes]) -> Iterator[Finding]:
    for key, role in keys.items():
        said = fingerprint(key)
        if not pins:
            fix = f"compare it with what the {role}'s operator told you, and say so with --pin"
            yield Finding(f"{role}'s key", "pinned", WARNING, said, fix)
        elif any(pin in (key, _digits(said)) for pin in pins):
            yield Finding(f"{role}'s key", "pinned", OK, said)
        else:
            fix = "somebody stands between, or keys were changed: take part in nothing, and ask"
            yield Finding(f"{role}'s key", "pinned", BROKEN, f"{said} was not expected", fix)


def _examine_separation(patients: Mapping[str, Patient]) -> Iterator[Finding]:
    """Check that the parties have different IP addresses.

    If one operator runs both, the guarantee is void.
    """
    places = {url: _addresses(url) for url, one in patients.items() if one.role}
    known = list(places.values())
    if len(known) == 2 and known[0] & known[1]:
        fix = "the promise rests on two operators: at least another account, machine and key"
        yield Finding("both", "apart", WARNING, "both are on one machine", fix)
    elif len(known) == 2:
        yield Finding("both", "apart", OK, "at different addresses")


def examine_files(config: PartyConfig) -> list[Finding]:
    """Check who can read the files of the operator's own party."""
    findings = []
    paths = {"key files": config.records, "long-term key": config.signing_key}
    for what, path in paths.items():
        findings.append(_private(what, path))
    return findings


def _private(what: str, path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as problem:
        fix = "tacit serve makes it, or mend its path in the configuration"
        return Finding(what, "private", WARNING, f"{path}: {problem.strerror}", fix)
    if mode & 0o077:
        return Finding(what, "private", BROKEN, f"{path} has mode {mode:o}", f"chmod go= {path}")
    fix = "keep it out of backups and snapshots" if path.is_dir() else "keep a copy, and its lock"
    return Finding(what, "private", OK, str(path), fix)


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
            f"--pin is {text!r}; it must be a key (64 hexadecimal digits) or a fingerprint (32)"
        )
    return digits


def _digits(text: str) -> bytes:
    try:
        return bytes.fromhex(re.sub(r"[\s:]", "", text))
    except ValueError:
        return b""
