"""Several processes of one coordinator, on one database and one directory of key files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
from tests.service.pairs import Link, Pair, described, experiment_of

from tacit.records import RecordDirectory
from tacit.service import invitations, round_scheduler
from tacit.service.assignment import Assigned
from tacit.service.coordinator import Coordinator
from tacit.service.helper import Helper
from tacit.service.schema import Stage
from tacit.service.store import Store


def no_noise(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda _scale: 0


@pytest.fixture
def twins(make_pair: Callable[..., Pair]) -> Iterator[tuple[Pair, Pair]]:
    """Two coordinators on one database, with one helper."""
    first = make_pair(options={"noise": no_noise}, helper_options={"noise": no_noise})
    second = object.__new__(Pair)
    second.__dict__.update(first.__dict__)
    second.stores = (Store(first.urls[0]), first.stores[1])
    second.coordinator = Coordinator(
        first.secrets[0],
        second.stores[0],
        RecordDirectory(first.directory / "keys0"),
        clock=first.clock,
        noise=no_noise,
    )
    second.link = Link(first.helper)
    yield first, second
    second.stores[0].close()


def together(*actions: Callable[[], object]) -> None:
    """All at once; the first trouble is raised."""
    troubles: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as trouble:
            troubles.append(trouble)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise troubles[0]


def test_a_round_ended_by_another_process_is_cached_nowhere(
    twins: tuple[Pair, Pair],
) -> None:
    first, second = twins
    digest = first.begin(experiment_of(700))
    first.step(2)
    places = sum(one["places"] for one in first.coordinator.status(digest)["rounds"])
    second.report(digest, second.participants(digest, places), lambda _: 1)
    ended = set(second.coordinator._servers)
    assert ended
    first.clock.now += 200
    first.step(3)
    round_scheduler.step(second.coordinator)
    assert {one["stage"] for one in first.coordinator.status(digest)["rounds"]} >= {"opened"}
    assert not ended & (set(first.coordinator._servers) | set(second.coordinator._servers))


def test_a_round_opened_by_another_process_is_not_abandoned(
    twins: tuple[Pair, Pair],
) -> None:
    """The second process has seen the rounds planned, and comes when they are open."""
    first, second = twins
    digest = first.begin(experiment_of(700))
    first.link.down = True
    round_scheduler.step(first.coordinator)
    planned = second.coordinator.live_rounds(Stage.PREPARING)
    assert {row.announcement for row in planned} == {b""}
    first.link.down = False
    round_scheduler.step(first.coordinator)
    batch = round_scheduler._Batch(second.coordinator, digest, None)
    for row in planned:
        batch.advance(row)
        batch._abandon(row)
    rounds = second.coordinator.rounds(Stage.OPEN, Stage.ABORTED)
    assert {row.stage for row in rounds} == {Stage.OPEN}
    assert first.hold(digest, lambda _option: 1) == sum(row.slots for row in planned)
    released = [
        one for one in first.coordinator.status(digest)["rounds"] if one["stage"] == "opened"
    ]
    assert len(released) == len(planned)


@pytest.mark.extended
def test_two_processes_assign_every_slot_and_observe_every_sum_once(
    twins: tuple[Pair, Pair],
) -> None:
    first, second = twins
    digest = first.begin(experiment_of(700))
    asked: list[Assigned] = []

    def join_all(pair: Pair) -> None:
        for _ in range(4):
            came = pair.participants(digest, 15)
            asked.extend(came)
            pair.report(digest, came, lambda _option: 1)

    def steps(pair: Pair) -> None:
        for _ in range(3):
            round_scheduler.step(pair.coordinator)

    for _ in range(3):
        together(lambda: steps(first), lambda: steps(second))
        together(
            lambda: join_all(first),
            lambda: join_all(second),
            lambda: steps(first),
            lambda: steps(second),
        )
        first.clock.now += 200
        first.helper.step()
        together(lambda: steps(first), lambda: steps(second), first.helper.step)
        together(lambda: steps(first), lambda: steps(second))
    second.stores[0].close()
    places = [(described(one).identity, one.slot.number) for one in asked if one.slot]
    assert len(set(places)) == len(places) > 200
    released = [
        one for one in first.coordinator.status(digest)["rounds"] if one["stage"] == "opened"
    ]
    assert all(one["sums"] == [one["reports"]] for one in released)
    seen = first.coordinator._snapshot(digest)
    learned = sum(one.participants for one in seen.experiment.estimates())
    assert learned == sum(one["reports"] for one in released) > 150
    numbers = [row.number for row in seen.rounds]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.extended
def test_two_processes_spend_the_same_invitations_in_any_order(twins: tuple[Pair, Pair]) -> None:
    """PostgreSQL ended one of the transactions, and its whole group of reports got 503."""
    first, _ = twins
    digest = first.begin(admission="invitation")
    first.step(1)
    shown = invitations.make(digest, first.secrets[0], 700)
    store = Store(first.urls[1])
    records = RecordDirectory(first.directory / "keys1")
    again = Helper(first.secrets[1], store, records, clock=first.clock)
    came = [(first.join(digest, invitation=one), one) for one in shown]
    sent = [
        (described(a).identity, a.slot.number, first.shares(digest, a, 1)[1], mine)
        for a, mine in came
        if a.slot is not None
    ]
    groups = [[party.report(*one) for one in sent] for party in (first.helper, again)]
    for party in (first.helper, again):
        party.keep([])  # connects
    answers: list[object] = []
    together(
        lambda: answers.extend(first.helper.keep(groups[0])),
        lambda: answers.extend(again.keep(groups[1][::-1])),
    )
    store.close()
    assert answers == [None] * (2 * len(sent))
