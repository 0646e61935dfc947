"""Write the test vectors for other implementations.

Run `python tests/aggregation/make_vectors.py`. Everything follows from the vectors' random bytes
but what HPKE draws by itself (and the order of a batch): where a file has everything else as it
comes out again, it is left as it is, so that a second run changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.aggregation.rings import ring_session

from tacit.aggregation import (
    HpkeSuite,
    Neighbourhood,
    OwnNoise,
    ServerKeys,
    ShufflerSession,
    TwoServerSession,
    masks,
    shamir,
)
from tacit.aggregation.aggregator_context import RoundSecrets
from tacit.aggregation.agreement import agree, derive, new_key, public_bytes
from tacit.aggregation.interface import Source
from tacit.aggregation.masking import ClientKeys, mask_seed, route_keys
from tacit.aggregation.two_servers import share_info
from tacit.aggregation.verified import MODULUS

FOLDER = Path(__file__).parent / "vectors"
DRAWN = {"two-servers": ("halves", "partial"), "mixing": ("reports", "batch")}


def source(label: str) -> Source:
    """Bytes that follow from a label: the output of SHAKE256, read from the front."""
    return io.BytesIO(hashlib.shake_256(b"tacit test vector " + label.encode()).digest(10_000)).read


def primitives() -> dict[str, Any]:
    """Shamir shares, masks and key derivations, each alone."""
    first, second = new_key(source("first")), new_key(source("second"))
    secret = source("secret")(32)
    shares = shamir.split(secret, 3, 5, source("coefficients"))
    pair = [(4, public_bytes(first)), (9, public_bytes(second))]
    masking, signing = (
        [source(f"{what} {number}")(32) for number, _ in pair] for what in ("masking", "signing")
    )
    parties = [
        ClientKeys(number, key, mask, sign)
        for (number, key), mask, sign in zip(pair, masking, signing, strict=True)
    ]
    context = source("context")(32)
    return {
        "shamir": {
            "prime": str(shamir.PRIME),
            "secret": secret.hex(),
            "threshold": 3,
            "shares": {str(number): share.hex() for number, share in enumerate(shares, start=1)},
        },
        "masks": [
            {
                "seed": (seed := source(f"mask {modulus}")(32)).hex(),
                "modulus": str(modulus),
                "numbers": [str(number) for number in masks.expand(seed, modulus, 12)],
            }
            for modulus in (2, 10, 1000003, 2**32 + 15, 2**63 + 1, 2**64, 2**64 + 13, 2**127 - 1)
        ],
        "keys": {
            "context": context.hex(),
            "numbers": [4, 9],
            "private": [first.private_bytes_raw().hex(), second.private_bytes_raw().hex()],
            "public": [key.hex() for _, key in pair],
            "shared": agree(first, pair[1][1]).hex(),
            "masking": [key.hex() for key in masking],
            "signing": [key.hex() for key in signing],
            "route": [key.hex() for key in route_keys(first, parties[0], parties[1], context)],
            "mask": mask_seed(first, pair[0], pair[1], context).hex(),
            "channel": derive(
                agree(first, pair[1][1]), context, b"tacit channel v2" + pair[0][1] + pair[1][1], 96
            ).hex(),
        },
    }


def masking() -> dict[str, Any]:
    """A whole round of eight clients on a ring: number 2 leaves before masking and number 5 before
    revealing.
    """
    session = ring_session([[0, 0]] * 8, 6, 1000003, Neighbourhood(6, 4), source("masking server"))
    server = session.server
    values = [[place, 1000 + place] for place in range(8)]
    clients = sorted(
        (session.client(source(f"masking client {place}")) for place in range(8)),
        key=lambda client: client.address,
    )
    wire: dict[str, list[str | None]] = {}

    def step(name: str, answers: list[bytes | None]) -> dict[bytes, bytes]:
        wire[name] = [answer.hex() if answer else None for answer in answers]
        for answer in answers:
            if answer:
                server.take(answer)
        return dict(server.close())

    setups = step("join", [client.join() for client in clients])
    wire["setup"] = [setups[client.address].hex() for client in clients]
    inboxes = step("shares", [client.share(setups[client.address]) for client in clients])
    wire["inbox"] = [inboxes[client.address].hex() for client in clients]
    pairs = step("checked", [client.check(inboxes[client.address]) for client in clients])
    wire["pairs"] = [pairs[client.address].hex() for client in clients]
    seeds = [client._seed.hex() for client in clients]
    private = [client._key.private_bytes_raw().hex() for client in clients]
    signing_private = [client._signing_key.private_bytes_raw().hex() for client in clients]
    masking_private = [client._masking_key.private_bytes_raw().hex() for client in clients]
    server_private = server._key.private_bytes_raw().hex()
    left = step(
        "masked",
        [
            client.mask(pairs[client.address], value) if place != 2 else None
            for place, (client, value) in enumerate(zip(clients, values, strict=True))
        ],
    )
    told = [left.get(client.address) for client in clients]
    wire["left"] = [message.hex() if message else None for message in told]
    requests = step(
        "keys",
        [
            client.reveal(message) if message else None
            for client, message in zip(clients, told, strict=True)
        ],
    )
    asked = [requests.get(client.address) for client in clients]
    wire["request"] = [request.hex() if request else None for request in asked]
    step(
        "reveal",
        [
            client.reveal(request) if request and client is not clients[5] else None
            for client, request in zip(clients, asked, strict=True)
        ],
    )
    return {
        "terms": session.pinned.terms.encode().decode(),
        "announcement": session.announcement.hex(),
        "round": server.round.encode().hex(),
        "context": server.round.context.hex(),
        "server_private": server_private,
        "clients": {
            "private": private,
            "masking_private": masking_private,
            "signing_private": signing_private,
            "seeds": seeds,
            "values": values,
        },
        "wire": wire,
        "sum": list(server.view().numbers),
        "reports": server.view().reports,
    }


def two_server_session(sealing: HpkeSuite, length: int, verified: bool = False) -> TwoServerSession:
    """A round of four places under terms with noise of scale 8 for every four levels."""
    drawn = iter([3, -2] * length)
    noise = OwnNoise(4, Fraction(8), lambda _: next(drawn))
    fixed = source(f"{'verified' if verified else 'two servers'} {sealing.name} {length}")
    modulus = MODULUS if verified else 1000003
    return TwoServerSession(4, 2, modulus, length, noise, sealing, fixed, verified=verified)


def two_servers(sealing: HpkeSuite, length: int = 2, verified: bool = False) -> dict[str, Any]:
    """Three reports, one of which reaches only server 0; each server draws 3, -2, 3, …"""
    session = two_server_session(sealing, length, verified)
    announced, terms = session.round, session.pinned.terms
    values = [[(place + number) % 5 for number in range(length)] for place in range(3)]
    halves = [
        session.split(place, value, source(f"report {place}")) for place, value in enumerate(values)
    ]
    servers = [session.server(role) for role in (0, 1)]
    for place, report in enumerate(halves):
        for role in (0, 1) if place != 2 else (0,):
            servers[role].take(report[role], session.now)
    late = announced.binding.closes
    listings = [servers[role].close(late)[servers[role].peer] for role in (0, 1)]
    for server, listing in zip(servers, reversed(listings), strict=True):
        server.take(listing, late)
    places = [servers[0].slot(number).encode().hex() for number in range(4)]
    secrets = [_round_secret(session, role) for role in (0, 1)]
    partials = [server.close(late)[announced.collector] for server in servers]
    collector = session.collector()
    for partial in partials:
        collector.take(partial)
    contents = [collector._content(role, partial) for role, partial in enumerate(partials)]
    collector.close()
    return {
        "terms": terms.encode().decode(),
        "terms_signatures": [signature.hex() for signature in session.pinned.signatures],
        "long_term": [key.private_bytes_raw().hex() for key in session.rehearsal.keys],
        "announcement": session.announcement.hex(),
        "context": announced.context.hex(),
        "servers": [_private(keys) for keys in secrets],
        "places": places,
        "values": values,
        "halves": [[half.hex() for half in report] for report in halves],
        "opened": [
            [
                keys.encryption.decrypt(half[41:], share_info(announced.context, role, place)).hex()
                for role, (keys, half) in enumerate(zip(secrets, report, strict=True))
            ]
            for place, report in enumerate(halves)
        ],
        "present": [listing.hex() for listing in listings],
        "partial": [partial.hex() for partial in partials],
        "signed": [content.hex() for content in contents if content],
        "outcome": [server.outcome().hex() for server in servers],
        "sum": list(collector.view().numbers),
        "reports": collector.view().reports,
    }


def _round_secret(session: TwoServerSession, role: int) -> ServerKeys:
    identity = session.round.identity
    record = session.party(role).record(identity)
    assert record is not None
    return RoundSecrets(record.secret, identity, record.suite).keys


def mixing(sealing: HpkeSuite) -> dict[str, Any]:
    """Three reports of two messages each."""
    session = ShufflerSession(3, 2, 2, 2, sealing, source=source("mixing round"))
    announced, shuffler, analyzer = session.round, session.shuffler, session.analyzer
    keys = [keys for keys in (shuffler._keys, analyzer._keys) if keys is not None]
    reports = [session.wrap([b"a%d" % place, b"b%d" % place]) for place in range(3)]
    for report in reports:
        shuffler.take(report)
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    analyzer.close()
    return {
        "terms": session.pinned.terms.encode().decode(),
        "announcement": session.announcement.hex(),
        "context": announced.context.hex(),
        "shuffler": _private(keys[0]),
        "analyzer": _private(keys[1]),
        "reports": [report.hex() for report in reports],
        "batch": batch.hex(),
        "messages": sorted(message.hex() for message in analyzer.view().messages),
    }


def _private(keys: ServerKeys) -> dict[str, str]:
    lattice = keys.encryption.lattice
    return {
        "line": keys.line.private_bytes_raw().hex(),
        "x25519": keys.encryption.classical.private_bytes_raw().hex(),
        "mlkem768_seed": lattice.private_bytes_raw().hex() if lattice else "",
    }


def kept(name: str, content: dict[str, Any], present: dict[str, Any]) -> bool:
    """Whether a file that is there differs in nothing but what is drawn anew every time."""
    drawn = {entry for kind, entries in DRAWN.items() if name.startswith(kind) for entry in entries}
    again, before = (
        {entry: value for entry, value in one.items() if entry not in drawn}
        for one in (content, present)
    )
    return again == before and content.keys() == present.keys()


def main(folder: Path = FOLDER) -> None:
    """Write all files that are missing or would change."""
    folder.mkdir(exist_ok=True)
    everything = {
        "primitives": primitives(),
        "masking": masking(),
        **{f"two-servers-{sealing.name.lower()}": two_servers(sealing) for sealing in HpkeSuite},
        "two-servers-seed": two_servers(HpkeSuite.X25519_AES, 12),
        "two-servers-verified": two_servers(HpkeSuite.X25519_AES, 2, verified=True),
        **{f"mixing-{sealing.name.lower()}": mixing(sealing) for sealing in HpkeSuite},
    }
    for name, content in everything.items():
        path = folder / f"{name}.json"
        if not path.exists() or not kept(name, content, json.loads(path.read_text())):
            path.write_text(json.dumps(content, indent=1) + "\n")
            sys.stdout.write(f"{name}.json\n")


if __name__ == "__main__":
    main()
