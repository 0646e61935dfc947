"""A coordinator that announces masked or shuffled rounds weaker than its terms, or requests more
than one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.aggregation.rings import ring_session

from tacit.aggregation import (
    Binding,
    MaskingClient,
    MaskingPlan,
    MaskingRound,
    MaskingServer,
    MaskingSession,
    Neighbourhood,
    Rejected,
    RoundOutcome,
    ServerKeys,
    ShuffleRole,
    ShufflerSession,
    SumView,
    announce,
    masking_outcome,
    neighbourhood,
    shuffler_outcome,
    wrap,
)
from tacit.aggregation.agreement import new_key, public_bytes
from tacit.aggregation.announcements import endorse, endorse_offer
from tacit.aggregation.interface import new_identity
from tacit.aggregation.masking import FORMAT
from tacit.aggregation.masking_server import MaskingStage, prepare_server
from tacit.aggregation.rehearsal import Rehearsal, rehearse
from tacit.aggregation.two_servers import read_outcome
from tacit.aggregation.wire import HEADER_SIZE
from tacit.errors import TacitError
from tacit.records import MemoryRecords
from tacit.terms import Aggregation, Noise
from tacit.trust import TrustModel

TENTH = Fraction(1, 10)
BROUGHT = Noise(Fraction(1), "devices", "rehearsed")


def untouched(size: int) -> bytes:
    raise AssertionError(f"{size} random bytes were drawn for a round that should be rejected")


def thousand(claim: str = "semi-honest", minimum: int = 900) -> tuple[Rehearsal, MaskingRound]:
    """Terms for rounds of a thousand of whom a tenth may be corrupt, and a round that keeps to
    them.
    """
    about = Aggregation(minimum, 1 - Fraction(minimum, 1000), 0, TENTH, claim)
    terms = rehearse(TrustModel.SECURE_AGGREGATION, about, noise=BROUGHT)
    among = neighbourhood(1000, minimum)
    key = public_bytes(new_key())
    announced = MaskingRound(terms.binding, new_identity(), 1000, minimum, 1_000_003, 1, among, key)
    return terms, announced


def offered(terms: Rehearsal, announced: MaskingRound) -> MaskingClient:
    signed = terms.announced(announced.encode())
    return MaskingClient(terms.pinned, signed, source=untouched)


def test_the_unchanged_round_is_joined() -> None:
    terms, announced = thousand()
    with pytest.raises(AssertionError, match="random bytes were drawn"):
        offered(terms, announced)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"minimum": 2}, "minimum batch size of 900"),
        ({"minimum": 899}, "minimum batch size of 900"),
        ({"neighbourhood": Neighbourhood(2, 2)}, "0.0 bits"),
        ({"neighbourhood": Neighbourhood(21, 11)}, "at least 40 bits"),
        ({"neighbourhood": Neighbourhood(52, 28)}, "38.4 bits"),
        ({"neighbourhood": Neighbourhood(65535, 40000)}, "degree of the round is 65535"),
        ({"modulus": 1000}, "modulus of the round is 1000"),
        ({"length": 2}, "number of metrics"),
        ({"slots": 2000}, "must be at least 1800"),
    ],
)
def test_a_weaker_round_is_rejected_before_any_randomness_is_drawn(
    change: dict[str, Any], reason: str
) -> None:
    terms, announced = thousand()
    with pytest.raises(Rejected, match=reason):
        offered(terms, replace(announced, **change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"terms": bytes(32)}, "as in the terms"),
        ({"option": 2}, "option of the round is 2"),
        ({"levels": 2}, "number of levels"),
        ({"window": 7}, "observation window"),
        ({"closes": 0}, "within the days"),
    ],
)
def test_another_experiment_question_or_window_is_rejected(
    change: dict[str, Any], reason: str
) -> None:
    terms, announced = thousand()
    binding: Binding = replace(announced.binding, **change)
    with pytest.raises(Rejected, match=reason):
        offered(terms, replace(announced, binding=binding))


def test_a_party_signs_no_weaker_round_and_none_with_foreign_keys() -> None:
    terms, announced = thousand()
    signature = endorse_offer(terms.pinned, announced, terms.keys[0])
    assert announced.encode() + signature == terms.announced(announced.encode())
    with pytest.raises(Rejected, match="minimum batch size of 900"):
        endorse_offer(terms.pinned, replace(announced, minimum=899), terms.keys[0])
    with pytest.raises(TacitError, match="must be the long-term key of a party"):
        endorse_offer(terms.pinned, announced, Ed25519PrivateKey.generate())


def test_a_server_signs_no_round_with_too_few_security_bits() -> None:
    terms, announced = thousand()
    store = MemoryRecords()
    announced = replace(announced, server=prepare_server(store, announced.identity))
    weaker = replace(announced, neighbourhood=Neighbourhood(52, 28), identity=new_identity())
    weaker = replace(weaker, server=prepare_server(store, weaker.identity))
    assert MaskingServer(announced, store).endorse(terms.pinned, terms.keys[0])
    with pytest.raises(Rejected, match=r"38\.4 bits"):
        MaskingServer(weaker, store).endorse(terms.pinned, terms.keys[0])


@pytest.mark.parametrize("change", [{"levels": 0}, {"option": -1}, {"closes": 1 << 64}])
def test_out_of_range_numbers_of_a_description_are_rejected(change: dict[str, Any]) -> None:
    _, announced = thousand()
    with pytest.raises(TacitError, match=r"(levels|option|deadline) is"):
        replace(announced.binding, **change)


def test_a_round_of_another_format_is_rejected_with_a_remedy() -> None:
    _, announced = thousand()
    description = bytearray(announced.encode())
    assert description[HEADER_SIZE] == FORMAT
    description[HEADER_SIZE] -= 1
    with pytest.raises(Rejected, match="Update the older side"):
        MaskingRound.decode(bytes(description))


def test_a_threshold_of_the_weaker_claim_is_rejected_under_the_stronger() -> None:
    terms, announced = thousand("two-fates")
    with pytest.raises(Rejected, match=r"0.0 bits \(two-fates"):
        offered(terms, announced)
    strong = replace(announced, neighbourhood=Neighbourhood(115, 79))
    with pytest.raises(AssertionError, match="random bytes were drawn"):
        offered(terms, strong)


def test_a_low_minimum_is_rejected_with_a_threshold_for_a_high_one() -> None:
    terms, announced = thousand(minimum=400)
    lazy = replace(announced, neighbourhood=neighbourhood(1000, 900))
    with pytest.raises(Rejected, match="at least 40 bits"):
        offered(terms, lazy)


def test_a_round_that_the_pinned_party_did_not_sign_is_rejected() -> None:
    terms, announced = thousand()
    description = announced.encode()
    forged = endorse(description, Ed25519PrivateKey.generate())
    for message in (
        announce(description, [forged]),
        announce(description, []),
        terms.announced(description)[:-1] + b"\xff",
        terms.announced(replace(announced, minimum=901).encode())[:-64] + forged,
    ):
        with pytest.raises(Rejected):
            MaskingClient(terms.pinned, message, source=untouched)


def test_a_coordinator_posing_as_analyzer_decrypts_nothing() -> None:
    """Keys of its own in the place of another party's: the other party did not sign them."""
    session = ShufflerSession(4, 3)
    own = replace(session.round, analyzer=ServerKeys.new().public()).encode()
    shuffling, _ = session.rehearsal.keys
    own_signature = endorse(own, shuffling)
    for signatures in ([own_signature], [own_signature] * 2, [own_signature, bytes(64)]):
        with pytest.raises(Rejected):
            wrap(session.pinned, announce(own, signatures), [b"x"], source=untouched)
    weaker = session.rehearsal.announced(replace(session.round, minimum=1).encode())
    with pytest.raises(Rejected, match="minimum batch size of 3"):
        wrap(session.pinned, weaker, [b"x"], source=untouched)


def test_a_party_signs_one_description_per_round() -> None:
    session, mixing = MaskingSession([1, 2, 3], MaskingPlan(3, 100)), ShufflerSession(4, 3)
    with pytest.raises(Rejected, match="a round has one description"):
        MaskingServer(replace(session.server.round, modulus=101), session.store)
    for party in (type(mixing.shuffler), type(mixing.analyzer)):
        with pytest.raises(Rejected, match="a round has one description"):
            party(replace(mixing.round, size=2), mixing.store)


def test_a_party_signs_no_second_description_after_the_round() -> None:
    """Participants would report to a round that nobody opens, and be told that it was released."""
    session, mixing = MaskingSession([1, 2, 3], MaskingPlan(3, 100)), ShufflerSession(4, 2)
    for message in (b"a", b"b"):
        mixing.shuffler.take(mixing.wrap([message]))
    mixing.shuffler.close()
    mixing.shuffler.forget()
    for party in (session.server, mixing.analyzer):
        party.abort()
    weaker, other = replace(session.server.round, modulus=101), replace(mixing.round, slots=9)
    with pytest.raises(Rejected, match="a round has one description"):
        MaskingServer(weaker, session.store)
    said = masking_outcome(weaker, session.store, session.rehearsal.keys[0])
    assert read_outcome(session.pinned, weaker, said) == (0, RoundOutcome.UNKNOWN)
    for number, role in enumerate(ShuffleRole):
        with pytest.raises(Rejected, match="a round has one description"):
            type((mixing.shuffler, mixing.analyzer)[number])(other, mixing.store)
        said = shuffler_outcome(other, mixing.store, role, mixing.rehearsal.keys[number])
        assert read_outcome(mixing.pinned, other, said) == (number, RoundOutcome.UNKNOWN)


def carried_to(stage: MaskingStage, session: MaskingSession, without: tuple[int, ...] = ()) -> None:
    for name, reached in (("join", MaskingStage.SHARING), ("share", MaskingStage.MASKING)):
        getattr(session, name)()
        if reached is stage:
            return
    session.mask(without)


def test_a_restored_server_never_asks_for_the_shares_of_other_survivors() -> None:
    """The difference of two requests would unmask a client that is in one of them: the copy from
    before the first request gives the same one or none, whatever it is fed.
    """
    session = ring_session(list(range(6)), 4, 100, Neighbourhood(5, 3))
    carried_to(MaskingStage.MASKING, session)
    session.check()
    before, pairs = session.server.save(), session.outgoing
    masked = [
        client.mask(pairs[client.address], [place]) for place, client in enumerate(session.clients)
    ]
    for message in masked[:5]:
        session.server.take(message)
    requests = session.server.close(MaskingStage.MASKING)
    for held in (masked[1:5], masked[:4]):
        copy = MaskingServer.restore(before, session.store)
        for message in held:
            copy.take(message)
        with pytest.raises(Rejected, match="server lacks"):
            copy.close(MaskingStage.MASKING)
    with pytest.raises(Rejected, match="too late"):
        copy.take(masked[5])
    copy.take(masked[4])
    assert copy.close(MaskingStage.MASKING) == requests
    session.outgoing = requests
    session.reveal()
    assert session.server.view() == SumView((10,), 5)


def test_a_server_without_its_record_reveals_nothing() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    carried_to(MaskingStage.MASKING, session)
    with pytest.raises(Rejected, match="is unknown"):
        MaskingServer.restore(session.server.save(), MemoryRecords())


def test_a_recreated_shuffler_forwards_the_first_batch_only() -> None:
    """Two batches of one round would tell by their difference who came in between."""
    session = ShufflerSession(4, 2)
    early = session.shuffler.save()
    for message in (b"a", b"b", b"c"):
        session.shuffler.take(session.wrap([message]))
    first = session.shuffler.close()
    remade: list[Callable[[], Any]] = [
        lambda: type(session.shuffler)(session.round, session.store),
        lambda: type(session.shuffler).restore(early, session.store),
    ]
    for make in remade:
        shuffler = make()
        with pytest.raises(Rejected, match="over"):
            shuffler.take(session.wrap([b"d"]))
        assert shuffler.close() == first
