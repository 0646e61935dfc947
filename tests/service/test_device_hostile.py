"""Servers that violate the terms: rejected before anything is drawn, stored or sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import httpx
import pytest
from tests.service.parties import ADDRESSES, KEYS, PINS, Open, Parties, pinned, rows, terms

from tacit.aggregation import HpkeSuite, TwoServerRound, accept
from tacit.aggregation.announcements import endorse
from tacit.aggregation.wire import pack_fraction
from tacit.client import AsyncDevice, Device, Ledger, Offline, Pins
from tacit.client.device import NONCE_SIZE, Unagreed
from tacit.client.published_terms import REFRESH
from tacit.errors import Rejected, TacitError
from tacit.signatures import public_key
from tacit.terms import REHEARSED, Aggregation, Noise, Party, StatedGuarantee, Terms


class Watched:
    """A device whose draws are counted, and what it left behind."""

    def __init__(self, parties: Parties, ledger: Ledger, pins: Pins = PINS) -> None:
        self.parties, self.ledger, self.drawn = parties, ledger, list[int]()
        self.device = Device(
            ledger,
            pins,
            http=httpx.Client(transport=httpx.MockTransport(parties.answer)),
            clock=parties.clock,
            sleep=parties.clock.sleep,
            source=self._draw,
        )

    def _draw(self, size: int) -> bytes:
        self.drawn.append(size)
        return bytes(size)

    def assert_rejects(self, match: str, requests: int) -> None:
        with pytest.raises(TacitError, match=match):
            self.device.join(self.parties.experiment)
        assert set(self.drawn) <= {NONCE_SIZE}  # which says nothing but that somebody asks
        assert len(self.parties.trace) == requests
        self.device.wait_and_report(outcomes=True)
        assert len(self.parties.trace) == requests
        assert rows(self.ledger, "SELECT * FROM rounds") == []
        assert rows(self.ledger, "SELECT * FROM shares") == []
        assert rows(self.ledger, "SELECT 1 FROM lineages WHERE nonce NOT NULL") == []
        assert rows(self.ledger, "SELECT 1 FROM lineages WHERE option NOT NULL") == []
        assert self.ledger.spent == 0


# Terms


def shown(parties: Parties, of: Terms, role: int | None = None, **changes: Any) -> None:
    """These terms in the place of those that are asked for, at one server or at both."""
    signed = pinned(of)
    copy = {
        "terms": of.encode().decode(),
        "signatures": [signature.hex() for signature in signed.signatures],
        "state": "running",
        "successor": None,
    }
    for number, copies in enumerate(parties.copies):
        if role in (None, number):
            copies[parties.experiment] = copy | changes


def foreign() -> tuple[Party, ...]:
    return tuple(
        Party(role, address, public_key(key))
        for role, address, key in zip(("coordinator", "helper"), ADDRESSES, KEYS[2:], strict=True)
    )


@pytest.mark.parametrize("role", [0, 1])
def test_terms_other_than_requested_are_rejected(ledger: Ledger, role: int) -> None:
    parties = Parties()
    shown(parties, terms(guarantee=StatedGuarantee(Fraction(9))), role)
    Watched(parties, ledger).assert_rejects("digest of the terms of", 1 + role)
    assert rows(ledger, "SELECT * FROM terms") == []


def test_terms_under_unpinned_keys_are_rejected_before_contacting_the_helper(
    ledger: Ledger,
) -> None:
    parties = Parties(terms(parties=foreign()))
    Watched(parties, ledger).assert_rejects("must be the pinned key", 1)
    assert rows(ledger, "SELECT * FROM terms") == []


def test_terms_without_one_partys_signature_are_rejected(ledger: Ledger) -> None:
    parties = Parties()
    own = [signature.hex() for signature in parties.pinned.signatures]
    for signatures in ([own[0], own[0]], own[:1], [], own[::-1], "no", [1, 2], ["zz", "zz"]):
        parties = Parties()
        shown(parties, parties.pinned.terms, signatures=signatures)
        Watched(parties, ledger).assert_rejects("sign|list|hexadecimal", 1)


def test_a_server_that_does_not_know_the_terms_is_rejected(ledger: Ledger) -> None:
    for role in (0, 1):
        parties = Parties()
        del parties.copies[role][parties.experiment]
        Watched(parties, ledger).assert_rejects("not known here", 1 + role)


@pytest.mark.parametrize(
    "change",
    [
        {"guarantee": StatedGuarantee(Fraction(2), participations=2)},
        {"guarantee": StatedGuarantee(Fraction(1), participations=3), "noise": Noise(Fraction(3))},
        {"noise": Noise(Fraction(4)), "aggregation": Aggregation(1), "answer": "window"},
    ],
)
def test_weaker_successors_are_rejected_and_not_kept(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    if change.get("answer") == "window":
        change = change | {"answer": replace(terms().answer, window=61)}
    parties = Parties()
    first = parties.experiment
    parties.succeed(terms(predecessor=first, **change))
    watched = Watched(parties, ledger)
    with pytest.raises(Rejected, match="successor terms"):
        watched.device.join(first)
    assert rows(ledger, "SELECT * FROM terms") == []


def test_a_successor_that_one_old_key_did_not_approve_is_rejected(ledger: Ledger) -> None:
    parties = Parties()
    first = parties.experiment
    parties.succeed(terms(predecessor=first, parties=foreign()), (KEYS[0], KEYS[2]))
    with pytest.raises(Rejected, match="did not sign this successor"):
        Watched(parties, ledger).device.join(first)
    assert rows(ledger, "SELECT * FROM terms") == []


def test_terms_pinned_by_another_app_are_not_followed_without_approval(ledger: Ledger) -> None:
    """An app that shares the ledger, with keys of its own, names the first app's terms as those
    before its own; their parties have signed nothing.
    """
    parties = Parties()
    device = parties.device(ledger)
    device.terms(parties.experiment)
    other, theirs = others_naming(parties, ledger)
    with pytest.raises(Rejected, match="of other parties: must be of the same ones"):
        theirs.terms(other.experiment)
    shown = device.terms(parties.experiment).terms
    assert shown.digest == parties.experiment
    assert device.known_terms(parties.experiment) == shown
    assert limit(ledger, parties) == shown.guarantee.epsilon
    assert ledger.known(other.experiment) is None


def test_terms_naming_future_terms_lower_no_limit(ledger: Ledger) -> None:
    parties = Parties()
    other, theirs = others_naming(parties, ledger)
    theirs.terms(other.experiment)
    parties.device(ledger).terms(parties.experiment)
    assert limit(ledger, parties) == parties.pinned.terms.guarantee.epsilon
    assert limit(ledger, other) == Fraction(1, 100)
    parties.clock.now += 2 * REFRESH
    with pytest.raises(Rejected, match="of other parties: must be of the same ones"):
        theirs.terms(other.experiment)


def test_terms_naming_the_same_predecessor_share_no_limits(ledger: Ledger) -> None:
    """The named terms are not known on this device."""
    first = Parties()
    other, theirs = others_naming(first, ledger)
    theirs.terms(other.experiment)
    after = Parties(terms(predecessor=first.experiment, question="Which one?"), first.clock)
    after.device(ledger).terms(after.experiment)
    assert limit(ledger, after) == first.pinned.terms.guarantee.epsilon
    assert limit(ledger, other) == Fraction(1, 100)


def others_naming(parties: Parties, ledger: Ledger) -> tuple[Parties, Device]:
    """Other parties with a tiny ε, whose terms name the experiment as their predecessor."""
    tiny = StatedGuarantee(Fraction(1, 100))
    about: dict[str, Any] = {"guarantee": tiny, "noise": Noise(Fraction(200))}
    made = terms(predecessor=parties.experiment, parties=foreign(), **about)
    other = Parties(made, parties.clock)
    keys = [public_key(key).hex() for key in KEYS[2:4]]
    return other, other.device(ledger, Pins(ADDRESSES[0], keys[0], keys[1]))


def limit(ledger: Ledger, parties: Parties) -> Fraction:
    """The limit of an experiment's participant on this device."""
    known = ledger.known(parties.experiment)
    assert known is not None
    return known.account.limit


def test_a_slot_assigned_after_withdrawal_is_not_kept(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)

    def leaves(reply: dict[str, Any]) -> dict[str, Any]:
        device.withdraw(parties.experiment)
        return reply

    parties.given = leaves
    with pytest.raises(Rejected, match="has left the experiment"):
        device.join(parties.experiment)
    assert rows(ledger, "SELECT * FROM rounds") == []
    assert device.run_due() is None


def test_two_successors_of_the_same_terms_are_rejected(ledger: Ledger) -> None:
    parties = Parties()
    first = parties.experiment
    parties.succeed(terms(predecessor=first, question="Which one?"))
    kept = dict(parties.copies[0][first])
    parties.succeed(terms(predecessor=first, question="Which other?"))
    parties.copies[0][first] = kept
    with pytest.raises(Rejected, match="different successors"):
        Watched(parties, ledger).device.join(first)


def test_a_weaker_successor_given_by_the_app_is_rejected(
    ledger: Ledger,
) -> None:
    parties = Parties()
    watched = Watched(parties, ledger)
    watched.device.terms(parties.experiment)
    parties.succeed(terms(predecessor=parties.experiment, guarantee=StatedGuarantee(Fraction(2))))
    with pytest.raises(Rejected, match="epsilon of successor terms"):
        watched.device.join(parties.experiment)


def test_other_terms_are_no_second_successor_of_agreed_ones(ledger: Ledger) -> None:
    """Once the device knew an approved successor, terms of the same question were taken as agreed
    to although they asked for another answer.
    """
    parties = Parties()
    first = parties.experiment
    device = parties.device(ledger)
    device.terms(first)
    device.agree(first)
    parties.succeed(terms(predecessor=first, contact="people@example.org"))
    parties.clock.now += 2 * REFRESH
    assert device.terms(first).terms.contact
    other = terms(predecessor=first, answer=replace(terms().answer, meaning="1 if you are ill"))
    parties.know(pinned(other))
    with pytest.raises(Rejected, match="answer of successor terms"):
        device.terms(other.digest)
    assert ledger.known(other.digest) is None


def test_terms_that_agreed_ones_named_unseen_need_an_agreement_of_their_own(
    ledger: Ledger,
) -> None:
    """The terms that came first named the digest of others, which nobody had published yet."""
    ill = terms(answer=replace(terms().answer, meaning="1 if you are ill"))
    parties = Parties(terms(predecessor=ill.digest))
    device = parties.device(ledger)
    device.terms(parties.experiment)
    device.agree(parties.experiment)
    parties.know(pinned(ill))
    assert not device.terms(ill.digest).agreed
    with pytest.raises(Unagreed):
        device.join(ill.digest)
    assert device.terms(parties.experiment).agreed


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "xn--zz--"])
def test_an_address_that_is_no_host_name_is_not_reachable(ledger: Ledger, host: str) -> None:
    """It raised an error of another kind, which callers do not expect."""
    at = f"http://{host}"
    parties = Parties(terms(parties=tuple(replace(one, address=at) for one in terms().parties)))
    pins = Pins(at, *(key.hex() for key in parties.pinned.keys))
    with Device(ledger, pins) as device, pytest.raises(Offline):
        device.terms(parties.experiment)

    async def asked() -> None:
        async with AsyncDevice(ledger, pins) as device:
            await device.terms(parties.experiment)

    with pytest.raises(Offline):
        asyncio.run(asked())


def test_a_redirect_to_no_host_name_stops_no_reports_to_others(ledger: Ledger) -> None:
    """With a client of httpx, as behind a proxy, `run_due` failed for all experiments."""

    def redirected(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(308, headers={"location": "http://xn--zz--/"})

    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    slot = device.join(parties.experiment)
    assert slot.reports_at is not None
    parties.clock.now = slot.reports_at + 1
    with httpx.Client(transport=httpx.MockTransport(redirected)) as client:
        there = Device(ledger, device.pins, http=client, clock=parties.clock)
        assert there.run_due() is not None


def test_terms_of_another_trust_model_are_rejected(ledger: Ledger) -> None:
    parties = Parties(terms(noise=Noise(Fraction(2), "devices")))
    Watched(parties, ledger).assert_rejects("must be other-server", 1)


def test_terms_of_rehearsals_are_rejected(ledger: Ledger) -> None:
    parties = Parties(terms(noise=Noise(Fraction(2), "devices", REHEARSED)))
    Watched(parties, ledger).assert_rejects("noise.distribution is 'rehearsed'", 1)


# Rounds


def altered(change: Callable[[TwoServerRound], TwoServerRound], *keys: Any) -> Any:
    """A reply whose announcement is altered, and signed again with all keys."""

    def give(parties: Parties, released: Open, reply: dict[str, Any]) -> dict[str, Any]:
        announcement = parties.forge(change(released.round), *keys)
        return reply | {"announcement": announcement.hex()}

    return give


def bound(**changes: Any) -> Any:
    return altered(lambda round_: replace(round_, binding=replace(round_.binding, **changes)))


def field(name: str, value: object) -> Any:
    return lambda _parties, _opened, reply: reply | {name: value}


def altered_announcement(parties: Parties, released: Open, reply: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    whole = bytearray(released.announcement)
    whole[100] ^= 1
    return reply | {"announcement": whole.hex()}


def long_scale(parties: Parties) -> bytes:
    """A round whose cost has more digits than a ledger's export may have."""
    described = parties.describe().encode()
    scale = pack_fraction(Fraction(2 * 10**100 + 1, 10**100))
    whole = described.replace(pack_fraction(parties.pinned.terms.noise.scale), scale)
    return whole + b"".join(endorse(whole, key) for key in KEYS[:2])


ROUNDS: dict[str, tuple[Any, str]] = {
    "signed by nobody we know": (altered(lambda r: r, KEYS[2], KEYS[3]), "did not sign"),
    "signed by the coordinator alone": (altered(lambda r: r, KEYS[0], KEYS[0]), "did not sign"),
    "spoilt": (altered_announcement, "did not sign"),
    "of other terms": (bound(terms=bytes(32)), "terms of the round"),
    "with a longer window": (bound(window=61), "observation window"),
    "with a shorter window": (bound(window=59), "observation window"),
    "with more levels": (bound(levels=2), "number of levels"),
    "about an option that is none": (bound(option=2), "option of the round is 2"),
    "outside of the terms' days": (bound(closes=4_000_000_000), "the days of the terms"),
    "with a scale that no export could name": (
        lambda parties, _opened, reply: reply | {"announcement": long_scale(parties).hex()},
        "numerator and denominator below 2\\^208",
    ),
    "with less noise": (
        altered(lambda r: replace(r, scale=Fraction(199, 100))),
        "scale of the round is",
    ),
    "with keys that live too long": (
        altered(lambda r: replace(r, grace=86_401)),
        "grace of the round is 86401",
    ),
    "with keys that live for 136 years": (
        altered(lambda r: replace(r, grace=(1 << 32) - 1)),
        "must be from 0 to 86400",
    ),
    "with another suite": (
        altered(lambda r: replace(r, suite=HpkeSuite.X25519)),
        "suite of the round is hpke-x25519-chacha20poly1305",
    ),
    "without noise": (altered(lambda r: replace(r, scale=None)), "adds the noise"),
    "with more numbers": (altered(lambda r: replace(r, length=2)), "number of metrics"),
    "without room": (altered(lambda r: replace(r, modulus=4)), "modulus of the round is 4"),
    "from fewer reports on": (
        altered(lambda r: replace(r, minimum=2)),
        "the minimum batch size of 3",
    ),
    "that is over for joining": (
        altered(lambda r: replace(r, assigned_until=r.assigned_until - 101)),
        "Check the clocks",
    ),
    "without time to send": (
        altered(lambda r: replace(r, assigned_until=r.binding.closes - 60)),
        "time to send is",
    ),
    "about another option": (field("option", "Hi"), "option of the round is"),
    "with an option that is none": (field("option", "Hey"), "option is 'Hey'"),
    "with no option": (field("option", None), "option"),
    "with a place beyond": (field("place", 4), "slot is 4: must be below 4"),
    "with a negative place": (field("place", -1), "slot"),
    "with a place that is none": (field("place", True), "slot of the coordinator is True"),
    "with half a token": (field("token", "00"), "token"),
    "with a token that is none": (field("token", 7), "token"),
    "asked perhaps": (field("asked", "yes"), "asked is 'yes'"),
    "without announcement": (field("announcement", ""), "hexadecimal"),
    "with too short an announcement": (field("announcement", "00"), "bytes of its signatures"),
    "no object": (lambda *_: ["asked"], "a JSON object"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_that_differs_from_the_guarantee_is_rejected(ledger: Ledger, name: str) -> None:
    change, match = ROUNDS[name]
    parties = Parties(terms(aggregation=Aggregation(3)))
    released = parties.open()
    parties.given = lambda reply: change(parties, released, reply)
    Watched(parties, ledger).assert_rejects(match, 3)


# What the pinned terms say of a round. It is checked twice: where an announcement is accepted, and
# where the device computes what the round costs.
WEAKER = [
    *("of other terms", "with a longer window", "with a shorter window", "with more levels"),
    *("about an option that is none", "outside of the terms' days", "with less noise"),
    *("without noise", "with more numbers", "without room", "from fewer reports on"),
]


def offered(name: str) -> tuple[Parties, dict[str, Any], str]:
    """Parties, their reply with an altered round that both signed, and why it is rejected."""
    change, match = ROUNDS[name]
    parties = Parties(terms(aggregation=Aggregation(3)))
    released = parties.open()
    reply = parties._assigned()
    return parties, change(parties, released, reply), match


@pytest.mark.parametrize("name", WEAKER)
def test_a_round_that_is_weaker_than_the_terms_is_not_accepted(name: str) -> None:
    parties, reply, match = offered(name)
    with pytest.raises(Rejected, match=match):
        accept(TwoServerRound, parties.pinned, bytes.fromhex(reply["announcement"]))


@pytest.mark.parametrize("name", WEAKER)
def test_a_device_checks_a_round_against_the_terms_before_it_joins(
    name: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an announcement was accepted without a look at what it offers."""
    parties, reply, match = offered(name)
    parties.given = lambda _: reply
    monkeypatch.setattr(
        "tacit.client.trust_models.contract.accept",
        lambda kind, _pinned, message: kind.decode(message[:-128]),
    )
    Watched(parties, ledger).assert_rejects(match, 3)


def test_the_unchanged_round_is_joined(ledger: Ledger) -> None:
    """What is rejected above is rejected for its change."""
    parties = Parties()
    released = parties.open()
    give = altered(lambda round_: round_)
    parties.given = lambda reply: give(parties, released, reply)
    watched = Watched(parties, ledger)
    assert watched.device.join(parties.experiment).asked
    assert watched.drawn == [NONCE_SIZE, 32]


def test_a_minimum_batch_that_is_too_small_is_rejected(ledger: Ledger) -> None:
    parties = Parties(terms(aggregation=Aggregation(3)))
    released = parties.open()
    give = altered(lambda round_: replace(round_, minimum=2))
    parties.given = lambda reply: give(parties, released, reply)
    Watched(parties, ledger).assert_rejects("the minimum batch size of 3", 3)


def test_cheap_rounds_count_against_the_participations_of_the_terms(
    ledger: Ledger,
) -> None:
    """A hundred times the noise costs a hundredth: still twice, as the participant read."""

    class Fresh(Watched):
        def _draw(self, size: int) -> bytes:
            super()._draw(size)
            return os.urandom(size)

    parties = Parties()
    watched = Fresh(parties, ledger)
    for _ in range(2):
        parties.open(scale=Fraction(200))
        assert watched.device.join(parties.experiment).asked
        watched.device.wait_and_report(outcomes=True)
        parties.clock.now += 3700
    assert ledger.spent == Fraction(1, 100)
    parties.open(scale=Fraction(200))
    drawn, posted = len(watched.drawn), len(parties.bodies)
    assert not watched.device.join(parties.experiment).asked
    assert len(watched.drawn) == drawn
    assert {seen.method for seen in parties.trace[posted:]} <= {"GET"}
    copy = Ledger(":memory:")
    copy.merge(ledger.export())
    other = Fresh(parties, copy)
    with pytest.raises(Rejected, match="number of participations is 2: must be below 2"):
        other.device.join(parties.experiment)
    assert other.drawn == []


def test_terms_of_version_2_are_rejected_with_a_remedy(ledger: Ledger) -> None:
    parties = Parties()
    old = parties.pinned.terms.encode().decode().replace('"version":3', '"version":2')
    for copies in parties.copies:
        copies[parties.experiment]["terms"] = old
    Watched(parties, ledger).assert_rejects("is 2: must be 3. Publish the experiment anew", 1)


def test_a_round_of_another_experiment_is_rejected(ledger: Ledger) -> None:
    other = Parties(terms(question="Which other?", guarantee=StatedGuarantee(Fraction(9))))
    released = other.open()
    parties = Parties()
    parties.open()
    parties.given = lambda reply: reply | {"announcement": released.announcement.hex()}
    Watched(parties, ledger).assert_rejects("terms of the round", 3)


def test_a_round_is_joined_once_whatever_slot_is_assigned(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    watched = Watched(parties, ledger)
    watched.device.join(parties.experiment)
    before, drawn = rows(ledger, "SELECT * FROM rounds"), len(watched.drawn)
    ledger._db.execute("UPDATE lineages SET until = 0")  # as if it did not stick
    parties.nonces.clear()
    with pytest.raises(Rejected, match="once in a round"):
        watched.device.join(parties.experiment)
    assert rows(ledger, "SELECT * FROM rounds") == before
    assert watched.drawn[drawn:] == [NONCE_SIZE]


def test_an_outdated_announcement_is_rejected(ledger: Ledger) -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    device.wait_and_report(outcomes=True)
    before = rows(ledger, "SELECT * FROM rounds")
    replayed, parties.asked = next(iter(parties.nonces.values())), False
    parties.given = lambda _: replayed
    with pytest.raises(Rejected, match="time of this device"):
        device.join(parties.experiment)
    parties.clock.now = released.round.assigned_until - 1.0  # also with a clock that goes back
    ledger._db.execute("UPDATE lineages SET until = 0")
    with pytest.raises(Rejected, match="once in a round"):
        device.join(parties.experiment)
    assert rows(ledger, "SELECT * FROM rounds") == before


def test_many_open_rounds_cannot_exceed_the_guarantee(
    ledger: Ledger,
) -> None:
    parties = Parties()
    device = parties.device(ledger)
    for _ in range(5):
        released = parties.open()
        device.join(parties.experiment)
        device.wait_and_report()
        parties.clock.now = float(released.round.binding.closes)
        parties.finish(released)
    assert len([seen for seen in parties.trace if seen.method == "PUT"]) == 4
    assert ledger.spent == terms().guarantee.epsilon


def test_the_participants_own_limit_applies_to_all_experiments(ledger: Ledger) -> None:
    ledger.set_own_limit(Fraction(3, 4))
    first, second = Parties(), Parties(terms(question="Which other?"))
    for parties in (first, second):
        parties.open()
    first.device(ledger).join(first.experiment)
    with pytest.raises(Rejected, match="own limit"):
        second.device(ledger).join(second.experiment)
    assert all(seen.method == "GET" for seen in second.trace)


def test_a_limit_lowered_after_joining_withholds_the_report(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    ledger.set_own_limit(Fraction(1, 4))
    device.wait_and_report(outcomes=True)
    assert [seen.method for seen in parties.trace] == ["GET", "GET", "POST"]
    assert (device.status()[0].outcome, device.status()[0].charged) == ("broken", False)


@pytest.mark.parametrize("status", [200, 400, 404, 409, 500])
@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b"{", b'{"error": 7}', b"[" * 100_000, b"7" * 5_000]
)
def test_invalid_replies_are_rejected_or_retried(
    ledger: Ledger, status: int, content: bytes
) -> None:
    parties = Parties()
    parties.fail = lambda _: httpx.Response(status, content=content)
    Watched(parties, ledger).assert_rejects("coordinator", 1)
