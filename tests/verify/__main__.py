"""Recompute every printed number of named algorithms and live terms by slow arithmetic.

    python -m tests.verify [--only NAME] [--quick] [--workers N]

For a grid of ε, δ, dropout, corruption and participations the protocols of small, middle and large
rounds are built as the algorithm would, their shares' parameters are taken, and δ at the ε that is
printed for the *run* is computed from the distribution of the adversary's view, with exactly as
many missing and dishonest participants as the printed assumptions allow (per group, where they say
group). More than is printed anywhere fails. `slack` is how much of the printed number is truly
used, at least and at most: of δ, or of ε where δ is 0. Rows of terms are about the weakest live
terms and rounds that devices accept (`live`, `moments`).
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath as mp
from tests.verify import arithmetic as slow
from tests.verify import live, moments, neighbours

from tacit.algorithms.registry import Algorithm, algorithms
from tacit.assumptions import DishonestAtMost, ReleasedOnlyAbove
from tacit.errors import TacitError
from tacit.terms import FittedTerms, MomentTerms
from tacit.types import Arm, Fit, Round

NEVER_OVER = 1 + 1e-9
SIZES = (2, 3, 19, 64, 65, 1000, 100_000, 1_000_000)
SMOOTH = 500  # wider discrete Gaussians have tails in closed form
LARGEST_GROUP = 1000  # bits of a group whose numbers of ones are multiplied out
LARGEST_SUM = 200  # discrete Gaussian shares that are added up; squaring takes minutes


@dataclass(frozen=True)
class Seen:
    """`copies` independent numbers with noise of this distribution, each of which one participant
    moves by `shift`; `pure` is the loss of one where it is known exactly, `gaussian` how many
    standard deviations all of it moves where it is normal, `lattice` the standard deviation of all
    of it together where it is a wide discrete Gaussian, which `shift` then moves.
    """

    distribution: Callable[[], slow.Distribution]
    shift: int
    copies: int = 1
    pure: Any = None
    gaussian: float = 0.0
    lattice: Any = None


def summed(share: Any, count: int, w: int) -> tuple[Callable[[], slow.Distribution], Any]:
    """The distribution of so many shares, from their parameters, when it is needed, in units of w
    where it is wide; and the exact rate of its loss, if any.
    """
    kind = type(share).__name__
    if kind == "DiscreteLaplace" and count == 1:
        scale = Fraction(share.scale)
        return lambda: slow.laplace(scale), mp.mpf(scale.denominator) / scale.numerator
    if kind == "PolyaDifference":
        rate = Fraction(share.beta.rate)
        assert share.beta.factor == 1
        if Fraction(share.r) * count == 1:
            return lambda: slow.laplace(1 / rate), mp.mpf(rate.numerator) / rate.denominator
        return lambda: slow.polya_difference(Fraction(share.r) * count, rate), None
    if kind == "Skellam":
        return lambda: slow.skellam(mp.mpf(float(share.variance)) * count, w), None
    if kind == "Binomial":
        return lambda: slow.binomial(int(share.n) * count, Fraction(share.p), w), None
    if kind == "DiscreteGaussian":
        sigma = float(share.sigma)
        if 10 * count * math.exp(-((math.pi * sigma) ** 2)) < 1e-15:  # KLS21: then it is one
            return lambda: slow.gaussian(sigma * math.sqrt(count), w), None
        if count > LARGEST_SUM:
            raise TacitError("too many narrow shares to add up one by one")
        return lambda: slow.power(slow.gaussian(sigma), count), None
    raise TacitError(f"{kind} is not recomputed: add it")


def seen(protocol: Any, stated: Any) -> Seen:
    """The view of this protocol's round, with exactly as many dishonest and missing participants
    as the stated assumptions allow.
    """
    honest = honest_shares(protocol, stated)
    name, times = type(protocol).__name__, getattr(protocol.guarantee, "participations", 1)
    if hasattr(protocol, "sums") and hasattr(protocol.sums, "shape"):
        return prefix_sums(protocol.sums, honest)
    if name == "SeparateSums":
        return seen(min(protocol.parts, key=lambda part: part.participants), stated)
    if name == "PureShuffle":
        return Seen(nothing, 1, times, max(group_losses(protocol, stated)))
    if name == "SplitAndMix":
        return seen(protocol.inner, stated)
    if name == "JointSums":  # its part is made for as many participations as there are numbers
        return seen(protocol.part, stated)
    if hasattr(protocol, "statistic"):
        return statistic_sum(protocol, honest)
    if name == "RandomizedBits":
        epsilon = mp.mpf(protocol.epsilon.numerator) / protocol.epsilon.denominator
        return Seen(nothing, 1, times, epsilon)
    if name == "CentralLaplace":
        return Seen(nothing, 1, times, mp.mpf(protocol.precision) / protocol.noise.scale)
    alone = {"Central", "Local", "TwoServers", "Verified", "CentralVectors", "LocalVectors"}
    if hasattr(protocol, "radius"):
        adding = 1 if name in ("CentralBall", "LocalBall") else honest
        return ball(protocol, adding, times)
    share = getattr(protocol, "share", None) or getattr(protocol, "device", None)
    if share is None and hasattr(protocol, "noise_bits"):
        from tacit.noise import Binomial

        share = Binomial(protocol.noise_bits, protocol.bias)
    shift = int(getattr(protocol, "precision", 1024))
    copies = times * protocol.coordinates
    share, adding = share or protocol.distribution, 1 if name in alone else honest
    if adding == 1 and type(share).__name__ == "DiscreteGaussian" and share.sigma > SMOOTH:
        return Seen(nothing, shift * copies, lattice=mp.mpf(share.sigma) * mp.sqrt(copies))
    deviation = math.sqrt(float(share.variance) * adding)
    coarse = type(share).__name__ in ("Skellam", "Binomial", "DiscreteGaussian")
    w = slow.width(shift, deviation) if coarse and deviation > slow.WIDE else 1
    distribution, rate = summed(share, adding, w)
    return Seen(distribution, shift // w, copies, None if rate is None else rate * shift)


def ball(protocol: Any, adding: int, times: int) -> Seen:
    """Opposite vectors along an axis: as many steps of the grid as it has, in each participation;
    the noise is wide, and nearly Gaussian.
    """
    deviation = math.sqrt(float(protocol.distribution.variance) * adding)
    if deviation < SMOOTH:
        raise TacitError("noise in a ball that is not wide: convolve it")
    moved = protocol.steps / (1 + 1e-11)
    return Seen(nothing, 1, 1, gaussian=math.sqrt(times) * moved / deviation)


def statistic_sum(protocol: Any, honest: int) -> Seen:
    """Tables: two cells move by one. Moments: unit vectors x, x' with equal or opposite centred
    rewards, over their angle; the noise of every coordinate in units of what it measures.
    """
    kind, statistic = type(protocol).__name__, protocol.statistic
    if kind == "UnaryStatistic":
        epsilon = mp.mpf(protocol.epsilon.numerator) / protocol.epsilon.denominator
        return Seen(nothing, 1, 1, epsilon)
    adding = 1 if kind in ("CentralStatistic", "TwoServerStatistic") else honest
    if type(statistic).__name__ == "FitStatistic":  # any two vectors of a ball
        sigma = float(protocol.own[0].sigma) * math.sqrt(adding)
        return Seen(nothing, 1, 1, gaussian=2 * statistic.resolution / sigma)
    if not hasattr(statistic, "weight"):
        distribution, rate = summed(protocol.own[0], adding, 1)
        return Seen(distribution, 1, 2, rate)
    d, steps = statistic.dimension, range(-10_000, 10_001)
    squares = (statistic.weight**2 / 2 * (1 - c) + 2 - 2 * c * c for c in (k / 1e4 for k in steps))
    units = [statistic.weight / (2 * statistic.levels * statistic.resolution)] * d
    units += [
        (1 if i == j else math.sqrt(2)) / statistic.resolution**2
        for i in range(d)
        for j in range(i, d)
    ]
    pairs = zip(protocol.own, units, strict=True)
    least = min(float(share.sigma) * unit for share, unit in pairs) * math.sqrt(adding)
    return Seen(nothing, 1, 1, gaussian=math.sqrt(max(squares)) / least)


def group_losses(protocol: Any, stated: Any) -> Iterator[Any]:
    """The losses of the pure shuffle's groups, when none, half or all of the others have a 1 and as
    many members of a group are dishonest as the assumptions allow.
    """
    limits = [one for one in stated.assumptions if isinstance(one, DishonestAtMost)]
    for group in protocol._groups:
        dishonest = max((one.limit(group.size) for one in limits), default=group.size - 1)
        p, others = group.row.certificate.parameters, group.size - dishonest
        if others * p.bits > LARGEST_GROUP:
            raise TacitError("large groups: python -m tacit.papers.certificates --check")
        yield from _group_losses(p.users, p.noise_epsilon, p.tau, p.mixture, others)


@lru_cache(maxsize=64)
def _group_losses(
    certified: int, rate: Fraction, tau: int, mixture: Fraction, others: int
) -> tuple[Any, ...]:
    share = slow.polya_difference(Fraction(1, certified), Fraction(rate))
    weights = slow.reports(tau, Fraction(mixture), share)
    return tuple(slow.group_loss(weights, others, ones) for ones in {0, others // 2, others - 1})


def prefix_sums(sums: Any, honest: int) -> Seen:
    """All steps of private prefix sums, as the Gaussian that their noise nearly is: moved by what
    the silos' encoders make of two neighbouring streams, rounding included. Of shares only those of
    the silos that are left count.
    """
    return Seen(nothing, 1, 1, gaussian=neighbours.farthest(sums, honest))


def mixing(protocol: Any, stated: Any, epsilon: float) -> Any:
    """δ of additive shares that are shuffled, by how few honest participants may be left: k of them
    hide all but a sum modulo m up to 2^-σ with k = 2 + (2σ + log₂ m) / (log₂ n - log₂ e).
    """
    counts = {"SplitAndMix": "shares", "ShuffledStatistic": "copies"}
    if type(protocol).__name__ not in counts:
        return 0
    shares = getattr(protocol, counts[type(protocol).__name__])
    honest = mp.log(honest_shares(protocol, stated), 2) - mp.log(mp.e, 2)
    sigma = ((shares - 2) * honest - mp.log(protocol.modulus, 2)) / 2
    times = protocol.guarantee.participations * protocol.coordinates
    return times * (1 + mp.exp(epsilon)) * mp.mpf(2) ** -sigma


def printed(guarantee: Any) -> tuple[float, float]:
    """The numbers that a reader sees."""
    found = re.match(r"\(([^,]+), ([^)]+)\)", guarantee.short)
    if found is None:
        raise TacitError(f"{guarantee.short} has no ε and δ")
    return float(found[1]), float(found[2])


def used(what: Seen, epsilon: float, delta: float) -> float:
    """The part of what is printed that is truly needed: of δ, or of ε where δ is 0."""
    if what.lattice is not None:
        return float(slow.discrete_gaussian_delta(what.lattice, what.shift, epsilon) / delta)
    if what.gaussian:
        return float(slow.gaussian_delta(what.gaussian, epsilon) / delta)
    if what.pure is not None and (delta == 0 or what.distribution is nothing):
        return float(what.copies * what.pure / epsilon)
    if what.pure is not None and what.copies * what.pure <= epsilon:
        return float(what.copies * what.pure / epsilon)
    if what.pure is not None:  # discrete Laplace noise, perhaps very wide
        return slow.laplace_delta(what.shift, what.pure, what.copies, epsilon) / delta
    distribution = what.distribution()
    if delta == 0:
        return float(what.copies * slow.largest_loss(distribution, what.shift) / epsilon)
    if what.copies == 1:
        return float(slow.delta(distribution, what.shift, epsilon) / delta)
    return slow.composed_delta(distribution, what.shift, what.copies, epsilon) / delta


def nothing() -> slow.Distribution:
    """No table: the exact loss suffices."""
    return slow.Distribution(0, [slow.UNIT])


@dataclass
class Row:
    """What was found of one algorithm: settings recomputed, those that tacit rejects, and those
    that this arithmetic does not reach.
    """

    checked: int = 0
    rejected: int = 0
    beyond: int = 0
    least: float = math.inf
    most: float = 0.0
    worst: str = ""
    seconds: float = 0.0

    def add(self, part: float, about: str) -> None:
        """One setting more."""
        self.checked, self.least = self.checked + 1, min(self.least, part)
        if part > self.most:
            self.most, self.worst = part, about

    def join(self, other: Row) -> None:
        """Everything that another row found."""
        for name in ("checked", "rejected", "beyond", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least = min(self.least, other.least)
        if other.most > self.most:
            self.most, self.worst = other.most, other.worst

    @property
    def verdict(self) -> str:
        """Whether anything is printed that is not true."""
        if not self.checked:
            return "not recomputed"
        return "holds" if self.most <= NEVER_OVER else f"OVER at {self.worst}"


def settings(entry: Algorithm, quick: bool) -> Iterator[dict[str, Any]]:
    """Options of this algorithm on a grid; only those that it has."""
    epsilons = (0.1, 1.0) if quick else (0.01, 0.1, 1.0, 8.0)
    others: list[dict[str, Any]] = [
        {},
        {"delta": 1e-9},
        {"delta": 1e-3, "dropout": 0.2},
        {"dropout": 0.3},
        {"corrupt": 0.1},
        {"dropout": 0.1, "corrupt": 0.1},
        {"participations": 3},
        {"participations": 500},
        {"trust": "central"},
        {"trust": "local"},
        {"trust": "shuffler"},
        {"trust": "shuffler", "delta": 1e-6},
        {"trust": "two-servers"},
        {"trust": "two-servers", "through": "verified"},
        *guarded(),
        {"min_batch_size": 2},  # so that small rounds are released, too
        {"min_batch_size": 2, "trust": "shuffler"},
        *returning(),
        *(
            {"contexts": "segments", "segments": 4, "arms": 2, "trust": trust}
            for trust in ("central", "local", "shuffler", "two-servers", "secure-aggregation")
        ),
        {"contexts": "interactions", "trust": "secure-aggregation"},
    ]
    for epsilon, more in itertools.product(epsilons, others):
        options = {"epsilon": epsilon, **more}
        if set(options) <= set(entry.options):
            yield options


def guarded() -> Iterator[dict[str, Any]]:
    """Two metrics of each participant, under every trust model."""
    about: dict[str, Any] = {"means": (0.4, 0.5), "control_share": 0.2, "guardrail": "errors"}
    about |= {"guardrail_means": (0.1, 0.1)}
    yield about | {"dropout": 0.1, "corrupt": 0.1, "participations": 2}
    for trust in ("central", "local", "shuffler", "two-servers"):
        yield about | {"trust": trust}
    yield about | {"trust": "shuffler", "delta": 1e-6}


def returning() -> Iterator[dict[str, Any]]:
    """Schedules of participations at silos, few enough to be enumerated."""
    few = {"silos": 10, "dimension": 2, "actions": 3, "sync": 5, "horizon": 40}
    many = {"silos": 64, "dimension": 3, "actions": 3, "sync": 5, "horizon": 320}
    yield few | {"visits": 8, "delta": 1e-5}
    yield few | {"visits": 3, "visits_per_batch": 7, "delta": 1e-5}
    yield few | {"visits": 8, "visits_per_batch": 2, "delta": 1e-3}
    yield few | {"participations": 5, "delta": 1e-5}
    yield few | {"visits": 4, "lazy": False, "delta": 1e-3}
    yield few | {"participations": 4, "lazy": False, "delta": 1e-3}
    yield few | {"visits": 8, "constants": "paper", "delta": 1e-5}
    yield few | {"budgets": ((0.5, 1e-5),) * 5 + ((2.0, 1e-5),) * 5}
    yield few | {"missing": 2, "schedule": "fixed", "visits": 3, "delta": 1e-5}
    yield few | {"sent": "prefix-sums", "visits": 4, "delta": 1e-5}
    yield many | {"visits": 64, "delta": 1e-5}


def protocols(entry: Algorithm, options: dict[str, Any], quick: bool) -> Iterator[tuple[Any, Any]]:
    """The protocols of rounds of several sizes, as an experiment with these options opens them,
    with the guarantee that is printed for the run, or for the round where only that is known.
    """
    asked = entry.make_problem(options)
    problem: Any = asked.for_environment(asked.start(0, None).world, 0)
    for binary in (False, True) if hasattr(problem, "binary") else (None,):
        chosen = problem if binary is None else replace(problem, binary=binary)
        experiment = entry.build(chosen)
        mechanism: Any = experiment.mechanism
        released = [round_ for round_ in experiment.propose() if round_.released]
        first = experiment.open(released[0]) if released else None  # a batch may exceed the horizon
        yield first, stated_for(mechanism, first)
        if entry.family == "linear" and released:
            for round_ in phases(released[0], quick):
                try:
                    protocol = mechanism.open(round_)
                except TacitError:
                    yield None, None
                else:
                    yield protocol, stated_for(mechanism, protocol)
        if entry.family == "arms" and hasattr(mechanism, "make"):
            for size in SIZES[:5] if quick else SIZES:
                try:
                    rounds = [Round(len(released), size, Arm(0), True)]
                    protocol = mechanism.open(rounds[0])
                except TacitError:
                    yield None, None
                else:
                    yield protocol, stated_for(mechanism, protocol)


def phases(first: Round, quick: bool) -> Iterator[Round]:
    """Later phases of a linear bandit, like its first: larger ones, and one of fitted parameters
    where clients report vectors.
    """
    design: Any = first.assignment
    for size in (40,) if quick else (40, 100_000):
        plays = (size,) * len(design.plays)
        people = sum(plays) if design.each else size
        yield replace(first, participants=people, assignment=replace(design, plays=plays))
    if not design.each:
        d = 5
        solve = tuple(tuple(float(i == j) for i in range(d)) for j in range(d))
        about = (design.support, design.plays, design.length)
        yield replace(
            first, participants=1000, assignment=Fit(*about, solve=solve, centre=(0.0,) * d)
        )


def stated_for(mechanism: Any, protocol: Any) -> Any:
    """The guarantee that readers are shown of a round: the run's, if it is known beforehand."""
    return mechanism.guarantee or (None if protocol is None else protocol.guarantee)


def honest_shares(protocol: Any, stated: Any) -> int:
    """How many honest participants' shares are in a round, the participant's own among them, when
    as many are missing and dishonest as the stated assumptions allow. Without an assumption
    everybody else is dishonest.
    """
    people = int(protocol.participants)
    limits = [one.limit(people) for one in stated.assumptions if isinstance(one, DishonestAtMost)]
    kept = [one.fraction for one in stated.assumptions if isinstance(one, ReleasedOnlyAbove)]
    reports = math.ceil(max(kept) * people) if kept else people
    return max(1, reports - (min(limits) if limits else people - 1))


def verify(name: str, options: dict[str, Any], quick: bool) -> Row:
    """Everything that this algorithm prints with these options."""
    row, entry, started = Row(), algorithms()[name], time.process_time()
    try:
        found = list(protocols(entry, options, quick))
    except TacitError:
        return Row(rejected=1)
    for protocol, stated in found:
        if protocol is None or stated is None:
            row.rejected += 1
            continue
        try:
            epsilon, delta = printed(stated)
            part = used(seen(protocol, stated), epsilon, delta)
            mixed = mixing(protocol, stated, epsilon)
            part = max(part, float(mixed / delta)) if mixed else part
        except TacitError:
            row.beyond += 1
            continue
        row.add(part, f"{options}, {protocol.participants} participants, {stated.short}")
    row.seconds = time.process_time() - started
    return row


def verify_terms(setting: live.Setting) -> Row:
    """The weakest terms and rounds of a live experiment."""
    row, started = Row(), time.process_time()
    found = moments if setting.noise == "discrete-gaussian" and setting.chosen else live
    try:
        for part, about in found.used(setting):
            row.add(part, about)
    except TacitError:
        row.beyond += 1
    row.seconds = time.process_time() - started
    return row


def jobs(only: str, quick: bool) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """The rows of the table, each with the calls that fill it."""
    for name, entry in algorithms().items():
        if only in name and "epsilon" in entry.options:
            yield name, [(verify, name, one, quick) for one in settings(entry, quick)]
    stated: dict[str, list[tuple[Any, ...]]] = {}
    for setting in (*live.settings(quick), *moments.settings(quick)):
        kinds = {MomentTerms: "moments", FittedTerms: "fits"}
        about = kinds.get(type(setting.context), setting.trust.value)
        stated.setdefault(f"terms {about}", []).append((verify_terms, setting))
    yield from ((name, calls) for name, calls in stated.items() if only in name)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer values of everything")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    asked = parser.parse_args()
    print(
        f"{'algorithm':25}{'checked':>8}{'rejected':>9}{'beyond':>7}"
        f"{'slack: of ε or δ used':>24}{'CPU s':>7}  verdict",
        flush=True,
    )
    held = True
    with ProcessPoolExecutor(asked.workers) as pool:
        waiting = {
            name: [pool.submit(*call) for call in calls]
            for name, calls in jobs(asked.only, asked.quick)
        }
        for name, parts in waiting.items():
            row = Row()
            for part in parts:
                row.join(part.result())
            share = f"{row.least:.4f} to {row.most:.6f}" if row.checked else ""
            print(
                f"{name:25}{row.checked:8}{row.rejected:9}{row.beyond:7}{share:>24}"
                f"{row.seconds:7.0f}  {row.verdict}",
                flush=True,
            )
            held = held and row.most <= NEVER_OVER
    print("no printed number is below the truth" if held else "FAILED: see OVER above")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
