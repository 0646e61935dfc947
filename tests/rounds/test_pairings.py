"""Every protocol through every matching aggregation: releases equal the ideal functionality, small
rounds release nothing, mismatches are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.protocols.examples import CASES, sent, separate
from tests.protocols.test_every_protocol import concrete
from tests.rounds.examples import EXAMPLES, Example
from tests.tables import each_row

from tacit.aggregation import (
    Dropouts,
    HpkeSuite,
    Neighbourhood,
    Rejected,
    ShuffledView,
    SumView,
    run_shuffler,
    run_two_servers,
)
from tacit.errors import TacitError
from tacit.privacy import PureDP
from tacit.protocols import factories
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.joint import JointSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.vectors import SeparateSums
from tacit.rounds import FITS, UNCARRIED, aggregate, codec, minimum, payload, released, run_round
from tacit.rounds.round_runner import RUNS

AMONG = Neighbourhood(7, 4)  # everybody's neighbours are all others: any four of them suffice


def ways(protocol: Any) -> tuple[str, ...]:
    """The aggregations of a protocol; several metrics use those of their part."""
    return FITS[type(getattr(protocol, "part", protocol))][0]


WAYS = {name: ways(example.build()) for name, example in EXAMPLES.items()}
PAIRINGS = [(name, way) for name in EXAMPLES for way in WAYS[name]]
MISFITS = [(name, way) for name in EXAMPLES for way in RUNS if way not in WAYS[name]]
EACH = pytest.mark.parametrize(("name", "through"), PAIRINGS)


@pytest.fixture(autouse=True)
def proofs(request: pytest.FixtureRequest) -> None:
    """Verified sums need an extra."""
    called = getattr(request.node, "callspec", None)
    if called is not None and called.params.get("through") == "verified":
        pytest.importorskip("Crypto", reason="needs pycryptodome: pip install '.[verified]'")


def started(name: str) -> tuple[Protocol, list[Any]]:
    """A protocol and the messages of all its participants."""
    example: Example = EXAMPLES[name]
    protocol = example.build()
    return protocol, sent(protocol, [example.report(i) for i in range(protocol.participants)])


def how(through: str, gone: range | tuple[int, ...]) -> dict[str, Any]:
    """Those participants reach no server, or one of two."""
    lost: dict[str, dict[str, Any]] = {
        "masking": {"dropouts": Dropouts(mask=gone), "among": AMONG},
        "two-servers": {"lost": (gone, ())},
        "mixing": {"lost": gone},
        "verified": {"lost": (gone, ())},
    }
    return lost[through]


def test_every_protocol_is_listed_with_its_aggregation_or_none() -> None:
    assert concrete(Protocol) == set(FITS) | set(UNCARRIED)
    assert not set(FITS) & set(UNCARRIED)


def test_every_pairing_is_tested() -> None:
    assert {type(example.build()) for example in EXAMPLES.values()} == set(FITS)
    assert {way for ways, _ in FITS.values() for way in ways} == set(RUNS)


@EACH
def test_released_sums_match_the_ideal_functionality(
    name: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intermediary is opened for all participants and for the minimum."""
    asked: list[dict[str, Any]] = []

    def listening(reports: Any, **settings: Any) -> Any:
        asked.append({"reports": len(reports), **settings})
        return run(reports, **settings)

    run = RUNS[through]
    monkeypatch.setitem(RUNS, through, listening)
    protocol, messages = started(name)
    ideal = protocol.combine(messages)
    assert ideal.reports == protocol.participants
    real = aggregate(protocol, messages, through)
    assert real == ideal
    assert all(type(value) is int for value in real.values)
    (settings,) = asked
    fewest = 2 if through == "masking" and protocol.minimum == 1 else protocol.minimum
    assert settings["minimum"] == fewest
    assert settings["participants"] == settings["reports"] == protocol.participants
    named = None if through in ("mixing", "verified") else modulus(protocol)
    assert settings.get("modulus") == named


@EACH
def test_devices_and_servers_share_their_codecs(name: str, through: str) -> None:
    """As a live service does: only payloads and the view pass between them.

    Payloads are all of one size: what is sent must not tell groups or values apart.
    """
    protocol, messages = started(name)
    payloads: list[Any] = [payload(protocol, message, through) for message in messages]
    assert len({len(one) for one in payloads}) == 1
    if through == "mixing":
        assert len({len(part) for one in payloads for part in one}) == 1
    way = codec(protocol, through)
    view = RUNS[through](payloads, minimum=minimum(protocol, through), **way.settings)
    assert released(EXAMPLES[name].build(), view, through) == protocol.combine(messages)


def modulus(protocol: Any) -> int:
    return int(getattr(getattr(protocol, "part", protocol), "modulus", 1 << 64))


@EACH
def test_one_report_fewer_than_the_minimum_releases_nothing(name: str, through: str) -> None:
    """Whether the others never came, or fell silent on the way."""
    protocol, messages = started(name)
    fewest = minimum(protocol, through)
    if fewest > 1:
        with pytest.raises(Rejected, match=rf"(at least|size is) {fewest}"):
            aggregate(protocol, messages[: fewest - 1], through)
        gone = range(fewest - 1, protocol.participants)
        with pytest.raises(Rejected, match=rf"(at least|size is) {fewest}|neighbours"):
            aggregate(protocol, messages, through, **how(through, gone))
    with pytest.raises(TacitError, match=r"the round is aborted|nothing is released"):
        aggregate(protocol, [], through)
    with pytest.raises(TacitError, match=r"over the \d+ that the protocol was built for"):
        aggregate(protocol, [*messages, messages[0]], through)


@EACH
def test_a_server_itself_rejects_a_view_below_the_minimum(name: str, through: str) -> None:
    """Also if an intermediary were to open it."""
    protocol, messages = started(name)
    few = messages[: protocol.minimum - 1]
    if not few:
        return
    payloads: Any = [payload(protocol, message, through) for message in few]
    view: Any = (
        run_shuffler(payloads, minimum=1)
        if through == "mixing"
        else run_two_servers(payloads, modulus(protocol), minimum=1)
    )
    with pytest.raises(TacitError, match=r"below the \d+|the round is aborted"):
        released(protocol, view, through)


@pytest.mark.parametrize(
    ("name", "through"),
    [(n, t) for n, t in PAIRINGS if (p := EXAMPLES[n].build()).minimum < p.participants],
)
def test_dropouts_within_the_stated_fraction_are_tolerated(name: str, through: str) -> None:
    protocol, messages = started(name)
    gone = (1, protocol.participants - 1)
    arrived = [message for place, message in enumerate(messages) if place not in gone]
    real = aggregate(protocol, messages, through, **how(through, gone))
    assert real == protocol.combine(arrived)
    assert real.reports == protocol.participants - 2
    assert protocol.analyze(real).error.participants == protocol.participants - 2
    assert aggregate(protocol, messages[:-1], through).reports == protocol.participants - 1


@EACH
def test_an_estimate_through_cryptography_states_its_guarantee(name: str, through: str) -> None:
    protocol = EXAMPLES[name].build()
    reports = [EXAMPLES[name].report(place) for place in range(protocol.participants)]
    estimate = run_round(protocol, reports, through)
    assert protocol.guarantee is not None
    assert estimate.guarantee_id == protocol.guarantee_id == protocol.guarantee.digest
    assert np.size(estimate.total) == protocol.coordinates
    assert estimate.error.participants == protocol.participants


@each_row(("name", "through"), MISFITS)
def test_a_mismatched_protocol_is_rejected_with_a_matching_aggregation(
    name: str, through: str
) -> None:
    protocol, messages = started(name)
    right = " and ".join(ways(protocol))
    part = getattr(protocol, "part", protocol)
    rejection = rf"{type(part).__name__} does not fit {through}: it fits {right}. "
    for attempt in (
        lambda: aggregate(protocol, messages, through),
        lambda: payload(protocol, messages[0], through),
        lambda: released(protocol, SumView((0,), protocol.participants), through),
    ):
        with pytest.raises(TacitError, match=rejection + rf"{through} takes \w+, "):
            attempt()


@each_row("through", RUNS)
@each_row("name", [n for n, case in CASES.items() if type(case.build()) in UNCARRIED])
def test_protocols_without_an_aggregation_say_why(name: str, through: str) -> None:
    protocol = CASES[name].build()
    with pytest.raises(TacitError, match=rf"does not fit {through}: (its|each)"):
        payload(protocol, 0, through)
    if not isinstance(protocol, SeparateSums):
        with pytest.raises(TacitError, match=type(protocol).__name__):
            aggregate(protocol, [], through)


def test_an_unknown_aggregation_or_protocol_is_rejected() -> None:
    protocol, messages = started("secure-sum")
    with pytest.raises(TacitError, match="must be one of masking, two-servers, mixing"):
        aggregate(protocol, messages, "post")

    class Strange:
        pass

    with pytest.raises(TacitError, match="Strange has no codec: add it"):
        codec(Strange(), "mixing")  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", ["gaussian", "none"])
def test_prefix_sums_of_real_numbers_are_rejected_with_a_remedy(noise: Any) -> None:
    from tacit.protocols.factorization import factorize
    from tacit.protocols.prefix_sums import PrefixRound, PrefixSums

    trust: Any = "silo" if noise == "gaussian" else "none"
    sums = PrefixSums(factorize("tree", 2), 4, 3, 1.5, trust, noise, 1.0)
    for through in ("masking", "two-servers"):
        with pytest.raises(TacitError, match="Use discrete-gaussian or skellam"):
            aggregate(PrefixRound(sums, 0, {}, {}, None), [np.zeros(3)] * 4, through)


@pytest.mark.parametrize("through", ["masking", "two-servers"])
def test_separate_sums_are_aggregated_one_by_one(through: str) -> None:
    protocol = separate()
    reports = [(0, 1.0)] * 5 + [(2, -1.0)] * 4 + [(1, 1.0)] * 3
    messages = sent(protocol, reports)
    assert aggregate(protocol, messages, through) == protocol.combine(messages)
    with pytest.raises(TacitError, match="below the 3 that the guarantee needs"):
        aggregate(protocol, messages[:-1], through)  # before any of the sums was released
    with pytest.raises(TacitError, match="coordinate is 7: must be 0 to 2"):
        aggregate(protocol, [*messages, (7, messages[0][1])], through)
    with pytest.raises(TacitError, match="SecureVector does not fit mixing"):
        aggregate(protocol, messages, "mixing")


@pytest.mark.parametrize("name", ["secure-vector", "prefix-sums"])
def test_a_message_of_another_length_is_rejected_on_the_device(name: str) -> None:
    protocol, messages = started(name)
    with pytest.raises(TacitError, match=r"the message has 2 numbers: .* sends 3"):
        payload(protocol, messages[0][:2], "two-servers")


@pytest.mark.parametrize("name", ["split-and-mix", "shuffled-bits", "shuffled-vector"])
def test_a_message_with_a_missing_part_is_rejected_on_the_device(name: str) -> None:
    protocol, messages = started(name)
    with pytest.raises(TacitError, match=r"has \d+ numbers: \w+ sends"):
        payload(protocol, messages[0][:-1], "mixing")


# Views that honest devices do not make


def view_of(name: str) -> tuple[Protocol, ShuffledView]:
    protocol, messages = started(name)
    parts: list[Any] = [part for m in messages for part in payload(protocol, m, "mixing")]
    return protocol, ShuffledView(tuple(parts), len(messages), 0)


@pytest.mark.parametrize("name", ["split-and-mix", "shuffled-ball", "pure-shuffle"])
def test_an_invalid_message_aborts_sums_of_shares_and_certified_groups(name: str) -> None:
    protocol, view = view_of(name)
    with pytest.raises(TacitError, match=r"the round is aborted|nothing is released"):
        released(protocol, replace(view, messages=view.messages[1:], invalid=1), "mixing")
    nonsense = b"\xff" * len(view.messages[0])
    with pytest.raises(TacitError, match=r"the round is aborted|nothing is released"):
        released(protocol, replace(view, messages=(nonsense, *view.messages[1:])), "mixing")


@pytest.mark.parametrize("name", ["shuffled-bits", "shuffled-vector"])
def test_an_invalid_bit_counts_as_a_zero_of_its_sender(name: str) -> None:
    protocol, view = view_of(name)
    whole = released(protocol, view, "mixing")
    first = view.messages.index(b"\x01")  # a one of the first coordinate
    rest = view.messages[:first] + view.messages[first + 1 :]
    for messages in (rest, (*rest, b"\xff")):
        less = released(protocol, replace(view, messages=messages, invalid=1), "mixing")
        assert less.values == (whole.values[0] - 1, *whole.values[1:])
        assert less.reports == whole.reports


def test_a_bit_under_another_label_counts_there() -> None:
    protocol, view = view_of("shuffled-vector")
    whole = released(protocol, view, "mixing")
    moved = view.messages.index(
        b"\x02"
    )  # a zero of the second coordinate becomes a one of the first
    messages = (*view.messages[:moved], b"\x01", *view.messages[moved + 1 :])
    more = released(protocol, replace(view, messages=messages), "mixing")
    assert more.values == (whole.values[0] + 1, *whole.values[1:])


@pytest.mark.parametrize("name", ["shuffled-vector", "joint-bits"])
def test_ones_under_a_label_are_counted_beyond_the_number_of_reports(name: str) -> None:
    protocol, view = view_of(name)
    messages = (b"\x01",) * len(view.messages)
    most = released(protocol, replace(view, messages=messages), "mixing")
    assert most.reports == view.reports
    ones = len(messages) // protocol.coordinates
    assert most.values == (ones, *[0] * (protocol.coordinates - 1))


NONSENSE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "no-number": lambda honest: [b"\xff" * len(part) for part in honest],
    "one-label": lambda honest: [bytes(len(part) - 1) + b"\x01" for part in honest],
    "zeros-of-one-label": lambda honest: [bytes(len(part)) for part in honest],
}


@pytest.mark.parametrize("lie", NONSENSE)
@pytest.mark.parametrize("name", ["shuffled-bits", "shuffled-vector", "joint-bits"])
def test_one_invalid_report_aborts_no_shuffled_round_of_bits(name: str, lie: str) -> None:
    """Through real mixing: what is released differs from the others' ones by no more than the
    attacker's bits, which were all under one label.
    """
    protocol, messages = started(name)
    honest: list[Any] = [payload(protocol, message, "mixing") for message in messages]
    false = NONSENSE[lie](honest[-1])
    view = run_shuffler([*honest[:-1], false], protocol.minimum)
    found = released(protocol, view, "mixing")
    without = ShuffledView(
        tuple(part for report in honest[:-1] for part in report), len(messages), 0
    )
    others = released(protocol, without, "mixing")
    first, *rest = [a - b for a, b in zip(found.values, others.values, strict=True)]
    assert found.reports == len(messages)
    assert 0 <= first <= (len(false) if lie == "one-label" else 0)
    assert not any(rest)


def test_an_invalid_part_of_several_metrics_is_rejected_with_a_message() -> None:
    protocol = JointSums(PureShuffle(7, 2.0, participations=2), 2)
    reports = [payload(protocol, protocol.report([1, 0], i), "mixing") for i in range(7)]
    parts: list[Any] = [part for report in reports for part in report]
    view = ShuffledView(tuple(parts[len(reports[0]) // 2 :]), 7, 0)
    with pytest.raises(Rejected, match="246 of 287 bits arrived, so the round is aborted"):
        released(protocol, view, "mixing")


@pytest.mark.parametrize("name", ["secure-sum", "split-and-mix"])
def test_the_hybrid_suite_releases_the_same_sum(name: str) -> None:
    protocol, messages = started(name)
    through = "mixing" if name == "split-and-mix" else "two-servers"
    real = aggregate(protocol, messages, through, suite=HpkeSuite.HYBRID)
    assert real == protocol.combine(messages)


@pytest.mark.parametrize("clients", [20, 64, 100])
@pytest.mark.parametrize(
    "make", [factories.response, partial(factories.local_laplace, paper=False)]
)
def test_locally_private_messages_pass_masking_in_rounds_of_any_size(
    make: Callable[[int, PureDP], SumProtocol], clients: int
) -> None:
    """Such a protocol needs no minimum batch size; masking needs more than may be corrupted."""
    protocol = make(clients, PureDP(1.0))
    assert protocol.minimum == 1
    least = minimum(protocol, "masking")
    assert clients // 10 < least < clients
    messages = [protocol.randomize(1.0) for _ in range(clients)]
    gone = frozenset(range(clients - least))  # as many as may be missing
    found = aggregate(protocol, messages[len(gone) :], "masking")
    expected = protocol.combine(messages[len(gone) :])
    assert (found.values, found.reports) == (expected.values, least)
