"""A malicious coordinator (server 0 and collector) with all other participants: its announcements,
lists, requests to the honest helper, and its view.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.attacks.two_server_attacks import (
    EPSILON,
    LEVELS,
    MODULUS,
    forged_list,
    joint_distribution,
    opened_session,
    worst_loss,
)

from tacit.aggregation import (
    Aggregator,
    AggregatorContext,
    Rejected,
    ReportSlot,
    TwoServerRound,
    TwoServerSession,
    announce,
    split,
)
from tacit.aggregation.announcements import endorse
from tacit.aggregation.interface import new_identity
from tacit.aggregation.two_servers import report_tag, word_digest
from tacit.errors import TacitError
from tacit.records import MemoryRecords
from tacit.signatures import public_key
from tacit.terms import Party, Pinned, cosign

Draw = Callable[[Fraction], int]


def no_noise(_: Fraction) -> int:
    return 0


def untouched(size: int) -> bytes:
    raise AssertionError(f"{size} random bytes were drawn for a round that must be rejected")


SLOT = ReportSlot(0, bytes(16))


def rejected_by_device(session: TwoServerSession, announcement: bytes) -> str:
    """Why the device does not report; it has drawn no randomness by then."""
    with pytest.raises(Rejected) as rejection:
        split(session.pinned, announcement, SLOT, [1], untouched)
    return str(rejection.value)


def signed_by_all(session: TwoServerSession, description: TwoServerRound) -> bytes:
    """Signed by both servers whatever its content: even then a device rejects."""
    data = description.encode()
    return announce(data, [endorse(data, key) for key in session.rehearsal.keys])


# What is announced


def test_in_the_helpers_slot_its_own_key_decrypts_nothing() -> None:
    """The helper that the coordinator names has not signed, or is not the pinned one."""
    session = opened_session(no_noise)
    own = Ed25519PrivateKey.generate()
    elsewhere = AggregatorContext(session.pinned, 1, session.rehearsal.keys[1], MemoryRecords())
    fake = elsewhere.prepare(session.round.identity, session.round.suite)
    forged = replace(session.round, servers=(session.round.servers[0], fake))
    data = forged.encode()
    signed = announce(data, [endorse(data, key) for key in (session.rehearsal.keys[0], own)])
    assert "the helper did not sign" in rejected_by_device(session, signed)
    terms = session.pinned.terms
    helper = Party("helper", "https://helper.example", public_key(own))
    other = replace(terms, parties=(terms.parties[0], helper))
    signatures = (cosign(other, session.rehearsal.keys[0]), cosign(other, own))
    with pytest.raises(Rejected, match="must be the pinned key"):
        Pinned(other, signatures, session.pinned.keys)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"minimum": 1}, "minimum batch size of 2"),
        ({"scale": Fraction(1, 1000)}, "noise scale of the round"),
        ({"scale": Fraction(199, 100)}, "noise scale of the round"),
        ({"scale": None}, "is devices: must be servers"),
        ({"length": 2}, "number of metrics"),
        ({"modulus": 12}, "modulus of the round is 12"),
    ],
)
def test_a_weaker_round_is_rejected_by_devices_and_not_signed_by_the_helper(
    changes: dict[str, Any], words: str
) -> None:
    session = opened_session(no_noise, minimum=2)
    weaker = replace(session.round, identity=new_identity(), **changes)
    assert words in rejected_by_device(session, signed_by_all(session, weaker))
    with pytest.raises(Rejected, match=words):
        session.party(1).endorse(weaker.encode())


@pytest.mark.parametrize(
    "changes", [{"window": 60}, {"levels": 1}, {"levels": 4}, {"option": 9}, {"closes": 1}]
)
def test_another_terms_digest_is_rejected_by_devices_and_the_helper(
    changes: dict[str, int],
) -> None:
    session = opened_session(no_noise)
    binding = replace(session.round.binding, **changes)  # type: ignore[arg-type]
    other = replace(session.round, binding=binding, assigned_until=0, identity=new_identity())
    rejected_by_device(session, signed_by_all(session, other))
    with pytest.raises(Rejected):
        session.party(1).endorse(other.encode())


def test_one_participant_cannot_get_another_question_than_the_others() -> None:
    """The digest of the terms is in every description, seal and token: no round has two
    meanings. The helper does not sign the round under the other terms, and if it had, a
    half made under them would be nothing to the round of the first.
    """
    session = opened_session(no_noise)
    terms = session.pinned.terms
    asked = replace(terms, question="Send 0, please.")
    keys = session.rehearsal.keys
    told = Pinned(asked, tuple(cosign(asked, key) for key in keys), asked.keys)
    binding = replace(session.round.binding, terms=asked.digest)
    twin = replace(session.round, binding=binding)
    announcement = signed_by_all(session, twin)
    assert "terms of the round" in rejected_by_device(session, announcement)
    with pytest.raises(Rejected, match="one description per round"):
        AggregatorContext(told, 1, keys[1], session.records[1]).endorse(twin.encode())
    place = session.server(0).slot(0)
    for role, half in enumerate(split(told, announcement, place, [1])):
        session.server(role).take(half, session.now)
    late = session.round.binding.closes
    assert session.server(1).close(late).keys() == {session.round.collector}


def test_two_descriptions_of_a_round_are_never_both_signed() -> None:
    session = opened_session(no_noise)
    for changes in ({"slots": 5}, {"grace": 7}, {"modulus": 1009}, {"minimum": 2}):
        with pytest.raises(Rejected, match="one description per round"):
            session.party(1).endorse(replace(session.round, **changes).encode())  # type: ignore[arg-type]


# What it learns


WORD = bytes(9)  # of which the coordinator's half is made: held fixed, as it knows it


class Victim:
    """A round in which the victim's half is at the helper, and a report of the coordinator's own
    making, whose every byte it knows.
    """

    def __init__(self, answer: int, draw: Draw) -> None:
        self.session = opened_session(draw)
        self.tags = []
        for number, value in enumerate((answer, 2)):
            words = [bytes((number, role)) * 8 for role in (0, 1)]
            drawn = iter([*words, WORD])
            shares = self.session.split(number, [value], lambda _: next(drawn))  # noqa: B023
            self.session.server(1).take(shares[1], self.session.now)
            digests = (word_digest(words[0]), word_digest(words[1]))
            self.tags.append(report_tag(self.session.round.context, number, digests))
        self.late = self.session.round.binding.closes
        self.heard: list[bytes | None] = []

    def helper(self, table: dict[bytes, bytes] | None = None) -> Aggregator:
        """The helper, restarted, over its table or a copy of another time."""
        if table is not None:
            self.session.tables[1] = table
        return self.session.server(1)

    def list_to(self, helper: Aggregator, tags: list[bytes], now: int) -> None:
        """A list of the coordinator's choice, and all that the helper answers."""
        with suppress(Rejected):
            helper.take(forged_list(self.session, 0, tags), now)
        self.ask(helper, now)

    def ask(self, helper: Aggregator, now: int) -> None:
        with suppress(Rejected):
            for address, message in helper.close(now).items():
                if address == self.session.round.collector:
                    self.heard.append(self.session.collector()._content(1, message))
        with suppress(Rejected):
            self.heard.append(helper.outcome()[:22])


def honestly(victim: Victim) -> None:
    victim.ask(victim.helper(), victim.late)
    victim.list_to(victim.helper(), victim.tags, victim.late)


def alone(victim: Victim) -> None:
    victim.list_to(victim.helper(), victim.tags[:1], victim.late)


def with_and_without(victim: Victim) -> None:
    victim.ask(victim.helper(), victim.late)
    victim.list_to(victim.helper(), victim.tags, victim.late)
    victim.list_to(victim.helper(), victim.tags[1:], victim.late)
    victim.ask(victim.helper(), victim.late + 10**6)


def from_old_snapshots(victim: Victim) -> None:
    """Before any close, after the list, after the answer: always another list."""
    tables = [dict(victim.session.tables[1])]
    victim.ask(victim.helper(), victim.late)
    tables.append(dict(victim.session.tables[1]))
    victim.list_to(victim.helper(), victim.tags[:1], victim.late)
    for table in [*tables, {}]:
        for tags in (victim.tags, victim.tags[1:], []):
            victim.list_to(victim.helper(dict(table)), tags, victim.late)
            victim.list_to(victim.helper(dict(table)), tags, victim.late - 1)


def from_clones(victim: Victim) -> None:
    """Two processes over two tables, each given another list before either closes."""
    one, table = victim.helper(), dict(victim.session.tables[1])
    other = victim.helper(table)
    victim.ask(one, victim.late)
    other.take(forged_list(victim.session, 0, victim.tags[1:]), victim.late)
    one.take(forged_list(victim.session, 0, victim.tags[:1]), victim.late)
    for helper in (one, other, one, victim.helper(dict(table))):
        victim.ask(helper, victim.late)


@pytest.mark.parametrize(
    "attack", [honestly, alone, with_and_without, from_old_snapshots, from_clones]
)
def test_the_view_of_a_coordinator_meets_the_guarantee(attack: Callable[[Victim], None]) -> None:
    """The joint distribution of all that the helper ever answers, for every answer of the victim:
    the coordinator knows its own half, its own noise and all other reports.
    """

    def observe(answer: int, draw: Draw) -> Hashable:
        victim = Victim(answer, draw)
        attack(victim)
        assert len({said for said in victim.heard if said and len(said) > 22}) == 1  # partial sums
        return tuple(victim.heard)

    distribution = joint_distribution(observe)
    assert len(distribution) == MODULUS
    assert worst_loss(distribution) <= float(EPSILON) + 1e-9
    assert (
        worst_loss(distribution) > float(EPSILON) * 0.99
    )  # it sees the noisy answer, and only that


def test_the_recomputed_guarantee_detects_missing_noise() -> None:
    """The same attack on a helper that draws less than it says."""

    def observe(answer: int, draw: Draw) -> Hashable:
        victim = Victim(answer, lambda scale: round(draw(scale) / 2))
        alone(victim)
        return tuple(victim.heard)

    assert worst_loss(joint_distribution(observe)) > float(EPSILON) * 1.3


def test_an_answer_outside_the_range_of_the_terms_is_not_sent() -> None:
    session = opened_session(no_noise)
    for value in (LEVELS + 1, -1):
        with pytest.raises(TacitError, match="numbers from 0 to 3"):
            split(session.pinned, session.announcement, SLOT, [value], untouched)
