"""Simulated participants of the demonstration, in a process of their own (`python -m` runs it).

Each participant uses `AsyncDevice` with a ledger in memory, and reports at its scheduled time. Some
drop out before they report. Some connections break, so that devices retry. Some participants are
malicious: they send invalid reports, duplicates, or reports for slots that they do not have. The
process reads its configuration as JSON from standard input, and writes its counts to a file every
second.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from tacit.aggregation.two_servers import ReportSlot
from tacit.client import Acceptance, AsyncDevice, Ledger, Pins
from tacit.client.choices import zero_report
from tacit.client.loopback import NEARBY
from tacit.client.trust_models import reporter
from tacit.errors import TacitError
from tacit.service.pages.sentences import OVER
from tacit.terms import Pinned, Terms

AT_ONCE = 400  # maximum number of concurrent participants
ASKING = 24  # of them with a pending join request
POOLS = 16  # of connections
COMING, COMING_UNASKED = 80.0, 4.0  # arrivals per second, with and without free slots
SPOILT = 16  # bytes at the end of an encrypted report that a malicious participant replaces
VANISH, BREAK_OFF, MALICIOUS = 0.08, 0.03, 0.02  # dropout, lost-response and malicious fractions


@dataclass(frozen=True)
class SimulationConfig:
    """Configuration: servers and their keys, mean of each option, number of participants.

    With `contexts`, `by_context` has the mean of each option by the value of the first field.
    """

    address: str
    keys: tuple[str, ...]
    experiment: str
    liking: dict[str, float]
    counts: str
    most: int
    seed: int
    contexts: dict[str, list[str]] = field(default_factory=dict)
    by_context: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class VisitCounts:
    """Counts of events so far."""

    came: int = 0
    asked: int = 0
    unasked: int = 0
    vanished: int = 0
    malicious: int = 0
    reported: int = 0
    unreported: int = 0
    sent: int = 0
    sent_bytes: int = 0
    sent_again: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


class Breaking(httpx.AsyncBaseTransport):
    """Transport that delivers every report but drops some of the responses."""

    def __init__(self, seed: int, counts: VisitCounts) -> None:
        # devices of secure aggregation hold a connection each while they wait for a message; a pool
        # looks at all of its connections for each request
        limits = httpx.Limits(max_connections=AT_ONCE // POOLS)
        self._pools = cycle([httpx.AsyncHTTPTransport(limits=limits) for _ in range(POOLS)])
        self._random, self._counts = random.Random(seed), counts
        self._seen: set[str] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; the response to a report may be lost."""
        answer = await next(self._pools).handle_async_request(request)
        if request.method != "PUT":
            return answer
        name = f"{request.url} {hash(request.content)}"
        self._counts.sent += 1
        self._counts.sent_again += name in self._seen
        self._counts.sent_bytes += int(request.headers.get("content-length", "0"))
        self._seen.add(name)
        if self._random.random() < BREAK_OFF:
            await answer.aclose()
            raise httpx.ReadError("connection lost", request=request)
        return answer

    async def aclose(self) -> None:
        """Close all connections."""
        for _ in range(POOLS):
            await next(self._pools).aclose()


class SimulatedParticipants:
    """All simulated participants."""

    def __init__(self, config: SimulationConfig) -> None:
        self._config = config
        self._random = random.Random(config.seed)
        self.counts = VisitCounts()
        self._rejected: Counter[str] = Counter()
        self._http = httpx.AsyncClient(
            transport=Breaking(config.seed, self.counts), timeout=20.0, mounts=NEARBY
        )
        self._pins = Pins(config.address, *config.keys)
        self._asking = asyncio.Semaphore(ASKING)
        self._over, self._wanted = False, True

    async def run(self) -> None:
        """Let participants arrive at random until the experiment is over, fewer without free
        slots.
        """
        watching = asyncio.create_task(self._watch())
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._over and self.counts.came < self._config.most:
                rate = COMING if self._wanted else COMING_UNASKED
                await asyncio.sleep(self._random.expovariate(rate))
                if len(running) < AT_ONCE:
                    running.add(asyncio.create_task(self._participant(self._random.random())))
                    running = {one for one in running if not one.done()}
            await asyncio.gather(*running)
        finally:
            watching.cancel()
            for one in running:
                one.cancel()
            await self._http.aclose()
            self._write()

    async def _watch(self) -> None:
        """Write the counts every second, and notice the end of the experiment."""
        while True:
            with suppress(httpx.HTTPError, ValueError, KeyError):
                known = (await self._http.get(f"{self._config.address}/experiments")).json()
                mine = [one["state"] for one in known if one["digest"] == self._config.experiment]
                self._over = bool(mine) and mine[0] in OVER
            self._write()
            await asyncio.sleep(1.0)

    async def _participant(self, kind: float) -> None:
        self.counts.came += 1
        if kind < MALICIOUS:
            with suppress(httpx.HTTPError, ValueError, KeyError, TacitError):
                await self._attack()
            return
        ledger, config = Ledger(":memory:"), self._config
        context = {name: self._random.choice(values) for name, values in config.contexts.items()}
        accept = Acceptance(obedient_coordinator=True)
        device = AsyncDevice(ledger, self._pins, http=self._http, accept=accept)
        try:
            async with self._asking:
                await device.terms(self._config.experiment)
                device.agree(self._config.experiment)
                given = await (
                    device.choose(config.experiment, context)
                    if context
                    else device.join(config.experiment)
                )
            self._wanted = given.asked
            if not given.asked:
                self.counts.unasked += 1
                return
            self.counts.asked += 1
            first = next(iter(context.values()), "")
            means = config.by_context[first] if context else config.liking
            await self._take_part(device, means[given.option], vanishes=kind > 1 - VANISH)
        except TacitError as reason:
            self._rejected[f"a device stopped: {reason}"] += 1
        finally:
            ledger.close()

    async def _take_part(self, device: AsyncDevice, mean: float, vanishes: bool) -> None:
        config = self._config
        if vanishes:
            self.counts.vanished += 1
            return
        if self._random.random() < mean:
            device.record(config.experiment, 1)
        await device.wait_and_report()
        arrived = all(share.sent for receipt in device.status() for share in receipt.shares)
        self.counts.reported += arrived
        self.counts.unreported += not arrived

    async def _attack(self) -> None:
        """Send an invalid report for an assigned slot, another for the same slot, and a forged
        token.
        """
        self.counts.malicious += 1
        asked = {"nonce": os.urandom(16).hex()}
        url = f"{self._config.address}/experiments/{self._config.experiment}/places"
        said = (await self._http.post(url, json=asked)).json()
        if not said["asked"]:
            return
        pinned = await self._pinned_terms()
        announcement, token = (bytes.fromhex(said[name]) for name in ("announcement", "token"))
        device = reporter(pinned.terms)
        announced = device.announced(pinned, announcement)
        for what, key in (("nonsense", token), ("another", token), ("forged slot", bytes(16))):
            slot = ReportSlot(said["place"], key)
            made = zero_report(pinned, announcement, announced, slot, joined=0.0)
            for role, report in device.encode(made).items():
                body = report[:-SPOILT] + os.urandom(SPOILT)
                address = pinned.terms.parties[role].address
                path = f"/rounds/{made.identity.hex()}/reports/{made.slot.number}"
                status = (await self._http.put(address + path, content=body)).status_code
                self._rejected[f"{what}: {status}"] += 1

    async def _pinned_terms(self) -> Pinned:
        """The terms as the coordinator shows them; a malicious participant verifies nothing."""
        url = f"{self._config.address}/experiments/{self._config.experiment}/terms"
        said = (await self._http.get(url)).json()
        terms = Terms.decode(said["terms"].encode())
        return Pinned(terms, tuple(bytes.fromhex(one) for one in said["signatures"]), terms.keys)

    def _write(self) -> None:
        self.counts.rejected = dict(self._rejected)
        path = Path(self._config.counts)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self.counts)), encoding="utf-8")
        partial.replace(path)


def main() -> None:
    """Read the configuration and run the simulation."""
    said: dict[str, Any] = json.load(sys.stdin)
    config = SimulationConfig(**{**said, "keys": tuple(said["keys"])})
    with suppress(KeyboardInterrupt):
        asyncio.run(SimulatedParticipants(config).run())


if __name__ == "__main__":
    main()
