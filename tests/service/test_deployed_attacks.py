"""Attacks on deployed rounds that a participant or a party begins after it was admitted.

The round ends as the terms say, the experiment goes on, and no secret outlives its round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.service.deployed import KEYS, SECRETS, Deployed, definition_of, deployed
from tests.service.fronted import small
from tests.service.pairs import Link

from tacit.aggregation.announcements import binding_of
from tacit.aggregation.encryption import DEFAULT
from tacit.aggregation.masking_rounds import SLOWEST_STAGE
from tacit.aggregation.round_state import PartyRoundState, RoundPhase
from tacit.aggregation.shuffler import ShuffleRole, ShufflerRound, wrap
from tacit.aggregation.two_servers import RoundOutcome
from tacit.aggregation.wire import HEADER_SIZE
from tacit.client.trust_models import reporter
from tacit.errors import Rejected, TacitError
from tacit.service.assignment import Assigned
from tacit.service.errors import Conflict
from tacit.service.pending import PendingShares
from tacit.service.schema import Stage
from tacit.service.trust_models.shuffler import RECEIVED
from tacit.terms import cosign
from tacit.terms.parts import DISCRETE_LAPLACE, MOST_MESSAGES, most_shared

INVITED = {"admission": "invitation", "issuer": KEYS[2]}


def everybody(one: Deployed) -> list[Assigned]:
    one.step(2)
    rounds = one.coordinator.rounds(Stage.OPEN)
    return one.join(sum(row.slots - row.assigned for row in rounds))


def test_one_participant_with_invalid_shares_aborts_one_round_only(
    tmp_path: Path,
) -> None:
    """Split-and-mix: shares out of range left the coordinator in an endless retry."""
    defined = definition_of("shuffler", algorithm="split-dp-se", **INVITED)
    with deployed(defined, tmp_path) as one:
        attacker, *others = everybody(one)
        assert attacker.slot is not None
        announced = reporter(one.pinned.terms).announced(one.pinned, attacker.announcement)
        assert isinstance(announced, ShufflerRound)
        spoilt = [b"\xff" * announced.size] * announced.messages
        wrong = {1: attacker.slot.encode() + wrap(one.pinned, attacker.announcement, spoilt)}
        beside = [each for each in others if one.identity(each) == announced.identity]
        sent = [(each, one.report(each, 0)) for each in beside[: announced.minimum]]
        assert set(one.send([(attacker, wrong), *sent])) == {None}
        one.clock.now += 200
        one.step(4)
        assert one.helper is not None
        said = one.helper.outcome(announced.identity)
        assert said[HEADER_SIZE + 1] == RoundOutcome.RELEASED, "nothing is refunded"
        stages = {row.identity: row.stage for row in one.coordinator.rounds(*Stage)}
        assert stages.pop(announced.identity) is Stage.ABORTED
        assert Stage.OPEN in stages.values(), "the experiment goes on"


@pytest.mark.parametrize("model", ["two-servers", "shuffler", "local"])
def test_invalid_reports_close_no_round_early(tmp_path: Path, model: str) -> None:
    """Strangers who filled rounds had them aborted and planned anew as fast as they could send."""
    with deployed(small(model), tmp_path) as one:
        asked = everybody(one)
        spoilt: list[tuple[Assigned, Mapping[int, bytes]]] = []
        for each in asked:
            made = one.report(each, 0)
            whole = {role: said[:60] + bytes(len(said) - 60) for role, said in made.items()}
            spoilt.append((each, whole))
        assert set(one.send(spoilt)) == {None}
        before = len(one.coordinator.rounds(*Stage))
        one.step(8)
        rows = one.coordinator.rounds(*Stage)
        assert [row.stage for row in rows] == [Stage.ABORTED] * before
        one.clock.now = max(row.closes for row in rows)
        one.step(3)
        assert one.coordinator.rounds(Stage.OPEN)


def test_a_full_masking_round_still_waits_for_its_deadline(tmp_path: Path) -> None:
    """Devices answer stages from the deadline on: a server that began before lost all of them."""
    with deployed(small("secure-aggregation", margin=900), tmp_path) as one:
        asked = everybody(one)
        assert set(one.send([(each, one.report(each, 0)) for each in asked])) == {None}
        for _ in range(3):
            one.clock.now += SLOWEST_STAGE + 1
            one.step(2)
        assert one.clock.now < min(row.closes for row in one.coordinator.rounds(Stage.CLOSING))
        one.clock.now += 900
        one.step()
        one.answer_stages()
        assert sum(row.reports or 0 for row in one.coordinator.rounds(Stage.RELEASED)) == len(asked)


def test_a_coordinator_that_requests_a_batch_early_gets_one_and_keys_are_deleted(
    tmp_path: Path,
) -> None:
    """The shuffler ended the round without an outcome, and kept the key of its reports forever."""
    with deployed(small("shuffler"), tmp_path) as one:
        asked = everybody(one)
        assert set(one.send([(each, one.report(each, 0)) for each in asked])) == {None}
        assert one.helper is not None
        one.clock.now += 200
        for identity in {one.identity(each) for each in asked}:
            assert one.helper.exchange(identity, RECEIVED)[1], "the batch"
            state = PartyRoundState(one.helper.records, ShuffleRole.SHUFFLER.value, identity)
            assert state.read().phase is RoundPhase.ANSWERED
            said = one.helper.outcome(identity)
            assert said[HEADER_SIZE + 1] == RoundOutcome.RELEASED
        one.step(3)
        assert sum(row.reports or 0 for row in one.coordinator.rounds(Stage.RELEASED)) == len(asked)


def test_a_process_that_falls_behind_another_aborts_no_masking_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It paused between reading messages and ending a stage; another ended it with one more."""
    with deployed(small("secure-aggregation"), tmp_path) as one:
        asked = everybody(one)
        assert set(one.send([(each, one.report(each, 0)) for each in asked])) == {None}
        one.clock.now += 200
        one.step()
        paused, late = one.coordinator, one.running.pop()
        for device in one.running:
            assert one._answered(device)
        one.restart()
        served = paused.staged(late.identity)
        due, table = served._due, PendingShares(one.stores[0], late.identity)

        def paused_for_long(*about: Any) -> bool:
            monkeypatch.undo()
            assert not due(*about)
            assert one._answered(late)
            there = one.coordinator.staged(late.identity)
            assert there.advance(table, one.clock.now) is RoundPhase.OPEN
            assert there.messages_sent == 2
            return True

        monkeypatch.setattr(served, "_due", paused_for_long)
        assert served.advance(table, one.clock.now) is RoundPhase.OPEN, served.reason
        assert served.messages_sent == 2
        one.running.append(late)
        one.answer_stages()
        assert sum(row.reports or 0 for row in one.coordinator.rounds(Stage.RELEASED)) == len(asked)


@pytest.mark.parametrize("algorithm", ["private-med", "dist-rdp-se", "private-contextual"])
def test_noise_that_takes_a_device_hours_to_draw_is_rejected(
    tmp_path: Path, algorithm: str
) -> None:
    """Shares of Laplace and Skellam noise: the device hung, with its ledger locked.

    A table has a share of Laplace noise for each of its cells.
    """
    about: dict[str, Any] = {"algorithm": algorithm}
    if algorithm == "private-contextual":
        about |= {"context_fields": ("device: phone, desktop",)}
    with deployed(definition_of("secure-aggregation", **about), tmp_path) as one:
        one.step(2)
        row, terms = one.coordinator.rounds(Stage.OPEN)[0], one.pinned.terms
        announced = reporter(terms).announced(one.pinned, row.announcement)
        most = most_shared(terms.noise.distribution, announced.offer().metrics)
        assert most is not None
        if terms.noise.distribution == DISCRETE_LAPLACE:
            assert most * terms.numbers(terms.context is not None) == 1 << 20
        one.pinned.check(replace(announced.offer(), total=most))
        for wide in (most + 1, most * 2**900):
            with pytest.raises(Rejected, match="total noise of the round"):
                one.pinned.check(replace(announced.offer(), total=wide))
        noise = replace(terms.noise, scale=most + 1, minimum=most + 1)
        with pytest.raises(TacitError, match=r"noise\.minimum"):
            replace(terms, noise=noise)


@pytest.mark.parametrize("algorithm", ["private-med", "split-dp-se"])
def test_no_round_of_a_shuffler_has_messages_that_a_device_encrypts_for_minutes(
    tmp_path: Path, algorithm: str
) -> None:
    """More noise bits or shares than needed: a coordinator occupied devices, which sent 35 MB."""
    more = INVITED if algorithm == "split-dp-se" else {}
    with deployed(definition_of("shuffler", algorithm=algorithm, **more), tmp_path) as one:
        one.step(2)
        row, terms = one.coordinator.rounds(Stage.OPEN)[0], one.pinned.terms
        announced = reporter(terms).announced(one.pinned, row.announcement)
        assert isinstance(announced, ShufflerRound)
        one.pinned.check(replace(announced, messages=MOST_MESSAGES).offer())
        many = replace(announced, messages=MOST_MESSAGES + 1)
        with pytest.raises(Rejected, match="number of messages of a report of the round"):
            one.pinned.check(many.offer())


def test_an_experiment_with_too_many_messages_is_not_published(tmp_path: Path) -> None:
    wasteful = definition_of(
        "shuffler", algorithm="vb-sdp-ae", epsilon=Fraction(1, 10), levels=10, participations=3
    )
    with (
        pytest.raises(TacitError, match="number of messages of a report is 393763"),
        deployed(wasteful, tmp_path),
    ):
        pass


def test_a_coordinator_cannot_hide_outcomes_of_another_coordinators_round(tmp_path: Path) -> None:
    """Keys under its own terms for the name of that round: the helper then said "not over"."""
    with deployed(small("shuffler"), tmp_path) as one:
        assert one.helper is not None
        asked = everybody(one)
        terms = definition_of("two-servers").terms("https://other.example", KEYS[2])
        one.helper.admit(terms, [cosign(terms, key) for key in (SECRETS[2], SECRETS[1])])
        names = {one.identity(each) for each in asked}
        for name in names:
            with pytest.raises(Conflict, match="of another experiment"):
                one.helper.keys(terms.digest, name, DEFAULT)
        one.helper.keys(terms.digest, bytes(16), DEFAULT)
        one.clock.now += 2000
        one.step(4)
        for name in names:
            assert one.helper.outcome(name)[HEADER_SIZE + 1] == RoundOutcome.ABORTED


class OneAnswer(Link):
    """A helper that signs every round, and answers with the first announcement."""

    first = b""

    def describe(self, description: bytes, signature: bytes) -> bytes:
        self.first = self.first or super().describe(description, signature)
        return self.first


@pytest.mark.parametrize("model", ["two-servers", "shuffler"])
def test_a_helper_cannot_replace_one_round_by_another(tmp_path: Path, model: str) -> None:
    """The sum of one option was learned as that of another, too; devices rejected that round."""
    with deployed(small(model), tmp_path) as one:
        assert one.helper is not None
        one.link = OneAnswer(one.helper)
        one.step(3)
        announced = one.coordinator.rounds(Stage.OPEN)
        assert [binding_of(row.announcement)[0] for row in announced] == [announced[0].identity]
        assert one.coordinator.rounds(Stage.PREPARING), "announced again, or planned anew"
