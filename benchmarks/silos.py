"""Time and bytes of a federation's synchronisation, in one process and on FLARE.

Prints the median over some rows. `--flare` starts a FLARE network on this machine with agents in
this process; the rest needs no engine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.records import MemoryRecords
from tacit.signatures import public_key
from tacit.silos.agent import SiloAgent, SiloIdentity
from tacit.silos.context import ContextSpec
from tacit.silos.coordinator import FederationCoordinator
from tacit.silos.database import SiloDatabase
from tacit.silos.exchange import InProcessExchange, Responder
from tacit.silos.federation import (
    FederationTerms,
    PinnedFederation,
    RewardSpec,
    SiloParty,
    SyncSchedule,
    sign_federation,
)

ROWS = 5


def synchronise(silos: int, dimension: int) -> tuple[float, float, int]:
    """Median seconds and CPU seconds of a synchronisation, and the bytes that a silo sends."""
    key = Ed25519PrivateKey.generate()
    keys = [Ed25519PrivateKey.generate() for _ in range(silos)]
    terms = FederationTerms(
        "What is measured?",
        "secagg-fedlinucb",
        ContextSpec(features=dimension),
        RewardSpec("a reward"),
        SyncSchedule(horizon=10 * ROWS, sync=10, kind="fixed"),
        public_key(key),
        tuple(
            SiloParty(f"silo{n}", public_key(one), Fraction(1), Fraction(1, 100_000))
            for n, one in enumerate(keys)
        ),
    )
    pinned = PinnedFederation(terms, tuple(sign_federation(terms, one) for one in (key, *keys)))
    agents = {
        silo.name: SiloAgent(
            SiloIdentity(pinned, silo.name, one),
            SiloDatabase(":memory:", terms.digest),
            MemoryRecords(),
        )
        for silo, one in zip(terms.silos, keys, strict=True)
    }
    reached: dict[str, Callable[[], Responder]] = {
        name: lambda agent=agent: agent  # type: ignore[misc]
        for name, agent in agents.items()
    }
    coordinator = FederationCoordinator(pinned, key, InProcessExchange(reached), MemoryRecords())
    times, spent = [], []
    for _ in range(ROWS):
        start, used = time.perf_counter(), time.process_time()
        coordinator.deliver()
        coordinator.synchronise()
        times.append(time.perf_counter() - start)
        spent.append(time.process_time() - used)
    size = coordinator.received["silo0"] // ROWS
    return statistics.median(times), statistics.median(spent), size


def on_flare() -> tuple[float, int]:
    """The whole demonstration with few patients: seconds per row as FLARE's job logs them."""
    from tacit.silos.demo.play import play

    shown = play(seed=1, count=100, pace=20, watch=lambda _stage: None)
    rows = len(shown.terms.batches)
    return shown.seconds_per_row, shown.result.received["north"] // rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flare", action="store_true", help="also measure on FLARE processes")
    given = parser.parse_args()
    for silos, dimension in ((4, 10), (20, 50)):
        seconds, spent, size = synchronise(silos, dimension)
        print(
            f"{silos} silos, d = {dimension}, in process: {seconds:.2f} s ({spent:.2f} s CPU), "
            f"{size:,} bytes a silo"
        )
    if given.flare:
        seconds, size = on_flare()
        print(f"4 silos, d = 10, on FLARE: {seconds:.2f} s, {size:,} bytes a silo")


if __name__ == "__main__":
    main()
