"""kill -9 of every party of each trust model, while real devices take part over loopback HTTP.

No acknowledged report is lost, no round is released twice, no privacy budget is charged twice.
`test_kills.py` does the same for two servers with sums that say which reports are in them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.conftest import fresh
from tests.service.fronted import MODELS, small
from tests.service.nursery import nursery
from tests.service.served import ROLES, TOKEN, Member, Process, member, wait_for
from tests.service.test_kills import kill

from tacit.client import Acceptance, AsyncDevice, Ledger, Pins
from tacit.client.exchange import Offline
from tacit.errors import TacitError
from tacit.service import definition_files
from tacit.service.admin import PartyClient, publish_experiment, short_experiment
from tacit.service.schema import Stage
from tacit.signatures import public_key
from tacit.terms import Terms

pytestmark = pytest.mark.slow

NEW = tuple(model for model in MODELS if model != "two-servers")
PEOPLE = 24  # devices at once
PAUSE = 0.2
JOINING = {"shuffler": 20}  # seconds; its rounds are for 31, and released only if all report
LONGEST = 300.0  # seconds of a busy machine


@dataclass
class Taken:
    """One participation: its round, its slot, and whether all parties acknowledged the report."""

    identity: bytes
    acknowledged: bool
    spent: Any


@dataclass
class Deployment:
    """Parties in their own processes, and one experiment."""

    members: list[Member]
    processes: list[Process]
    digest: str = ""
    taken: list[Taken] = field(default_factory=list)
    released: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def coordinator(self) -> PartyClient:
        return PartyClient(self.members[0].url, TOKEN)

    def publish(self, model: str) -> Terms:
        helper = other = None
        if len(self.members) > 1:
            told = self.members[1]
            other = (told.url, public_key(told.key))
            helper = (PartyClient(told.url, TOKEN), told.key)
        given = short_experiment(other, joining=JOINING.get(model, 6), margin=3, grace=120)
        text = definition_files.write(small(model, **given))
        self.digest = publish_experiment(self.coordinator, text, helper)
        return self.coordinator.terms(self.digest).terms

    def status(self) -> dict[str, Any]:
        """The status, as soon as the coordinator is up; what was released stays as it is."""

        def asked() -> Any:
            try:
                return self.coordinator.get(f"/experiments/{self.digest}/status")
            except TacitError:
                return None

        found: dict[str, Any] = wait_for(asked, LONGEST)
        for one in found["rounds"]:
            if one["stage"] == Stage.RELEASED and one["sums"] is not None:
                said = (one["sums"], one["reports"])
                assert self.released.setdefault(one["round"], said) == said
        return found

    async def person(self, http: httpx.AsyncClient) -> None:
        """One device with a ledger, which retries every failure."""
        ledger = Ledger(":memory:")
        pins = Pins(self.members[0].url, *(public_key(one.key).hex() for one in self.members))
        device = AsyncDevice(ledger, pins, http=http, accept=Acceptance(obedient_coordinator=True))
        try:
            for _ in range(100):
                try:
                    slot = await device.join(self.digest)
                    break
                except Offline:
                    await asyncio.sleep(PAUSE)
            else:
                return
            if not slot.asked:
                await asyncio.sleep(PAUSE)
                return
            device.record(self.digest, 1)
            (running,) = ledger.running()
            await device.wait_and_report()
            sent = all(half.sent for receipt in device.status() for half in receipt.shares)
            self.taken.append(Taken(running.identity, sent, ledger.spent))
        except TacitError:
            pass  # the round closed meanwhile, or a party was down for long
        finally:
            ledger.close()

    async def participants(self, more: Callable[[], bool]) -> None:
        """Devices, until the parties are killed no more and something is released."""
        end = time.monotonic() + LONGEST

        def wanted() -> bool:
            nonlocal end
            if more():  # however long a busy machine takes to start parties again
                end = time.monotonic() + LONGEST
                return True
            return not self.released and time.monotonic() < end

        async with httpx.AsyncClient(timeout=20.0) as http:

            async def several() -> None:
                while wanted():
                    await self.person(http)

            async def watch() -> None:
                while wanted():
                    await asyncio.to_thread(self.status)
                    await asyncio.sleep(1.0)

            await asyncio.gather(*(several() for _ in range(PEOPLE)), watch())

    def check(self, terms: Terms) -> None:
        """After the last round the parties' results agree with the devices' receipts."""
        wait_for(self.stopped, LONGEST)
        live = (Stage.OPEN, Stage.CLOSING, Stage.PREPARING)
        wait_for(lambda: not any(one["stage"] in live for one in self.status()["rounds"]), LONGEST)
        rounds = {bytes.fromhex(one["round"]): one for one in self.status()["rounds"]}
        assert self.released, "nothing was released"
        for identity in {one.identity for one in self.taken}:
            of_round = [one for one in self.taken if one.identity == identity]
            acknowledged = sum(one.acknowledged for one in of_round)
            if rounds[identity]["stage"] == Stage.RELEASED and terms.kind != "masking":
                assert acknowledged <= rounds[identity]["reports"] <= rounds[identity]["given"]
        for one in self.taken:
            assert one.spent in (0, terms.cost), "charged once, or refunded"
            assert one.spent == terms.cost or not one.acknowledged or self.aborted(rounds, one)
        learned = self.coordinator.get(f"/experiments/{self.digest}/estimates")["options"]
        counted = sum(one["reports"] or 0 for one in rounds.values())
        assert sum(one["participants"] for one in learned) == counted

    def stopped(self) -> bool:
        try:
            self.coordinator.post(f"/experiments/{self.digest}/stop")
        except TacitError:
            return False
        return True

    @staticmethod
    def aborted(rounds: dict[bytes, Any], one: Taken) -> bool:
        return bool(rounds[one.identity]["stage"] == Stage.ABORTED)


@contextmanager
def deployment(directory: Path, model: str, database: Callable[[str], str]) -> Iterator[Deployment]:
    helped = MODELS[model]["trust"] in ("shuffler", "two-servers")
    roles = ROLES if helped else ROLES[:1]
    with ExitStack() as stack:
        born = stack.enter_context(nursery())
        members = [member(directory / role, role, database(role)) for role in roles]
        processes = [born.process(one) for one in members]
        for one in processes:
            stack.callback(one.free)
            stack.callback(one.kill)
            one.start()
        yield Deployment(members, processes)


def survive(directory: Path, model: str, database: Callable[[str], str], times: int) -> None:
    with deployment(directory, model, database) as made:
        terms = made.publish(model)
        with ThreadPoolExecutor(len(made.processes)) as killers:
            running = [
                killers.submit(kill, one, times, seed) for seed, one in enumerate(made.processes)
            ]
            asyncio.run(made.participants(lambda: not all(one.done() for one in running)))
            for one in running:
                one.result()
        made.check(terms)


@pytest.mark.parametrize("model", NEW)
def test_ten_kills_of_each_role_lose_no_data(tmp_path: Path, model: str) -> None:
    survive(tmp_path, model, lambda name: f"sqlite:///{tmp_path}/{name}.db", 10)


@pytest.mark.parametrize("model", NEW)
def test_five_kills_of_each_role_lose_no_data_on_postgresql(
    tmp_path: Path, model: str, postgresql: str
) -> None:
    survive(tmp_path, model, fresh(postgresql), 5)
