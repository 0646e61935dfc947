"""How many people per second each intermediary serves on one core: `python
benchmarks/intermediaries.py` prints JSON.

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

from machine import Row, emit
from tacit.intermediaries import (
    Dropouts,
    MixingRound,
    Neighbourhood,
    OwnNoise,
    PrivateKey,
    Sealing,
    Shuffler,
    run_masking,
    run_mixing,
    run_two_servers,
    wrap,
)
from tacit.intermediaries.interface import new_identity
from tacit.intermediaries.mixing import Role, prepare_party
from tacit.intermediaries.sealing import DEFAULT, Recipient
from tacit.noise import DiscreteLaplace
from tacit.records import MemoryRecords

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


def against_limit(
    name: str,
    ours: Callable[[int, Sealing], float],
    raw: Callable[[int, Sealing], float],
    reports: int,
    sealing: Sealing,
) -> list[Row]:
    """A speed, what it could be at most, and the part of it: measured one after the other."""
    speed, limit = ours(reports, sealing), raw(reports, sealing)
    part: Row = {"name": f"{name}-of-limit", "value": round(speed / limit, 3), "unit": "times"}
    return [row(name, speed, "reports/s"), row(f"{name}-limit", limit, "reports/s"), part]


def masking(clients: int, degree: int, threshold: int) -> float:
    """Clients per second; a twentieth leave after sharing, which costs most, because their keys are
    rebuilt.
    """
    rng = random.Random(1)
    values = [rng.randrange(MODULUS) for _ in range(clients)]
    gone = set(rng.sample(range(clients), int(DROPOUT * clients)))

    def work() -> None:
        view = run_masking(
            values,
            MODULUS,
            clients - len(gone),
            Neighbourhood(degree, threshold),
            Dropouts(mask=gone),
        )
        assert (
            view.numbers[0]
            == sum(value for place, value in enumerate(values) if place not in gone) % MODULUS
        )

    return clients / cpu_seconds(work)


def two_servers(reports: int, sealing: Sealing) -> float:
    """Reports per second of devices, both servers and the collector: bits, with noise of the
    servers' own.
    """
    noise = OwnNoise(1, Fraction(1), lambda scale: int(DiscreteLaplace(scale).draw()))
    bits = [place % 2 for place in range(reports)]
    return reports / cpu_seconds(
        lambda: run_two_servers(bits, MODULUS, reports, sealing, noise=noise)
    )


def two_seals(reports: int, sealing: Sealing) -> float:
    """Reports per second of what two servers cannot do without: every half of a report sealed once
    and opened once, as long as it is, and nothing else.
    """
    key = PrivateKey.new(sealing)
    recipient = Recipient.parse(sealing, key.public())
    half, info = bytes(35), bytes(50)

    def work() -> None:
        for _ in range(2 * reports):
            key.open(recipient.seal(half, info), info)

    return reports / cpu_seconds(work)


def mixing(reports: int, messages: int) -> float:
    bits = [[b"1"] * messages] * reports
    return reports * messages / cpu_seconds(lambda: run_mixing(bits, reports))


def shuffling(reports: int) -> tuple[float, float]:
    """The shuffler alone: messages per second, and bytes of memory per buffered message."""
    identity = new_identity()
    stores = [MemoryRecords() for _ in range(1 + 4)]
    shuffling = {prepare_party(store, Role.SHUFFLER, identity, source=bytes) for store in stores}
    analyzing = prepare_party(stores[0], Role.ANALYZER, identity)
    announced = MixingRound(reports, reports, 1, shuffling.pop(), analyzing, identity=identity)
    sealed = [wrap(announced, [b"1"]) for _ in range(reports)]

    def take_all() -> Shuffler:
        shuffler = Shuffler(announced, stores.pop())
        for report in sealed:
            shuffler.take(report)
        return shuffler

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
    ours = masking(1000, 21, 11)
    rows = [
        row("masking-21-11", ours, "clients/s"),
        row("masking-65-33", masking(1000, 65, 33), "clients/s"),
        *against_limit("two-servers", two_servers, two_seals, 2000, DEFAULT),
        *against_limit("two-servers-hybrid", two_servers, two_seals, 1000, Sealing.HYBRID),
        row("mixing", mixing(2000, 1), "messages/s"),
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
