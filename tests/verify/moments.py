"""Moments of contexts and fitted parameters, recomputed from pairs of reports that devices make.

Replacing a participant replaces one vector of integers by another. Pairs of features around the
worst angle, of full length and shorter, with equal and opposite rewards, give a lower bound on how
far that moves the sums; noise of a width of thousands is a Gaussian to far less than 1e-9 of δ.
Towards outsiders the noise of both servers counts, in rounds of policies and in the slice.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from tests.verify import arithmetic as slow
from tests.verify.live import FIT, Setting, honest_reports, weakest_rounds, weakest_terms

from tacit.contextual.feature_maps import BoundedNumber, FeatureMap
from tacit.contextual.fitted import FitReport
from tacit.contextual.statistics import MomentReport, ScaledMomentReport
from tacit.terms.context import FittedTerms, MomentTerms, NumberField, in_units
from tacit.terms.words import outsiders
from tacit.trust import TrustModel

ANGLES = 24
OPENINGS = (math.pi / 2, 0.6 * math.pi, 2 * math.pi / 3, 0.72 * math.pi, math.pi)


def pairs(report: MomentReport) -> Iterator[tuple[list[int], list[int]]]:
    """Reports of two participants, as devices make them."""
    for turn, opening, short in itertools.product(range(ANGLES), OPENINGS, (1.0, 0.8)):
        angle = math.pi * turn / ANGLES
        one, other = (
            _features(report, where, length)
            for where, length in ((angle, 1.0), (angle + opening, short))
        )
        for first, second in ((0, 0), (report.levels, report.levels), (0, report.levels)):
            yield report.vector(one, first), report.vector(other, second)


def _features(report: MomentReport, angle: float, length: float) -> list[int]:
    """In the plane of the first two features, rounded towards 0."""
    wide = length * report.resolution
    return [int(wide * math.cos(angle)), int(wide * math.sin(angle))] + [0] * (report.dimension - 2)


@lru_cache(maxsize=16)
def moved(report: MomentReport) -> Any:
    """Differences of all pairs, in the report's integers."""
    return np.array([[b - a for a, b in zip(*pair, strict=True)] for pair in pairs(report)], float)


def farthest_fit(report: FitReport) -> float:
    """The largest distance between the reports of any two participants with the same policy."""
    answers = itertools.product(range(report.levels + 1), repeat=len(FIT.sequence))
    made = np.array([report.vector(FIT, played) for played in answers], float)
    return float(max(np.linalg.norm(made - one, axis=1).max() for one in made))


def farthest(report: MomentReport, widths: Sequence[float]) -> float:
    """How many standard deviations replacing a participant moves all numbers, at least."""
    return float(np.linalg.norm(moved(report) / np.asarray(widths), axis=1).max())


def context(features: int) -> MomentTerms:
    """Numbers as features, in the plane of which any direction is possible."""
    fields = tuple(NumberField(f"x{k}", Fraction(-1), Fraction(1)) for k in range(features))
    scale = 0.99 / math.sqrt(features)
    matrix = tuple(
        tuple(scale if column == row + 1 else 0.0 for column in range(features + 1))
        for row in range(features)
    )
    coded = tuple(BoundedNumber(one.name, -1.0, 1.0) for one in fields)
    made = FeatureMap(coded, ("old", "new"), (matrix, matrix))
    return MomentTerms(fields, evaluation=Fraction(1, 5), matrices=in_units(made))


def settings(quick: bool) -> Iterator[Setting]:
    """Over two servers, and by secure aggregation with as many missing and dishonest."""
    numbers = ((2, 1),) if quick else ((2, 1), (3, 4), (5, 1))
    epsilons = (Fraction(1),) if quick else (Fraction(1, 3), Fraction(1), Fraction(6))
    for (features, levels), epsilon in itertools.product(numbers, epsilons):
        about: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": Fraction(1, 10**6),
            "levels": levels,
            "context": context(features),
            "chosen": True,
        }
        yield Setting(TrustModel.TWO_SERVERS, "discrete-gaussian", "servers", **about)
        for slots, missing in ((20, Fraction(0)), (200, Fraction(1, 5))):
            more: dict[str, Any] = {"slots": slots, "missing": missing, "dishonest": 2}
            more |= {"fraction": Fraction(1, 8)}
            yield Setting(TrustModel.SECURE_AGGREGATION, "discrete-gaussian", **about, **more)
        about["context"] = FittedTerms((), dimension=3, plays=4)
        yield Setting(TrustModel.TWO_SERVERS, "discrete-gaussian", "servers", **about)
        yield Setting(TrustModel.SECURE_AGGREGATION, "discrete-gaussian", **about, **more)


def used(setting: Setting) -> Iterator[tuple[float, str]]:
    """The part of the stated δ that is truly needed in the weakest rounds of policies."""
    pinned = weakest_terms(setting)
    terms = pinned.terms
    assert isinstance(terms.context, MomentTerms | FittedTerms)
    report = terms.context.report(2, setting.levels)
    far = (
        farthest_fit(report)
        if isinstance(report, FitReport)
        else farthest(report, [1.0] * report.size)
    )
    masks = 2.0**-40 if setting.trust is TrustModel.SECURE_AGGREGATION else 0.0
    for offer in weakest_rounds(setting, pinned):
        width = offer.scale
        if width is None:
            assert offer.total is not None
            assert offer.divisor is not None
            honest = honest_reports(terms.document(), offer)
            width = offer.total * Fraction(math.sqrt(honest / offer.divisor))
        needed = float(slow.gaussian_delta(far / float(width), float(pinned.check(offer)))) + masks
        about = f"{setting.trust.value}, {report}, {offer.minimum} of {offer.slots}"
        yield needed / float(terms.guarantee.delta), about
    if setting.trust is TrustModel.TWO_SERVERS:
        yield from used_outside(setting, report, far)


def used_outside(
    setting: Setting, report: ScaledMomentReport | FitReport, far: float
) -> Iterator[tuple[float, str]]:
    """The same of what terms say towards everybody but the two servers, in rounds of either kind
    and with several metrics in the slice; fits have none.
    """
    sliced = not isinstance(report, FitReport)
    for metrics in (1, 3) if sliced else (1,):
        terms = weakest_terms(replace(setting, metrics=metrics)).terms
        (said,) = outsiders(terms)
        found = re.search(r"\(([0-9.e+-]+), ", said)
        assert found is not None
        epsilon, delta = float(found[1]), float(terms.guarantee.delta)
        width = float(terms.noise.least) * math.sqrt(2)
        needed = float(slow.gaussian_delta(far / width, epsilon))
        yield needed / delta, f"outsiders, {report}"
        if not sliced:
            return
        scale = terms.least_noise(chosen=False)
        both = slow.power(slow.laplace(scale), 2)
        needed = slow.composed_delta(both, setting.levels, metrics, epsilon)
        if metrics == 1:
            needed = float(slow.delta(both, setting.levels, epsilon))
        yield needed / delta, f"outsiders, slice of {metrics} metrics"
