"""Empirical audit of a named algorithm, from its devices to the released aggregate, with two tests.

The devices report known values, so the released numbers reveal the noise. The first test compares
it with the stated distribution, by shape, spread, mean and independence. It detects missing, halved
or reused noise within a few dozen numbers. The second test is an attack: it guesses a participant's
answer from the adversary's view and bounds ε from below, which needs far more samples. Neither test
proves a guarantee; `tests/verify` recomputes it.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import chdtr, chdtrc, ndtr, ndtri, stdtr

from tacit.algorithms.registry import lookup
from tacit.assumptions import Declared
from tacit.errors import TacitError, positive, probability
from tacit.experiment import Experiment
from tacit.noise import NoiseDistribution, Table
from tacit.noise.table import convolution_power
from tacit.privacy import ApproximateDP, Arithmetic, Guarantee, PureDP, View
from tacit.privacy.audit import Audit, lower_bound, samples_to_refute
from tacit.privacy.guarantees import state_arithmetic
from tacit.protocols import pure_shuffle
from tacit.protocols.continuous import CentralLaplace, Laplace
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.integer_vectors import LevelProtocol, SecureVector
from tacit.protocols.mechanism import from_outside
from tacit.protocols.prefix_delivery import BITS
from tacit.protocols.prefix_messages import MODULUS_BITS, MOST_BITS, Bits, Counts, Form
from tacit.protocols.prefix_sums import PrefixRound, PrefixSums
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.sums import ModularSum
from tacit.protocols.vectors import CentralVectors, LocalVectors, SeparateSums, VectorProtocol
from tacit.rounds import aggregate
from tacit.sampling.certificates import PureShuffleParameters
from tacit.types import Aggregate, Floats

FALSE_POSITIVE_RATE = 1e-3
CONFIDENCE = 0.999  # of the lower bound on ε
DELTA = 1e-6  # at which guarantees without ε are audited
ENOUGH, FEWEST = 400, 60  # numbers to compare with the distribution, and the minimum for a verdict
CELLS = 12
SPARSE = 10  # factor on `ENOUGH` for distributions with at most `CELLS` values
SECONDS = 40.0
WIDE = 1 << 21  # wider distributions are smooth: they are integrated on a grid


@dataclass(frozen=True)
class Number:
    """A number in the adversary's view, and its stated distribution."""

    value: float
    distribution: NoiseDistribution | Laplace


@dataclass(frozen=True)
class Verdict:
    """Test of the stated distribution; `p_value` is corrected for multiple tests."""

    numbers: int
    rounds: int
    p_value: float
    worst: str
    false_positive_rate: float

    @property
    def caught(self) -> bool:
        """Whether the test rejects; its false positive rate is `false_positive_rate`."""
        return self.p_value < self.false_positive_rate


@dataclass(frozen=True)
class AlgorithmAudit:
    """Both tests of one algorithm, and the audited protocol."""

    algorithm: str
    protocol: str
    participants: int
    coordinates: int
    guarantee: Guarantee
    residuals: Verdict
    attack: Audit
    claimed_epsilon: float
    claimed_delta: float
    samples_to_refute: int | None  # at half the noise, or at `noise_factor`
    counted: bool = False  # rows of bits were replaced by their counts of ones

    @property
    def claimed(self) -> str:
        """The audited guarantee in short notation."""
        return self.guarantee.short

    @property
    def caught(self) -> bool:
        """Whether either test rejects."""
        return self.residuals.caught or self.attack.refutes(self.claimed_epsilon)


def audit_algorithm(
    name: str,
    options: dict[str, Any] | None = None,
    *,
    noise_factor: float = 1.0,
    reuse: bool = False,
    through: str | None = None,
    false_positive_rate: float = FALSE_POSITIVE_RATE,
    seconds: float = SECONDS,
) -> AlgorithmAudit:
    """Audit the first released round of a named algorithm, on devices with exact samplers.

    Parameters
    ----------
    name : str
        Name of the algorithm.
    options : dict, optional
        Options of its problem.
    noise_factor : float
        Factor on the devices' noise (0: none), while the stated distribution stays: a fault that an
        audit should detect.
    reuse : bool
        Draw noise once and reuse it: another such fault.
    through : str, optional
        Run the round through a real intermediary.
    false_positive_rate : float
        False positive rate of the first test.
    seconds : float
        Approximate duration.

    Returns
    -------
    AlgorithmAudit
        Both tests. Messages with too many bits are represented by counts of ones (`sendable`).

    Raises
    ------
    TacitError
        If the algorithm has no guarantee, or too few numbers were released in time.
    """
    probability("false_positive_rate", false_positive_rate)
    positive("seconds", seconds)
    if not 0 <= noise_factor <= 100:
        raise TacitError(f"noise_factor is {noise_factor:g}: must be between 0 and 100.")
    experiment = _experiment(name, options or {})
    first = _first_round(experiment)
    protocol, counted = (first, False) if through else sendable(first)
    if protocol.guarantee is None:
        raise TacitError(f"{name} has no guarantee to audit. Choose a private algorithm.")
    used, sight = weakened(protocol, noise_factor, reuse), adversary_view(protocol)
    with tampered_draws(noise_factor, reuse):
        rows = observed(used, sight, through, seconds=seconds / 2)
        pairs = [_sample(used, sight, through, seconds / 4, moved) for moved in (False, True)]
    epsilon, delta = _claim(protocol)
    count = min(map(len, pairs))
    bound = lower_bound(pairs[0][:count], pairs[1][:count], delta=delta, confidence=CONFIDENCE)
    factor = noise_factor if noise_factor != 1 else 0.5
    needed = samples_to_refute(*_pair(sight, factor), epsilon, delta=delta, confidence=CONFIDENCE)
    about = (type(protocol).__name__, protocol.participants, protocol.coordinates)
    guarantee, verdict = protocol.guarantee, residual_test(rows, false_positive_rate)
    if any(map(from_outside, (*experiment.mechanism.components, experiment.mechanism))):
        guarantee = state_arithmetic(guarantee, Arithmetic.UNSTATED).assuming(Declared())
    return AlgorithmAudit(name, *about, guarantee, verdict, bound, epsilon, delta, needed, counted)


def first_round(name: str, options: dict[str, Any]) -> Protocol:
    """The protocol of the first round that this algorithm releases, with these options."""
    return _first_round(_experiment(name, options))


def _experiment(name: str, options: dict[str, Any]) -> Experiment:
    entry = lookup(name)
    asked = entry.make_problem(options)
    return entry.build(asked.for_environment(asked.start(0, None).world, 0))


def _first_round(experiment: Experiment) -> Protocol:
    return experiment.open(next(round_ for round_ in experiment.propose() if round_.released))


class CountedSums(PrefixSums):
    """Prefix sums whose silos send counts of ones instead of rows of bits."""

    @property
    def bits_per_silo(self) -> float:
        """One word per number."""
        return self.shape.steps * self.size * MODULUS_BITS

    def form(self, step: int) -> Form:
        """Counts of ones instead of bits."""
        form = super().form(step)
        return Counts(form.bits, form.offset) if isinstance(form, Bits) else form


def sendable(protocol: Protocol) -> tuple[Protocol, bool]:
    """The protocol as audited, and whether it counts bits instead of sending them.

    A shuffled row of bits reveals only its count of ones, so devices draw, round and add as before.
    """
    if not isinstance(protocol, PrefixRound) or protocol.sums.noise not in BITS:
        return protocol, False
    if protocol.bits_per_participant <= MOST_BITS:
        return protocol, False
    own = {field.name: getattr(protocol.sums, field.name) for field in fields(protocol.sums)}
    return CountedSums(**own).open(protocol.step, {}, {}, protocol.guarantee), True


def _claim(protocol: Protocol) -> tuple[float, float]:
    match protocol.guarantee:
        case None:
            raise TacitError("the protocol has no guarantee to audit. Choose a private algorithm.")
        case PureDP(epsilon):
            return float(epsilon), 0.0
        case ApproximateDP(epsilon, delta):
            return float(epsilon), float(delta)
        case other:
            return float(other.to_approximate(DELTA).epsilon), DELTA


# The adversary's view of a round


@dataclass(frozen=True)
class AdversaryView:
    """The adversary's view of a protocol: the reports, the first participant's opposite report, the
    numbers.

    `distribution` is the distribution of one number. The first participant moves `copies` numbers
    by `move` each.
    """

    reports: Sequence[Any]
    moved: Any
    read: Callable[[Aggregate, Sequence[Any]], list[Number]]
    distribution: NoiseDistribution | Laplace
    move: float
    copies: int = 1

    def look(self, protocol: Protocol, reports: Sequence[Any], through: str | None) -> list[Number]:
        """Run a whole round, with every device and the intermediary, and return the adversary's
        view.
        """
        messages = [protocol.report(x, place) for place, x in enumerate(reports)]
        released = aggregate(protocol, messages, through) if through else protocol.combine(messages)
        return self.read(released, messages)


def adversary_view(protocol: Protocol) -> AdversaryView:
    """The adversary's view of this protocol."""
    if isinstance(protocol, SeparateSums):
        return _separate(protocol)
    if isinstance(protocol, PrefixRound):
        return _prefix(protocol)
    if isinstance(protocol, VectorProtocol):
        return _vector(protocol)
    if isinstance(protocol, SumProtocol):
        return _sum(protocol)
    raise _unknown(protocol)


def _unknown(protocol: Protocol) -> TacitError:
    return TacitError(
        f"protocol is {type(protocol).__name__}, whose view audits do not know. Extend "
        "adversary_view."
    )


def _sum(protocol: SumProtocol) -> AdversaryView:
    n, g = protocol.participants, protocol.precision
    alone = protocol.guarantee is not None and protocol.guarantee.view is View.MESSAGE
    ones = n if alone else (n + 1) // 2
    reports = [1.0] * ones + [0.0] * (n - ones)
    if isinstance(protocol, CentralLaplace):
        noise, unit = protocol.noise, 1 << 20  # releases are in units of 1/unit of a level

        def real(released: Aggregate, _: Sequence[Any]) -> list[Number]:
            return [Number(released.value / unit - ones * g, noise)]

        return AdversaryView(reports, 0.0, real, noise, g)
    truth = g if alone else ones * g
    stated = protocol.view_distribution if alone else protocol.released_distribution
    distribution, place = _unwrapped(protocol, stated(truth, n), truth)

    def read(released: Aggregate, sent: Sequence[Any]) -> list[Number]:
        return [Number(place(x), distribution) for x in (sent if alone else [released.value])]

    return AdversaryView(reports, 0.0, read, distribution, g)


def _unwrapped(
    protocol: Protocol, distribution: NoiseDistribution, truth: int
) -> tuple[NoiseDistribution, Callable[[Any], int]]:
    """The distribution of a residue, and the map of residues, rotated so that the truth is central.

    Without a modulus, both are unchanged.
    """
    if not isinstance(protocol, (ModularSum, RandomizedBits, SecureVector)):
        return distribution, int
    modulus = protocol.modulus
    turn = truth - modulus // 2
    masses = np.roll(distribution.pmf(np.arange(modulus)), -turn)
    return Table.of(0, masses), lambda x: (int(x) - turn) % modulus


def _vector(protocol: VectorProtocol) -> AdversaryView:
    n, s, bound = protocol.participants, protocol.coordinates, protocol.bound
    ups = n // 2
    reports = [np.full(s, -bound)] * (n - ups) + [np.full(s, bound)] * ups
    moved = np.full(s, bound)
    if isinstance(protocol, LevelProtocol):
        truth = ups * protocol.precision
        whole, place = _unwrapped(protocol, protocol.view_distribution(truth, n), truth)

        def levels(released: Aggregate, _: Sequence[Any]) -> list[Number]:
            return [Number(place(x), whole) for x in released.values]

        return AdversaryView(reports, moved, levels, whole, protocol.precision, s)
    if not isinstance(protocol, (CentralVectors, LocalVectors)):
        raise _unknown(protocol)
    distribution, unit = protocol.view_distribution(0, n), protocol.unit
    steps = round(2 * bound / unit)

    def sums(released: Aggregate, _: Sequence[Any]) -> list[Number]:
        truth = (2 * ups - n) * bound
        return [Number(round((x - truth) / unit), distribution) for x in released.values]

    def messages(_: Aggregate, sent: Sequence[Any]) -> list[Number]:
        noise = [(row - report) / unit for row, report in zip(sent, reports, strict=True)]
        return [Number(round(float(x)), distribution) for row in noise for x in row]

    local = protocol.guarantee is not None and protocol.guarantee.view is View.MESSAGE
    return AdversaryView(reports, moved, messages if local else sums, distribution, steps, s)


def _separate(protocol: SeparateSums) -> AdversaryView:
    parts = [adversary_view(part) for part in protocol.parts]
    places = [place for place, part in enumerate(protocol.parts) for _ in range(part.participants)]
    flat = [report for part in parts for report in part.reports]
    reports = [(place, float(x[0])) for place, x in zip(places, flat, strict=True)]

    def read(released: Aggregate, sent: Sequence[Any]) -> list[Number]:
        shared = protocol.by_option(sent)
        looks = zip(parts, released.values, shared, strict=True)
        return [number for part, one, mine in looks for number in part.read(one, mine)]

    first = parts[0]
    return AdversaryView(reports, (0, float(first.moved[0])), read, first.distribution, first.move)


def _prefix(protocol: PrefixRound) -> AdversaryView:
    n, size, sums = protocol.participants, protocol.coordinates, protocol.sums
    distribution = protocol.view_distribution(0, n)
    nothing = np.zeros((1, size))
    moved = nothing.copy()
    moved[0, 0] = sums.sensitivity

    def read(released: Aggregate, sent: Sequence[Any]) -> list[Number]:
        rows, silos = (sent, 1) if sums.suffices_alone else ([released.values], n)
        form = sums.form(protocol.step)
        numbers = [x for row in rows for x in form.read([int(x) for x in row], silos)]
        return [Number(int(x) + round(distribution.mean), distribution) for x in numbers]

    return AdversaryView([nothing] * n, moved, read, distribution, sums.sensitivity * sums.scale)


# Devices with less noise than stated


def weakened(protocol: Protocol, factor: float, reuse: bool) -> Protocol:
    """A copy of a protocol without integer noise, with its noise scaled, or drawn once and reused.

    `tampered_draws` changes the draws of protocols with integer noise.
    """
    twin: Any = copy.copy(protocol)
    if isinstance(protocol, CentralLaplace):
        twin.noise = Laplace(protocol.noise.scale * max(factor, 1e-12))
        if reuse:
            twin.combine = lambda sent: twin.combine_batch(sent, np.random.default_rng(0))
    elif isinstance(protocol, RandomizedBits):  # half the noise means twice the ε
        twin.epsilon = Fraction(twin.epsilon) / Fraction(max(factor, 1e-3))
        if reuse:
            kept = twin.flip()
            twin.flip = lambda: kept
    elif isinstance(protocol, SeparateSums):
        twin.parts = [weakened(part, factor, reuse) for part in protocol.parts]
    return twin  # type: ignore[no-any-return]


@contextmanager
def tampered_draws(factor: float, reuse: bool) -> Iterator[None]:
    """Context in which exact integer draws are scaled about their mean or, with `reuse`, drawn
    once.
    """
    sound, chance = NoiseDistribution.draw, np.random.default_rng()
    certified = pure_shuffle.draw_certified_ones
    kept: dict[Any, Any] = {}

    def draw(distribution: NoiseDistribution, size: int | None = None) -> Any:
        key = (repr(distribution), size)
        if not reuse or key not in kept:
            kept[key] = sound(distribution) if size is None else sound(distribution, size)
        if factor == 1:
            return kept[key]
        centre = round(distribution.mean)
        scaled = np.floor((kept[key] - centre) * factor + chance.random(size))
        return centre + (int(scaled) if size is None else scaled.astype(np.int64))

    def draw_ones(parameters: PureShuffleParameters) -> Callable[[int], int]:
        if not reuse or parameters not in kept:
            kept[parameters] = certified(parameters)
        ones: Callable[[int], int] = kept[parameters]

        def scaled(bit: int) -> int:
            noise = ones(bit) - parameters.tau - bit
            return parameters.tau + bit + math.floor(noise * factor + chance.random())

        return ones if factor == 1 else scaled

    if factor == 1 and not reuse:
        yield
        return
    NoiseDistribution.draw = draw  # type: ignore[method-assign, assignment]
    pure_shuffle.draw_certified_ones = draw_ones
    try:
        yield
    finally:
        NoiseDistribution.draw = sound  # type: ignore[method-assign]
        pure_shuffle.draw_certified_ones = certified


# First test: the stated distribution


def observed(
    protocol: Protocol,
    sight: AdversaryView,
    through: str | None = None,
    *,
    enough: int | None = None,
    seconds: float = SECONDS,
) -> list[list[Number]]:
    """Run at least three rounds until there are enough numbers, or until time is up.

    By default `enough` is the number at which half the noise is detected.
    """
    rows: list[list[Number]] = []
    enough = draws_to_reveal(sight.distribution) if enough is None else enough
    started = time.monotonic()
    while len(rows) < 3 or sum(map(len, rows)) < enough:
        rows.append(sight.look(protocol, sight.reports, through))
        numbers, passed = sum(map(len, rows)), time.monotonic() - started
        if passed > seconds and len(rows) > 1 and numbers >= FEWEST:
            break
        if passed > 4 * seconds:
            raise TacitError(
                f"{numbers} numbers were released in {passed:.0f} s: must be at least {FEWEST} for "
                "a verdict. Allow more seconds, or leave out the intermediary."
            )
    return rows


def draws_to_reveal(distribution: NoiseDistribution | Laplace) -> int:
    """Number of draws of this distribution that reveal half the noise.

    P-values were below 1e-11 in each of a dozen audits of each kind. An answer of two values
    carries little information, so it takes more of them.
    """
    if isinstance(distribution, Laplace):
        return ENOUGH
    low, high = distribution.window(-50.0)
    return ENOUGH if high - low > CELLS else SPARSE * ENOUGH


def residual_test(
    rows: Sequence[Sequence[Number]], false_positive_rate: float = FALSE_POSITIVE_RATE
) -> Verdict:
    """Test whether numbers have their stated distributions and are independent.

    Each number is mapped by its randomized probability integral transform to a standard normal
    score.
    """
    scores = standard(rows)
    found = _tests(scores)
    worst = min(found, key=lambda name: found[name])
    p_value = min(1.0, len(found) * found[worst])
    return Verdict(scores.size, len(rows), p_value, worst, false_positive_rate)


def standard(rows: Sequence[Sequence[Number]]) -> Floats:
    """Standard normal scores, one row per round."""
    chance = np.random.default_rng()
    tables: dict[int, Callable[[float], tuple[float, float]]] = {}
    scores = np.empty((len(rows), len(rows[0])))
    for r, row in enumerate(rows):
        for k, number in enumerate(row):
            if id(number.distribution) not in tables:
                tables[id(number.distribution)] = _below_and_at(number.distribution)
            below, here = tables[id(number.distribution)](number.value)
            scores[r, k] = below + chance.random() * here
    return np.asarray(ndtri(scores.clip(1e-12, 1 - 1e-12)))


def _below_and_at(
    distribution: NoiseDistribution | Laplace,
) -> Callable[[float], tuple[float, float]]:
    """P[X < x] and P[X = x] of a distribution."""
    if isinstance(distribution, Laplace):
        scale = distribution.scale
        return lambda x: (0.5 - math.copysign(0.5, x) * math.expm1(-abs(x) / scale), 0.0)
    low, high = distribution.window(-50.0)
    if high - low > WIDE:
        points = np.linspace(low, high, WIDE >> 3).round().astype(np.int64)
        density = distribution.pmf(points)
        steps = np.diff(points) * (density[1:] + density[:-1]) / 2
        below = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        return lambda x: (float(np.interp(x, points, below)), 0.0)
    masses = distribution.pmf(np.arange(low, high + 1))
    before = np.concatenate([[0.0], np.cumsum(masses)])

    def place(x: float) -> tuple[float, float]:
        index = int(x) - low
        if not 0 <= index < len(masses):
            return (0.0 if index < 0 else 1.0), 0.0
        return float(before[index]), float(masses[index])

    return place


def _tests(scores: Floats) -> dict[str, float]:
    """The p-value of each test."""
    flat = scores.ravel()
    count = len(flat)
    spread, middle = float(flat @ flat), abs(float(flat.sum())) / math.sqrt(count)
    cells = np.bincount((ndtr(flat) * CELLS).astype(int).clip(0, CELLS - 1), minlength=CELLS)
    expected = count / CELLS
    off = float(((cells - expected) ** 2).sum()) / expected
    found = {
        "spread": 2 * min(float(chdtr(count, spread)), float(chdtrc(count, spread))),
        "middle": 2 * float(ndtr(-middle)),
        "shape": float(chdtrc(CELLS - 1, off)),
    }
    if len(scores) > 2 or scores.shape[1] >= FEWEST:
        found["independence of rounds"] = _unrelated(scores[:-1], scores[1:])
    if scores.shape[1] > 1:
        found["independence of numbers"] = _unrelated(scores[:, :-1], scores[:, 1:])
    return found


def _unrelated(first: Floats, other: Floats) -> float:
    """The p-value of a correlation between pairs of normal variables."""
    x, y = first.ravel(), other.ravel()
    size = math.sqrt(float(x @ x) * float(y @ y))
    r = min(1.0, abs(float(x @ y)) / size) if size else 1.0
    freedom = len(x) - 1
    return float(2 * stdtr(freedom, -r * math.sqrt(freedom / max(1e-300, 1 - r * r))))


# Second test: the attack


def _sample(
    protocol: Protocol, sight: AdversaryView, through: str | None, seconds: float, moved: bool
) -> Floats:
    """The attacker's statistic about the first participant along the worst direction, one per
    round.
    """
    reports = [sight.moved if moved else sight.reports[0], *sight.reports[1:]]
    seen: list[float] = []
    started = time.monotonic()
    while time.monotonic() - started < seconds and len(seen) < 100_000:
        numbers = sight.look(protocol, reports, through)
        seen.append(math.fsum(number.value for number in numbers[: sight.copies]))
    return np.array(seen)


def _pair(sight: AdversaryView, factor: float) -> tuple[Floats, Floats]:
    """The distributions of the attacker's statistic under both answers, with scaled noise, on one
    grid.
    """
    if isinstance(sight.distribution, Laplace):
        points = np.arange(-40, 41 + sight.move / max(sight.distribution.scale, 1e-9), 0.01)
        scale = sight.distribution.scale * max(factor, 1e-3)
        made = np.exp(-np.abs(points) * sight.distribution.scale / scale)
        shift = round(sight.move / sight.distribution.scale / 0.01)
    else:
        low, high = sight.distribution.window(-60.0)
        if (high - low) * sight.copies > WIDE:
            std = sight.distribution.std * math.sqrt(sight.copies) * max(factor, 1e-3)
            points = np.linspace(-10, 10 + sight.copies * sight.move / std, 20_000)
            made, step = np.exp(-(points**2) / 2), points[1] - points[0]
            shift = round(sight.copies * sight.move / std / step)
        else:
            _, one = convolution_power(sight.distribution, sight.copies)
            centre = int(np.argmax(one))
            places = np.round((np.arange(len(one)) - centre) * factor).astype(int)
            made = np.bincount(places - places.min(), weights=one)
            shift = round(sight.copies * sight.move)
    whole = np.concatenate([made, np.zeros(abs(shift))]) / made.sum()
    return whole, np.roll(whole, shift)
