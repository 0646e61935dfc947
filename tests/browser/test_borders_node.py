"""The browser's device at the borders of what terms allow, in Node: the verdicts of Python.

The noise of every metric is drawn anew, from the browser's randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.browser.make_vectors import (
    described,
    local_terms,
    shuffler_terms,
    verdict,
)
from tests.browser.test_vectors_node import NODE, node
from tests.service.parties import GRACE, JOINING, KEYS, MARGIN, START, pinned, terms
from tests.service.test_local import unlike
from tests.terms.mutations import mutated

from tacit.aggregation import Binding, announce
from tacit.aggregation.announcements import SharedNoise, endorse
from tacit.aggregation.local import LocalRound, LocalServer, endorse_local, prepare_local
from tacit.aggregation.shuffler import (
    ID_SIZE,
    Shuffler,
    ShuffleRole,
    ShufflerRound,
    _inner_info,
    party_keys,
    prepare_party,
)
from tacit.aggregation.two_servers import SLOT
from tacit.aggregation.verified import MODULUS
from tacit.client.trust_models.local import LocalReporter
from tacit.client.trust_models.shuffler import ShufflerReporter
from tacit.contextual.policies import LinearPolicy
from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace
from tacit.records import MemoryRecords
from tacit.terms import (
    BY_POLICY,
    Aggregation,
    Answer,
    ContextField,
    Noise,
    StatedGuarantee,
    Terms,
)
from tacit.terms.context import MomentTerms, NumberField
from tacit.terms.parts import BINOMIAL, DISCRETE_GAUSSIAN, RANDOMIZED_RESPONSE

ALARM = 1e-6
IDENTITY, TOKEN = bytes(range(16)), bytes(16)
SLOT_ZERO = (bytes(4) + TOKEN).hex()
pytestmark = pytest.mark.skipif(NODE is None, reason="the browser's device needs Node.js")


def binding(of: Terms) -> Binding:
    closes = int(START) + JOINING + of.answer.window + MARGIN
    return Binding(of.digest, 0, of.answer.levels, of.answer.window, closes)


def local_model(metrics: int, levels: int, epsilon: int, response: bool) -> Terms:
    scale = Fraction(levels * metrics, epsilon)
    name = RANDOMIZED_RESPONSE if response else next(local_terms()).noise.distribution
    return replace(
        next(local_terms()),
        answer=Answer("x", tuple("abc"[:metrics]), levels, 60),
        guarantee=StatedGuarantee(Fraction(epsilon)),
        noise=Noise(scale, "devices", name),
    )


def local_round(of: Terms) -> tuple[LocalServer, dict[str, Any]]:
    """The server of a round under these terms, and what a device is given of it."""
    records, whole = MemoryRecords(), pinned(of)
    made = LocalRound(
        binding(of),
        slots=10,
        minimum=1,
        server=prepare_local(records, IDENTITY, LocalRound.suite),
        margin=400,
        length=len(of.answer.metrics),
        noise=SharedNoise(1, of.noise.scale),
        assigned_until=int(START) + JOINING,
        grace=GRACE,
        identity=IDENTITY,
    )
    signature = endorse_local(whole, records, made.encode(), KEYS[0])
    announcement = announce(made.encode(), (signature,))
    server = LocalServer(whole, announcement, records, {}, KEYS[0])
    return server, {"terms": of.encode().decode(), "announcement": announcement.hex()}


def local_numbers(of: Terms, values: Sequence[Sequence[int]]) -> list[list[int]]:
    """The numbers in reports of these levels from JavaScript, as the server decodes them."""
    server, given = local_round(of)
    (slot,) = server.slots([0])
    given |= {"places": [slot.encode().hex()] * len(values), "values": [*map(list, values)]}
    found = []
    for (report,) in node("halves", given):
        checked = server.check(bytes.fromhex(report), int(START))
        read = server._open().numbers(checked.name, checked.wrapped)
        assert read is not None
        found.append(read)
    return found


def test_every_metric_is_flipped_on_its_own_at_its_part_of_epsilon() -> None:
    """Two metrics share ε = 6; a false alarm in a million runs."""
    of = local_model(2, 1, 6, response=True)
    found = local_numbers(of, [(0, 1)] * 1000)
    flips = [(one, 1 - other) for one, other in found]
    chance = 1 / (1 + 2.718281828459045**3)
    for place in (0, 1):
        assert stats.binomtest(sum(pair[place] for pair in flips), 1000, chance).pvalue > ALARM
    both = np.array([[flips.count((a, b)) for b in (0, 1)] for a in (0, 1)])
    assert stats.fisher_exact(both).pvalue > ALARM, "one coin for all metrics"
    assert found[:300] != local_numbers(of, [(0, 1)] * 300), "the same coins in another process"


def test_every_metric_has_laplace_noise_of_its_own() -> None:
    of = local_model(3, 2, 2, response=False)
    found = [[one - 1 for one in numbers] for numbers in local_numbers(of, [(1, 1, 1)] * 600)]
    for place in range(3):
        drawn = [numbers[place] for numbers in found]
        assert not unlike(drawn, DiscreteLaplace(of.noise.scale))
        assert unlike(drawn, DiscreteLaplace(of.noise.scale / 2))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert sum(numbers[one] == numbers[other] for numbers in found) < 200, "one draw for all"


def test_rounds_of_the_local_model_with_just_enough_noise_get_the_verdict_of_python() -> None:
    """Metrics, levels and participations share ε."""
    base = local_model(3, 2, 1, response=False)
    several = replace(
        base,
        guarantee=StatedGuarantee(Fraction(1, 3), participations=4),
        noise=Noise(Fraction(72), "devices"),
    )
    bits = replace(
        local_model(2, 1, 1, response=True),
        guarantee=StatedGuarantee(Fraction(7, 3), participations=3),
        noise=Noise(Fraction(18, 7), "devices", RANDOMIZED_RESPONSE),
    )
    cases, expected = [], list[str | None]()
    for of in (several, bits):
        server, given = local_round(of)
        for noise in (
            SharedNoise(1, of.noise.scale),
            SharedNoise(1, of.noise.scale * 2),
            SharedNoise(1, of.noise.scale - Fraction(1, 10**30)),
            SharedNoise(2, of.noise.scale),
        ):
            body = replace(server.round, noise=noise).encode()
            whole = announce(body, [endorse(body, KEYS[0])])
            cases.append(given | {"announcement": whole.hex(), "now": START})
            try:
                found = LocalReporter().announced(pinned(of), whole)
                expected.append(str(LocalReporter().cost(pinned(of), found)))
            except TacitError:
                expected.append(None)
    assert expected == ["1/12", "1/12", None, None, "7/9", "7/9", None, None]
    assert node("verdicts", {"rounds": cases})["costs"] == expected


# Noise bits


NOBODY = Aggregation(10)  # is missing or dishonest


@dataclass(frozen=True)
class Bits:
    """Terms and a round of noise bits, but for how many."""

    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(1, 10**6)
    participations: int = 1
    metrics: int = 1
    levels: int = 1
    tolerated: Aggregation = NOBODY
    slots: int = 50
    bias: Fraction = Fraction(1, 2)
    least: Fraction = Fraction(1, 100)

    @property
    def terms(self) -> Terms:
        return shuffler_terms(
            answer=Answer("x", tuple("abc"[: self.metrics]), self.levels, 60),
            guarantee=StatedGuarantee(self.epsilon, self.delta, self.participations),
            noise=Noise(self.least, "devices", BINOMIAL),
            aggregation=self.tolerated,
        )

    @property
    def minimum(self) -> int:
        return self.slots - self.tolerated.missing(self.slots)

    @property
    def honest(self) -> int:
        return self.minimum - self.tolerated.dishonest(self.slots)

    def round(self, bits: int, keys: tuple[bytes, bytes], **changed: Any) -> ShufflerRound:
        divisor = changed.pop("divisor", self.honest)
        made = ShufflerRound(
            binding(self.terms),
            self.slots,
            self.minimum,
            size=1,
            shuffler=keys[0],
            analyzer=keys[1],
            messages=(bits + self.levels) * self.metrics,
            metrics=self.metrics,
            noise=SharedNoise(divisor, self.bias),
            assigned_until=int(START) + JOINING,
            grace=GRACE,
            identity=IDENTITY,
        )
        return replace(made, **changed)


def kept() -> tuple[MemoryRecords, tuple[bytes, bytes]]:
    """Records of both parties of a round, and their public keys."""
    records = MemoryRecords()
    shuffler = prepare_party(records, ShuffleRole.SHUFFLER, IDENTITY)
    return records, (shuffler, prepare_party(records, ShuffleRole.ANALYZER, IDENTITY))


def signed(of: Terms, body: bytes) -> bytes:
    keys = {party.key: key for party, key in zip(terms().parties, KEYS, strict=False)}
    return announce(body, [endorse(body, keys[key]) for key in of.keys])


TOLERATED = Aggregation(10, Fraction(1, 5), 2, Fraction(1, 10))
FEW = Aggregation(10, Fraction(1, 3), 9, Fraction(1, 10))
BORDERS = (
    Bits(),
    Bits(bias=Fraction(1, 100)),
    Bits(bias=Fraction(99, 100)),
    Bits(participations=3),
    Bits(metrics=3),
    Bits(levels=4, epsilon=Fraction(3)),
    Bits(Fraction(7, 3), Fraction(1, 10**5), 2, 2, 3, TOLERATED, 61, Fraction(1, 3)),
    Bits(tolerated=FEW, slots=64, metrics=2),
    Bits(least=Fraction(900)),
    Bits(least=Fraction(2000, 3), tolerated=TOLERATED, bias=Fraction(1, 7)),
)


def python_verdict(of: Terms, announcement: bytes) -> str | None:
    model, whole = ShufflerReporter(), pinned(of)
    try:
        return str(model.cost(whole, model.announced(whole, announcement)))
    except TacitError:
        return None


def fewest(one: Bits, keys: tuple[bytes, bytes]) -> int:
    """The fewest noise bits per report and metric that a device in Python accepts."""
    whole = pinned(one.terms)

    def accepts(bits: int) -> bool:
        try:
            whole.check(one.round(bits, keys).offer())
        except TacitError:
            return False
        return True

    low, high = 0, 1
    while not accepts(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return high


def bit_rounds() -> Iterator[tuple[Terms, bytes]]:
    """Rounds with just enough noise bits, and with one thing too few."""
    _, keys = kept()
    for one in BORDERS:
        of, bits = one.terms, fewest(one, keys)
        for made in (
            one.round(bits, keys),
            one.round(bits - 1, keys),
            one.round(bits, keys, divisor=one.honest + 1),
            one.round(bits + 1, keys, divisor=one.honest + 1),
            one.round(2 * bits, keys, divisor=one.slots),
            one.round(2 * bits, keys, minimum=one.minimum - 1),
            one.round(2 * bits, keys, minimum=one.minimum - 1, divisor=one.honest - 1),
            one.round(2 * bits, keys, size=2),
            one.round(2 * bits, keys, modulus=3),
        ):
            yield of, signed(of, made.encode())


def test_rounds_with_just_enough_noise_bits_get_the_verdict_of_python() -> None:
    cases = [*bit_rounds()]
    expected = [python_verdict(of, announcement) for of, announcement in cases]
    accepted = [one.terms.cost for one in BORDERS]
    assert expected[:: len(cases) // len(BORDERS)] == [*map(str, accepted)]
    assert sum(cost is not None for cost in expected) in range(len(BORDERS), 2 * len(BORDERS))
    given = [
        {"terms": of.encode().decode(), "announcement": announcement.hex(), "now": START}
        for of, announcement in cases
    ]
    assert node("verdicts", {"rounds": given})["costs"] == expected


def test_messages_that_metrics_do_not_divide_are_rejected_as_in_python() -> None:
    """The browser's device raised another error, and asked for the same slot forever after."""
    one = Bits(metrics=3)
    _, keys = kept()
    made = one.round(fewest(one, keys), keys)
    body = made.encode()
    at = body.index(made.messages.to_bytes(4, "big") + (3).to_bytes(4, "big"))
    body = body[:at] + (made.messages + 1).to_bytes(4, "big") + body[at + 4 :]
    announcement = signed(one.terms, body)
    assert python_verdict(one.terms, announcement) is None
    text = one.terms.encode().decode()
    case = {"terms": text, "announcement": announcement.hex(), "now": START}
    assert node("verdicts", {"rounds": [case]})["costs"] == [None]


def test_shuffler_and_analyzer_with_a_common_key_are_rejected() -> None:
    one, (_, keys) = BORDERS[0], kept()
    shuffler, analyzer = keys
    body = one.round(fewest(one, keys), keys).encode()
    assert body.count(analyzer) == 1
    cases = [
        signed(one.terms, body.replace(analyzer, other))
        for other in (analyzer, analyzer[:32] + shuffler[32:], shuffler[:32] + analyzer[32:])
    ]
    expected = [python_verdict(one.terms, announcement) for announcement in cases]
    assert expected == ["1", None, None]
    given = [
        {"terms": one.terms.encode().decode(), "announcement": case.hex(), "now": START}
        for case in cases
    ]
    assert node("verdicts", {"rounds": given})["costs"] == expected


def test_every_metric_has_noise_bits_of_its_own() -> None:
    """Decrypted as both parties would; a false alarm in a million runs."""
    one = Bits(metrics=2, levels=2, bias=Fraction(1, 5), tolerated=TOLERATED)
    records, keys = kept()
    of, bits = one.terms, fewest(one, keys)
    made = one.round(bits, keys)
    given: dict[str, Any] = {
        "terms": of.encode().decode(),
        "announcement": signed(of, made.encode()).hex(),
        "places": [SLOT_ZERO] * 4,
        "values": [[0, 2]] * 4,
    }
    named, drawn = set[bytes](), list[tuple[int, int]]()
    secret = records.read(b"analyzer " + IDENTITY)
    assert secret is not None
    own = party_keys(secret[33:], IDENTITY, made.suite)
    assert own.public() == keys[1]
    for _ in range(2):  # processes
        shuffler = Shuffler(made, records)
        for _, report in node("halves", given):
            shuffler.take(bytes.fromhex(report)[SLOT.size :])
        for messages in shuffler._taken.values():
            opened = [own.encryption.decrypt(part, _inner_info(made.context)) for part in messages]
            named |= {part[:ID_SIZE] for part in opened}
            numbers = [part[ID_SIZE] for part in opened]
            assert sorted(number // 2 for number in numbers) == [0] * (bits + 2) + [1] * (bits + 2)
            drawn.append((numbers.count(1), numbers.count(3) - 2))
    assert len(named) == 2 * 4 * 2 * (bits + 2), "every message has a random id of its own"
    for ones in zip(*drawn, strict=True):
        assert stats.binomtest(sum(ones), len(drawn) * bits, float(one.bias)).pvalue > ALARM
    assert stats.pearsonr(*zip(*drawn, strict=True)).pvalue > ALARM, "one draw for all metrics"


# Randomness and terms


def test_noise_and_shares_take_the_browser_s_randomness() -> None:
    _, keys = kept()
    bits, two = Bits(metrics=2), Answer("x", ("a", "b"), 1, 60)
    scale = {"answer": two, "noise": Noise(Fraction(4))}
    plain, proven = terms(**scale), terms(**scale, proofs=1)
    wide = {"modulus": 1 << 300}
    noisy = bits.round(fewest(bits, keys), keys)
    cases: list[tuple[Terms, bytes]] = [
        (plain, described(plain).encode()),
        (plain, described(plain, **wide).encode()),
        (proven, described(proven, commitment=bytes(32), modulus=MODULUS).encode()),
    ]
    reports = [
        (of, announce(body, [endorse(body, key) for key in KEYS[:2]]).hex()) for of, body in cases
    ]
    reports.append((bits.terms, signed(bits.terms, noisy.encode()).hex()))
    for response in (True, False):
        of = local_model(2, 1, 1, response)
        reports.append((of, local_round(of)[1]["announcement"]))

    def given(values: list[Any]) -> dict[str, Any]:
        return {
            "reports": [
                {
                    "terms": of.encode().decode(),
                    "announcement": announcement,
                    "place": SLOT_ZERO,
                    "values": values,
                }
                for of, announcement in reports
            ]
        }

    words, ids = 32, 16 * noisy.messages  # of two shares; of every message
    least = [words + 2 * 3, words + 32, words + 2 * 32, ids + noisy.messages - 2, 16, 2 * 16]
    for found, needed in zip(node("randomness", given([0, 1])), least, strict=True):
        assert found >= needed
    for wrong in ([0], [0, 2], [0, -1], [0, 0.5], [0, 1, 1], [0, None], [0, "1"]):
        assert node("randomness", given(wrong)) == ["answer"] * len(reports)


def test_terms_that_only_their_distribution_forbids_are_rejected() -> None:
    response = local_model(1, 1, 1, response=True)
    enough = replace(response, noise=replace(response.noise, scale=Fraction(2), minimum=None))
    texts = [mutated(enough, ("answer", "levels"), 2)]
    texts += [mutated(shuffler_terms(), ("guarantee", "delta"), "0")]
    assert node("verdicts", {"texts": [enough.encode().decode(), *texts]})["digests"] == [
        enough.digest.hex(),
        None,
        None,
    ]


def test_rounds_of_two_servers_have_the_cost_computed_by_python() -> None:
    of = pinned(
        terms(
            answer=Answer("x", ("a", "b", "c"), 5, 60),
            guarantee=StatedGuarantee(Fraction(1, 3), participations=4),
            noise=Noise(Fraction(180)),
        )
    )
    cases = [
        verdict(of, announce(body, [endorse(body, key) for key in KEYS[:2]]))
        for scale in (Fraction(180), Fraction(1800, 7), 180 - Fraction(1, 10**40))
        for body in [described(of.terms, scale=scale).encode()]
    ]
    assert [one["cost"] for one in cases] == ["1/12", "7/120", None]
    assert node("verdicts", {"rounds": cases})["costs"] == [one["cost"] for one in cases]


# Moments


def moment_terms(resolution: int = 64, **changes: Any) -> Terms:
    """Devices choose by a category and a number; a fifth get an option at random."""
    old, new = ((1 << 19, 0, 0, 0), (0,) * 4), ((1 << 19, 0, 0, 0), (0, 1 << 17, 0, 1 << 17))
    fields = (
        ContextField("device", ("phone", "desktop")),
        NumberField("age", Fraction(18), Fraction(90)),
    )
    about: dict[str, Any] = {
        "answer": replace(terms().answer, levels=4),
        "guarantee": StatedGuarantee(Fraction(3, 2), Fraction(1, 10**6)),
        "context": MomentTerms(
            fields, matrices=(old, new), resolution=resolution, evaluation=Fraction(1, 5)
        ),
        "noise": Noise(Fraction(130_000), "servers", DISCRETE_GAUSSIAN),
    }
    return terms(**(about | changes))


def test_rounds_with_moments_get_the_verdict_and_the_cost_of_python() -> None:
    of = moment_terms()
    assert of.context is not None
    assert isinstance(of.context, MomentTerms)
    size = of.context.dimension
    policy = LinearPolicy((0.1,) * size, (((0.0,) * size,) * size,)).encode()
    largest = of.context.bounds()[1]
    chosen: dict[str, Any] = {
        "option": BY_POLICY,
        "policy": policy,
        "length": of.numbers(chosen=True),
        "scale": of.noise.scale,
        "modulus": 8 * largest + 1,
    }
    slice_: dict[str, Any] = {"option": 1, "scale": Fraction(8, 3)}
    tiny = Fraction(1, 10**30)
    cases = [
        verdict(pinned(of), announce(body, [endorse(body, key) for key in KEYS[:2]]))
        for changes in (
            chosen,
            chosen | {"scale": of.noise.scale * 2},
            chosen | {"scale": of.noise.scale - tiny},
            chosen | {"modulus": 8 * largest},
            chosen | {"length": chosen["length"] - 1},
            chosen | {"policy": policy[:-4]},
            slice_,
            slice_ | {"scale": Fraction(16)},
            slice_ | {"scale": slice_["scale"] - tiny},
            slice_ | {"modulus": 16},
        )
        for body in [described(of, **changes).encode()]
    ]
    expected = [one["cost"] for one in cases]
    costs = ["3/2", "3/2", None, None, None, None, "3/2", "1/4", None, None]
    assert expected == costs
    assert node("verdicts", {"rounds": cases})["costs"] == expected
    places = {"place": SLOT_ZERO, "terms": cases[0]["terms"]}
    reports = [
        places | {"announcement": cases[0]["announcement"], "values": values}
        for values in (
            [64, 0, 0, 4],
            [0, -64, 1, 0],
            [64, 1, 0, 0],
            [46, 46, 0, 1],
            [64, 0, 0, 5],
            [64, 0, 0, -1],
            [63.5, 0, 0, 0],
        )
    ]
    drawn = node("randomness", {"reports": reports})
    assert drawn[0] >= 32 + 32
    assert drawn[1:] == [drawn[0], *["answer"] * 5]


def test_terms_with_moments_tolerate_nobody_and_need_noise_for_all_of_their_delta() -> None:
    of = moment_terms()
    too_little, least = 1000, 200_000
    while least - too_little > 10:
        middle = (too_little + least) // 2
        enough = accepted(moment_terms, Fraction(middle))
        too_little, least = (too_little, middle) if enough else (middle, least)
    texts = [
        moment_terms(noise=replace(of.noise, scale=Fraction(sigma), minimum=None)).encode().decode()
        for sigma in (least, least + 10)
    ]
    wrong = [
        mutated(of, ("noise", "minimum"), [least - 10, 1]),
        mutated(of, ("aggregation", "dishonest_count"), 1),
        mutated(of, ("aggregation", "missing_fraction"), "1/10"),
        mutated(of, ("answer", "levels"), 65),
        mutated(of, ("guarantee", "delta"), "1"),
    ]
    found = node("verdicts", {"texts": texts + wrong})["digests"]
    assert all(found[:2])
    assert found[2:] == [None] * len(wrong)


def accepted(make: Callable[..., Terms], sigma: Fraction) -> bool:
    """Whether terms may state this noise."""
    try:
        make(noise=Noise(sigma, "servers", DISCRETE_GAUSSIAN))
    except TacitError:
        return False
    return True
