"""Throughput of each aggregation on one core, in clients per second.

`python benchmarks/aggregation.py` prints JSON.

All times are CPU times of all roles together: devices, servers, shuffler and analyzer run in one
process through the same bytes that they would exchange over a network. Where `flwr` is installed
(`pip install 'tacit[flower]'`), its SecAgg+ primitives run on the same number of neighbours,
threshold and dropout.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from machine import Row, emit
from tacit.aggregation import (
    HpkeSuite,
    MaskingClient,
    MaskingPlan,
    MaskingSession,
    Neighbourhood,
    OwnNoise,
    PrivateKey,
    Shuffler,
    ShufflerSession,
    neighbourhood,
    run_shuffler,
    run_two_servers,
    run_verified,
    security,
)
from tacit.aggregation.encryption import DEFAULT, Recipient
from tacit.noise import DiscreteLaplace
from tacit.records import MemoryRecords
from tacit.vdaf import prio3_count, prio3_sum

MODULUS = 1_000_003
DROPOUT = 0.05


def cpu_seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least of a few runs: on a busy machine CPU time, too, only ever grows by what
    others do.
    """
    best = float("inf")
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def row(name: str, value: float, unit: str) -> Row:
    return {"name": name, "value": round(value, 1), "unit": unit}


def beside(name: str, speed: float, limit: float, unit: str) -> list[Row]:
    """A speed, what it could be at most, and the part of it."""
    part: Row = {"name": f"{name}-of-limit", "value": round(speed / limit, 3), "unit": "times"}
    return [row(name, speed, unit), row(f"{name}-limit", limit, unit), part]


def against_limit(
    name: str,
    ours: Callable[[int, HpkeSuite], float],
    raw: Callable[[int, HpkeSuite], float],
    reports: int,
    suite: HpkeSuite,
) -> list[Row]:
    """A speed beside what it could be at most, measured one after the other."""
    return beside(name, ours(reports, suite), raw(reports, suite), "reports/s")


def masking(clients: int, dropout: float, among: Neighbourhood) -> tuple[float, float, float]:
    """Clients per second: of all roles, of the server alone, and of the cryptography alone.

    Clients drop out after sharing, which costs most: their keys are reconstructed.
    """
    rng = random.Random(1)
    values = [rng.randrange(MODULUS) for _ in range(clients)]
    gone = set(rng.sample(range(clients), int(dropout * clients)))
    expected = sum(value for place, value in enumerate(values) if place not in gone) % MODULUS
    plan = MaskingPlan(clients - len(gone), MODULUS, among)
    everyone, server = float("inf"), float("inf")
    for _ in range(3):
        gc.collect()
        start = time.process_time()
        session = MaskingSession(values, plan)
        spent = play(session, gone)
        everyone = min(everyone, time.process_time() - start)
        server = min(server, spent)
        assert session.server.view().numbers == (expected,)
    return clients / everyone, clients / server, clients / raw_masking(clients, len(gone), among)


def play(session: MaskingSession, gone: set[int]) -> float:
    """Plays a round; returns the CPU seconds of its server."""
    answers: list[Callable[[MaskingClient, bytes, int], bytes]] = [
        lambda client, _, __: client.join(),
        lambda client, message, _: client.share(message),
        lambda client, message, _: client.check(message),
        lambda client, message, value: client.mask(message, [value]),
        lambda client, message, _: client.reveal(message),
        lambda client, message, _: client.reveal(message),
    ]
    spent, outgoing = 0.0, {client.address: b"" for client in session.clients}
    for stage, answer in enumerate(answers):
        there = [
            (client, report[0])
            for place, (client, report) in enumerate(
                zip(session.clients, session.reports, strict=True)
            )
            if client.address in outgoing and not (stage > 2 and place in gone)
        ]
        messages = [answer(client, outgoing[client.address], value) for client, value in there]
        start = time.process_time()
        for message in messages:
            session.server.take(message)
        outgoing = dict(session.server.close())
        spent += time.process_time() - start
    return spent


def raw_masking(clients: int, gone: int, among: Neighbourhood) -> float:
    """CPU seconds of the key exchanges and encryptions of a round.

    Per neighbour: two exchanges, one pair of shares encrypted and decrypted. Per client: two key
    pairs and two exchanges for the channel to the server, and seven messages on it. Per dropout:
    its exchanges once more.
    """
    own, peer = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    cipher, nonce, parcel, message = (
        ChaCha20Poly1305(bytes(32)),
        bytes(12),
        bytes(66),
        bytes(66 * among.degree),
    )

    def encrypted(content: bytes) -> bytes:
        return cipher.decrypt(nonce, cipher.encrypt(nonce, content, None), None)

    count = 500
    pair = cpu_seconds(lambda: [X25519PrivateKey.generate() for _ in range(count)]) / count
    exchange = cpu_seconds(lambda: [own.exchange(peer) for _ in range(count)]) / count
    small = cpu_seconds(lambda: [encrypted(parcel) for _ in range(count)]) / count
    large = cpu_seconds(lambda: [encrypted(message) for _ in range(count)]) / count
    each = 2 * pair + (2 * among.degree + 2) * exchange + among.degree * small + 7 * large
    return clients * each + gone * among.degree * exchange


def masking_rows() -> tuple[list[Row], float]:
    """The rows of masking, and the speed of the one that flwr is compared with."""
    default = neighbourhood(1000)
    speed, server, limit = masking(1000, 0.1, default)
    rows = beside("masking-default-1000", speed, limit, "clients/s")
    rows.append(row("masking-default-1000-server", server, "clients/s"))
    rows.append(row("masking-default-1000-bits", security(default, 1000, 900).bits, "bits"))
    small = Neighbourhood(21, 11)
    ours, _, limit = masking(1000, DROPOUT, small)
    rows += beside("masking-21-11", ours, limit, "clients/s")
    rows.append(row("masking-21-11-bits", security(small, 1000, 950, corrupt=50).bits, "bits"))
    return rows, ours


def two_servers(reports: int, suite: HpkeSuite) -> float:
    """Reports per second of devices, both servers and the collector: bits, with noise of the
    servers' own.
    """
    noise = OwnNoise(1, Fraction(1), lambda scale: int(DiscreteLaplace(scale).draw()))
    bits = [place % 2 for place in range(reports)]
    return reports / cpu_seconds(
        lambda: run_two_servers(bits, MODULUS, reports, suite, noise=noise)
    )


def two_encryptions(reports: int, suite: HpkeSuite) -> float:
    """Reports per second of the encryption alone: each of two shares encrypted and decrypted once.

    The shuffle model has as many: a message for the analyzer, wrapped for the shuffler.
    """
    key = PrivateKey.new(suite)
    recipient = Recipient.parse(suite, key.public())
    share, info = bytes(35), bytes(50)

    def work() -> None:
        for _ in range(2 * reports):
            key.decrypt(recipient.encrypt(share, info), info)

    return reports / cpu_seconds(work)


def verified(reports: int, levels: int) -> float:
    """Reports per second of devices, both servers and the collector: levels that are proved and
    verified, with noise of the servers' own.
    """
    noise = OwnNoise(levels, Fraction(levels), lambda scale: int(DiscreteLaplace(scale).draw()))
    values = [place % (levels + 1) for place in range(reports)]
    return reports / cpu_seconds(lambda: run_verified(values, reports, noise))


def encryptions_and_draws(reports: int, levels: int) -> float:
    """Reports per second of the encryption and the draws of verified sums alone.

    Each share is encrypted and decrypted once. TurboSHAKE128 draws the device's seeds, the second
    server's share at the device and at that server, and the query at both servers.
    """
    from Crypto.Hash import TurboSHAKE128

    prio3 = prio3_count() if levels == 1 else prio3_sum(levels)
    circuit, key = prio3.circuit, PrivateKey.new(DEFAULT)
    recipient, info = Recipient.parse(DEFAULT, key.public()), bytes(50)
    shares = [bytes(32 + prio3.share_size(role)) for role in (0, 1)]
    share, query = (circuit.calls, circuit.proof_size), circuit.asked
    draws = [8 * count for count in (circuit.wires, *share, *share, query, query)]

    def work() -> None:
        for _ in range(reports):
            for share in shares:
                key.decrypt(recipient.encrypt(share, info), info)
            for size in draws:
                TurboSHAKE128.new(domain=1, data=bytes(80)).read(size)

    return reports / cpu_seconds(work)


def verified_rows() -> list[Row]:
    """Bits, and levels up to 1023, each beside its limit."""
    rows = []
    for name, levels in (("verified-count", 1), ("verified-sum-1023", 1023)):
        speeds = verified(1000, levels), encryptions_and_draws(1000, levels)
        rows += beside(name, *speeds, "reports/s")
    return rows


def mixing(reports: int, messages: int) -> float:
    bits = [[b"1"] * messages] * reports
    return reports * messages / cpu_seconds(lambda: run_shuffler(bits, reports))


def shuffling(reports: int) -> tuple[float, float]:
    """The shuffler alone: messages per second, and bytes of memory per buffered message."""
    session = ShufflerSession(reports, reports)
    encrypted = [session.wrap([b"1"]) for _ in range(reports)]
    fresh = session.shuffler.save()

    def take_all() -> Shuffler:
        store = MemoryRecords()
        store._records = dict(untouched)
        shuffler = Shuffler.restore(fresh, store)
        for report in encrypted:
            shuffler.take(report)
        return shuffler

    untouched = dict(session.store._records)
    seconds = cpu_seconds(lambda: take_all().close())
    tracemalloc.start()
    shuffler = take_all()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shuffler.full
    return reports / seconds, used / reports


def flower(clients: int, shares: int, threshold: int) -> float:
    """Clients per second with the SecAgg+ primitives of flwr, called as its client mod and server
    workflow call them.

    The cost of a client does not depend on how many others there are beyond its neighbours, so
    fewer than 1000 will do. flwr counts a client among its own share holders: 21 shares are 20
    neighbours.
    """
    import os

    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.common.secure_aggregation.crypto import shamir, symmetric_encryption
    from flwr.common.secure_aggregation.secaggplus_utils import (
        pseudo_rand_gen,
        share_keys_plaintext_concat,
        share_keys_plaintext_separate,
    )
    from flwr.supercore.primitives import asymmetric

    half = shares // 2
    gone = set(random.Random(1).sample(range(clients), int(DROPOUT * clients)))
    around = [[(me + step) % clients for step in range(-half, half + 1)] for me in range(clients)]

    def shared(private: bytes, public: bytes) -> bytes:
        own = asymmetric.bytes_to_private_key(private)
        peer = asymmetric.bytes_to_public_key(public)
        assert isinstance(own, ec.EllipticCurvePrivateKey)
        return bytes(symmetric_encryption.generate_shared_key(own, peer))

    def work() -> None:
        masking_keys, route_keys = (
            [
                (asymmetric.private_key_to_bytes(private), asymmetric.public_key_to_bytes(public))
                for private, public in (asymmetric.generate_key_pairs() for _ in range(clients))
            ]
            for _ in range(2)
        )
        seeds = [os.urandom(32) for _ in range(clients)]
        routes: dict[tuple[int, int], bytes] = {}
        inbox: list[list[bytes]] = [[] for _ in range(clients)]
        held: list[dict[int, tuple[bytes, bytes]]] = [{} for _ in range(clients)]
        for me in range(clients):
            own = shamir.create_shares(seeds[me], threshold, shares)
            masking = shamir.create_shares(masking_keys[me][0], threshold, shares)
            for place, other in enumerate(around[me]):
                if other == me:
                    held[me][me] = (own[place], masking[place])
                    continue
                routes[me, other] = shared(route_keys[me][0], route_keys[other][1])
                plain = share_keys_plaintext_concat(me, other, own[place], masking[place])
                inbox[other].append(symmetric_encryption.encrypt(routes[me, other], plain))
        total = 0
        for me in range(clients):
            for place, other in enumerate(sorted(other for other in around[me] if other != me)):
                plain = symmetric_encryption.decrypt(routes[me, other], inbox[me][place])
                source, _, share, masking_share = share_keys_plaintext_separate(plain)
                held[me][source] = (share, masking_share)
            if me in gone:
                continue
            total += int(pseudo_rand_gen(seeds[me], MODULUS, [(1,)])[0][0])
            for other in around[me]:
                if other != me:
                    seed = shared(masking_keys[me][0], masking_keys[other][1])
                    sign = 1 if me > other else -1
                    total += sign * int(pseudo_rand_gen(seed, MODULUS, [(1,)])[0][0])
        for owner in range(clients):
            kind = int(owner in gone)
            collected = [held[me][owner][kind] for me in around[owner] if me not in gone]
            secret = shamir.combine_shares(collected)
            if not kind:
                total -= int(pseudo_rand_gen(secret, MODULUS, [(1,)])[0][0])
                continue
            for other in around[owner]:
                if other != owner and other not in gone:
                    seed = shared(secret, masking_keys[other][1])
                    sign = 1 if owner > other else -1
                    total += sign * int(pseudo_rand_gen(seed, MODULUS, [(1,)])[0][0])
        assert total % MODULUS == 0, (
            "the masks do not cancel: flwr is not called as it is meant to be"
        )

    return clients / cpu_seconds(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--flower-clients", type=int, default=40, help="clients in the round of flwr's primitives"
    )
    arguments = parser.parse_args()
    rows, ours = masking_rows()
    rows += [
        *against_limit("two-servers", two_servers, two_encryptions, 2000, DEFAULT),
        *against_limit("two-servers-hybrid", two_servers, two_encryptions, 1000, HpkeSuite.HYBRID),
        *verified_rows(),
        *beside("mixing", mixing(2000, 1), two_encryptions(2000, DEFAULT), "messages/s"),
        row("mixing-41-bits", mixing(50, 41), "messages/s"),
    ]
    speed, memory = shuffling(2000)
    rows += [
        row("mixing-shuffler", speed, "messages/s"),
        row("mixing-memory", memory, "bytes/message"),
    ]
    if find_spec("flwr"):
        theirs = flower(arguments.flower_clients, 21, 11)
        rows += [
            row("flower-21-11", theirs, "clients/s"),
            row("masking-over-flower-21-11", ours / theirs, "times"),
        ]
    emit(rows)


if __name__ == "__main__":
    main()
