"""Exact Bernoulli and integer draws: enclosures, exact probabilities by enumeration, no floats, no
replay.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.noise.distributions import DRAWABLE, digits, exact, reference

from tacit import noise
from tacit.noise import (
    Binomial,
    Chance,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Polya,
)
from tacit.sampling import coins, draws, inversion
from tacit.sampling import polya as walking
from tacit.sampling.coins import exp_bounds
from tacit.sampling.polya import PolyaWalk

RATES = st.one_of(
    st.fractions(0, 3, max_denominator=10**6),
    st.fractions(0, 5000, max_denominator=10**4),
    st.floats(1e-12, 50, allow_nan=False).map(Fraction),
)


@settings(max_examples=300, deadline=None)
@given(rate=RATES, bits=st.sampled_from([1, 2, 8, 64, 65, 128, 300]))
def test_bounds_on_the_exponential_enclose_it_tightly(rate: Fraction, bits: int) -> None:
    low, high = exp_bounds(rate, bits)
    with mp.workprec(bits + 200):
        truth = mp.exp(-exact(rate)) * mp.mpf(2) ** bits
        assert low <= truth <= high
    assert 0 <= low <= high <= 1 << bits
    assert high - low <= 2


@settings(max_examples=200, deadline=None)
@given(
    factor=st.fractions(0, 1, max_denominator=10**6),
    rate=RATES,
    bits=st.sampled_from([1, 8, 64, 192]),
)
def test_bounds_on_a_probability_enclose_it_tightly(
    factor: Fraction, rate: Fraction, bits: int
) -> None:
    chance = Chance(factor, rate)
    low, high = chance.bounds(bits)
    with mp.workprec(bits + 200):
        truth = exact(factor) * mp.exp(-exact(rate)) * mp.mpf(2) ** bits
        assert low <= truth <= high
        assert float(chance) == pytest.approx(
            float(truth / mp.mpf(2) ** bits), rel=1e-15, abs=1e-300
        )
    assert high - low <= 2


# Enumerated models. The word source is replaced, here and only here: words of 2 bits, taken from a
# given bit sequence. Every sequence is tried, so the mass of each outcome is known exactly, up to
# that of sequences that were too short.


class OutOfBitsError(Exception):
    """The draw needs more bits than the sequence has."""


SMALL_WORD = 2
Enumerate = Callable[[Callable[[], Hashable], int], tuple[dict[Any, Fraction], Fraction]]


@pytest.fixture
def bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> Enumerate:
    prefix: list[int] = []
    used = 0

    def random_bits(count: int) -> int:
        nonlocal used
        if used + count > len(prefix):
            raise OutOfBitsError
        value = 0
        for bit in prefix[used : used + count]:
            value = 2 * value + bit
        used += count
        return value

    for module in (coins, walking, inversion):
        monkeypatch.setattr(module, "WORD", SMALL_WORD)
        monkeypatch.setattr(module, "random_word", lambda: random_bits(SMALL_WORD))
    for module in (coins, draws):
        monkeypatch.setattr(module, "random_bits", random_bits)
    monkeypatch.setattr(draws, "ONE_OVER_E", Chance(Fraction(1), Fraction(1)))
    monkeypatch.setattr(coins, "ONE_OVER_E", Chance(Fraction(1), Fraction(1)))
    monkeypatch.setattr(draws, "HALF", Chance(Fraction(1, 2)))
    monkeypatch.setattr(draws, "polya_walk", walking.polya_walk.__wrapped__)

    def enumerate_draw(
        draw: Callable[[], Hashable], depth: int
    ) -> tuple[dict[Any, Fraction], Fraction]:
        nonlocal used
        masses: dict[Any, Fraction] = {}
        undecided = Fraction(0)
        open_prefixes: list[list[int]] = [[]]
        while open_prefixes:
            prefix[:] = open_prefixes.pop()
            used = 0
            try:
                outcome = draw()
            except OutOfBitsError:
                if len(prefix) < depth:
                    open_prefixes += [[*prefix, 0], [*prefix, 1]]
                else:
                    undecided += Fraction(1, 1 << depth)
            else:
                masses[outcome] = masses.get(outcome, Fraction(0)) + Fraction(1, 1 << len(prefix))
        assert sum(masses.values()) + undecided == 1
        return masses, undecided

    return enumerate_draw


def assert_exact(
    masses: dict[Any, Fraction], undecided: Fraction, truth: Callable[[Any], mp.mpf]
) -> None:
    """What was decided for an outcome is at most its probability, and falls short by at most what
    is undecided.
    """
    rounding = mp.mpf(10) ** -30
    for outcome, mass in masses.items():
        probability = truth(outcome)
        assert exact(mass) <= probability + rounding
        assert probability <= exact(mass + undecided) + rounding


CHANCES = [
    Chance(Fraction(1), Fraction(1, 10)),
    Chance(Fraction(1), Fraction(7, 3)),
    Chance(Fraction(1, 3)),
    Chance(Fraction(2, 7), Fraction(1, 1000)),
    Chance(Fraction(3, 4)),
    Chance(Fraction(1), Fraction(12)),
    Chance(Fraction(0)),
    Chance(Fraction(1)),
]


@pytest.mark.parametrize("chance", CHANCES, ids=repr)
def test_bernoulli_draws_have_exactly_their_probability(
    bit_by_bit: Enumerate, chance: Chance
) -> None:
    fresh = Chance(chance.factor, chance.rate)
    masses, undecided = bit_by_bit(fresh.flip, 24)
    assert undecided <= Fraction(4, 1 << 24)
    with digits():
        truth = exact(chance.factor) * mp.exp(-exact(chance.rate))
        assert_exact(masses, undecided, lambda heads: truth if heads else 1 - truth)


@pytest.mark.parametrize(
    "rate", [Fraction(0), Fraction(1, 4), Fraction(3, 5), Fraction(1), Fraction(9, 4)], ids=str
)
def test_bernoulli_exponential_draws_have_exactly_their_probability(
    bit_by_bit: Enumerate, rate: Fraction
) -> None:
    masses, undecided = bit_by_bit(lambda: coins.flip_exp(rate), 15)
    assert undecided < Fraction(1, 5)
    with digits():
        truth = mp.exp(-exact(rate))
        assert_exact(masses, undecided, lambda heads: truth if heads else 1 - truth)


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 8, 11])
def test_uniform_integers_are_uniform(bit_by_bit: Enumerate, bound: int) -> None:
    masses, undecided = bit_by_bit(lambda: coins.uniform_below(bound), 14)
    assert len(set(masses.values())) == 1
    assert set(masses) == set(range(bound))
    assert undecided < Fraction(1, 10)


EXACT_DRAWS: dict[str, tuple[NoiseDistribution, Callable[[], Callable[[], int]]]] = {
    "biased binomial": (Binomial(7, 0.3), lambda: draws.ones.__wrapped__(7, Fraction(0.3)).draw),
    "binomial": (
        Binomial(3, Fraction(9, 10)),
        lambda: draws.ones.__wrapped__(3, Fraction(9, 10)).draw,
    ),
    "gaussian": (
        DiscreteGaussian(1.25),
        lambda: draws.gaussian.__wrapped__(Fraction(25, 16)).draw,
    ),
    "narrow gaussian": (
        DiscreteGaussian(0.25),
        lambda: draws.gaussian.__wrapped__(Fraction(1, 16)).draw,
    ),
    "geometric walk": (
        Polya(1, CHANCES[1]),
        lambda: PolyaWalk(Fraction(1), Chance(CHANCES[1].factor, CHANCES[1].rate)).draw,
    ),
    "polya walk": (
        Polya(Fraction(1, 3), CHANCES[1]),
        lambda: PolyaWalk(Fraction(1, 3), CHANCES[1]).draw,
    ),
    "polya walk that mostly restarts": (
        Polya(Fraction(1, 100), Chance(Fraction(1), Fraction(3, 2))),
        lambda: PolyaWalk(Fraction(1, 100), Chance(Fraction(1), Fraction(3, 2))).draw,
    ),
    "polya above one": (
        Polya(Fraction(3, 2), 0.125),
        lambda: PolyaWalk(Fraction(3, 2), Chance(Fraction(1, 8))).draw,
    ),
    "narrow laplace": (
        DiscreteLaplace(Fraction(1, 2)),
        lambda: DiscreteLaplace(Fraction(1, 2)).draw,
    ),
    "laplace": (DiscreteLaplace(Fraction(2, 3)), lambda: DiscreteLaplace(Fraction(2, 3)).draw),
}


@pytest.mark.parametrize("name", EXACT_DRAWS)
def test_draws_have_exactly_their_probabilities(bit_by_bit: Enumerate, name: str) -> None:
    """With 2-bit words almost every draw ties and has to be settled with more digits."""
    distribution, make = EXACT_DRAWS[name]
    masses, undecided = bit_by_bit(make(), 16)
    assert undecided < Fraction(1, 2)
    assert len(masses) > 1
    with digits():
        truth = reference(distribution)
        assert_exact(masses, undecided, lambda k: mp.exp(truth(k)))


def test_poisson_draws_have_exactly_their_probabilities(bit_by_bit: Enumerate) -> None:
    mean = Fraction(17, 10)
    masses, undecided = bit_by_bit(draws.poisson.__wrapped__(mean).draw, 18)
    assert undecided < Fraction(1, 1000)
    with digits():
        assert_exact(
            masses, undecided, lambda k: mp.exp(-exact(mean)) * exact(mean) ** k / mp.factorial(k)
        )


@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(1), Fraction(7, 3)], ids=str)
def test_a_response_is_flipped_with_exactly_its_probability(
    bit_by_bit: Enumerate, epsilon: Fraction
) -> None:
    masses, undecided = bit_by_bit(lambda: draws.flip_response(epsilon), 16)
    assert undecided < Fraction(1, 12)
    with digits():
        flipped = 1 / (1 + mp.exp(exact(epsilon)))
        assert_exact(masses, undecided, lambda flip: flipped if flip else 1 - flipped)


@pytest.mark.parametrize(
    ("scale", "shares"), [(Fraction(1, 2), 1), (Fraction(1, 2), 3), (Fraction(2, 3), 40)]
)
def test_a_laplace_share_has_exactly_the_stated_probabilities(
    bit_by_bit: Enumerate, scale: Fraction, shares: int
) -> None:
    """The sum of `shares` values of this distribution is discrete Laplace; `test_shares.py`."""
    masses, undecided = bit_by_bit(lambda: draws.draw_laplace_share(scale, shares), 16)
    assert undecided < Fraction(1, 10)
    assert {-1, 0, 1} <= masses.keys()
    with digits():
        truth = reference(DiscreteLaplace(scale).share(shares))
        assert_exact(masses, undecided, lambda k: mp.exp(truth(k)))


def test_ties_of_64_digits_are_resolved_by_the_next_word(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Chance(Fraction(1, 3))  # 0.0101...: its digits are 0x5555...
    for following, outcome in [(0x5555555555555554, True), (0x5555555555555556, False)]:
        words = iter([0x5555555555555555, 0x5555555555555555, following])
        monkeypatch.setattr(coins, "random_word", lambda words=words: next(words))
        assert chance.flip() is outcome
        assert next(words, None) is None


def test_a_table_resolves_ties_of_64_digits_by_the_next_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = draws.ones.__wrapped__(1, Fraction(1, 3))  # F(0) = 2/3 = 0.1010...
    for following, outcome in [(0, 0), (0xFFFFFFFFFFFFFFFF, 1)]:
        words = iter([0xAAAAAAAAAAAAAAAA, following])
        monkeypatch.setattr(inversion, "random_word", lambda words=words: next(words))
        assert part.draw() == outcome


def test_tables_enclose_the_distribution_function() -> None:
    """At 64 bits and at 192, lower and upper bounds are at most 3 apart and hold the truth."""
    part, distribution = draws.ones(40, Fraction(1, 7)), Binomial(40, Fraction(1, 7))
    with digits(120):
        truth = reference(distribution)
        for bits in (64, 192):
            first, lows, highs = part._enclose(bits)
            cumulative = mp.mpf(0)
            for k in range(first + len(lows)):
                cumulative += mp.exp(truth(k))
                if k > first:
                    scaled = cumulative * mp.mpf(2) ** bits
                    assert lows[k - first] <= scaled + mp.mpf(10) ** -30
                    assert scaled <= highs[k - first] + mp.mpf(10) ** -30
                    assert highs[k - first] - lows[k - first] <= 3


# No float.


@contextmanager
def watched() -> Iterator[tuple[list[str], set[CodeType]]]:
    """Local variables, return values and calls to C functions while tacit.noise runs: floats found,
    code that ran.
    """
    home = str(Path(noise.__file__).parent)
    found: list[str] = []
    codes: set[CodeType] = set()

    def is_float(value: object) -> bool:
        if isinstance(value, (list, tuple)):
            return any(is_float(item) for item in value[:4])
        return isinstance(value, (float, np.floating)) or (
            isinstance(value, np.ndarray) and value.dtype.kind == "f"
        )

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(home):
            return None
        codes.add(frame.f_code)
        place = f"{frame.f_code.co_name}:{frame.f_lineno}"
        found.extend(
            f"{place} {name} = {value!r}"
            for name, value in frame.f_locals.items()
            if is_float(value)
        )
        if event == "return" and is_float(arg):
            found.append(f"{place} returns {arg!r}")
        return trace

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        exact_functions = ("isqrt", "gcd")
        if event == "c_call" and arg.__module__ == "math" and arg.__name__ not in exact_functions:
            found.append(f"{frame.f_code.co_name}:{frame.f_lineno} calls math.{arg.__name__}")

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        yield found, codes
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])


def rebuilt(distribution: NoiseDistribution) -> NoiseDistribution:
    """The same distribution with nothing worked out yet."""
    for cache in (
        exp_bounds,
        draws.poisson,
        draws.ones,
        draws.gaussian,
        walking.polya_walk,
    ):
        cache.cache_clear()
    copy = object.__new__(type(distribution))
    for name, value in distribution.__getstate__().items():
        object.__setattr__(copy, name, value)
    return copy


@pytest.mark.parametrize("name", DRAWABLE)
def test_no_float_is_used_in_a_draw(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and thresholds are built from scratch under watch; no constant is a float, no fraction
    becomes one.
    """
    distribution = rebuilt(DRAWABLE[name])

    def reject(self: Fraction) -> float:
        raise AssertionError(f"{self} was turned into a float")

    monkeypatch.setattr(Fraction, "__float__", reject)
    with watched() as (found, codes):
        for _ in range(20):
            distribution.draw()
        distribution.draw(3)
    assert not found
    assert codes
    for code in codes:
        assert not [constant for constant in code.co_consts if isinstance(constant, float)], (
            code.co_name
        )
        assert not {"float", "exp", "log", "sqrt", "float64"} & set(code.co_names), code.co_name


def test_the_float_detector_detects_floats() -> None:
    with watched() as (found, _):
        _ = DiscreteLaplace(10).variance
    assert any("rate = " in line for line in found)
    assert any("calls math.exp" in line for line in found)


# The source.


def test_a_forked_child_does_not_replay_its_parents_words() -> None:
    coins.random_word()
    assert coins._pool, "the pool holds words that a child could replay"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(writer, b"".join(coins.random_word().to_bytes(8, "little") for _ in range(16)))
        os._exit(0)
    os.close(writer)
    theirs = os.read(reader, 128)
    os.waitpid(child, 0)
    os.close(reader)
    ours = b"".join(coins.random_word().to_bytes(8, "little") for _ in range(16))
    assert len(theirs) == 128
    assert not {theirs[i : i + 8] for i in range(0, 128, 8)} & {
        ours[i : i + 8] for i in range(0, 128, 8)
    }


def test_random_words_come_from_the_operating_system_and_are_used_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return bytes(range(256)) * (count // 256)

    monkeypatch.setattr(os, "urandom", urandom)
    monkeypatch.setattr(coins, "_pool", [])
    words = [coins.random_word() for _ in range(coins._REFILL + 1)]
    assert asked == [8 * coins._REFILL] * 2
    assert len(set(words)) == 32
    assert all(0 <= value < 1 << 64 for value in words)


@pytest.mark.parametrize("count", [0, 1, 7, 63, 64, 65, 72, 1000])
def test_random_bits_cover_their_range(count: int) -> None:
    """Every position is one at some time and zero at another, in 200 tries: false alarm below 1000
    · 2^-199.
    """
    values = [coins.random_bits(count) for _ in range(200)]
    union, common = 0, (1 << count) - 1
    for value in values:
        assert 0 <= value < 1 << count
        union, common = union | value, common & value
    assert union == (1 << count) - 1
    assert common == 0


def test_threads_sharing_a_walk_keep_its_thresholds_in_order() -> None:
    walk = PolyaWalk(Fraction(1, 2), Chance(Fraction(1), Fraction(1, 300)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [walk.draw() for _ in range(40)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert walk._again == [walk._restart(x).bounds(64) for x in range(len(walk._again))]


def test_the_cache_of_thresholds_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(walking, "MOST_THRESHOLDS", 5)
    walk = PolyaWalk(Fraction(1, 2), Chance(Fraction(1), Fraction(1, 50)))
    assert max(walk.draw() for _ in range(300)) > 5
    assert len(walk._again) == 5


def test_wide_distributions_are_drawn_as_sums_of_parts() -> None:
    parts, _ = draws.poisson_parts(Fraction(10**9, 2))
    assert parts == 64
    distribution = Binomial(10**9, 0.3)
    assert len(distribution._parts) == 13
    assert abs(distribution.draw() - distribution.mean) < 10 * distribution.std


@pytest.mark.parametrize("rest", [Fraction(1, 2), Fraction(1, 97)])
def test_thresholds_of_a_long_walk_are_exact_and_fast(
    monkeypatch: pytest.MonkeyPatch, rest: Fraction
) -> None:
    """A share of wide noise took a minute: each step beyond the cache computed an exponential."""
    walk = PolyaWalk(rest, Chance(Fraction(7, 8), Fraction(1, 1 << 17)))
    monkeypatch.setattr(coins, "exp_bounds", None)
    places = (0, 1, 2, 1000, walking.MOST_THRESHOLDS, 10**7)
    found = [walk._threshold(x) for x in places]
    monkeypatch.undo()
    for x, (low, high) in zip(places, found, strict=True):
        least, most = walk._restart(x).bounds(4 * coins.WORD)
        assert low << 3 * coins.WORD <= least
        assert most <= high << 3 * coins.WORD
        assert high - low <= 2
