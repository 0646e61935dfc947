"""Comparison of a sum protocol's stated error distribution with the exact one.

The exact distribution comes from `released_distribution`, for the smallest, a middle and the
largest sum: an
error bound must hold for all participants' data. Probabilities of at most `misread` (and rounding)
are left out of sums and allowed for in tails.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from tacit.noise.table import entries
from tacit.protocols.contract import SumProtocol
from tacit.types import Aggregate

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEVELS = tuple(10.0**-k for k in range(1, 13))
TILTS = (0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)  # in standard deviations
FINITE = 0.5  # tilt up to which a log-MGF must be finite
ROUNDING = 1e-14
TOLERANCE = 1e-3  # relative, of mean and variance: rare events may be bounded instead of summed


def exact_error(protocol: SumProtocol, total: int, reports: int) -> tuple[Floats, Floats]:
    """All errors of the estimated sum of rewards, with their probabilities."""
    start, probabilities = entries(protocol.released_distribution(total, reports))
    values = range(start, start + len(probabilities))
    sums = [protocol._sum(Aggregate((value,), reports)) for value in values]
    return (np.array(sums) - total) / protocol.precision, probabilities


def check_error(protocol: SumProtocol, reports: int) -> None:
    """Check mean, variance, log-MGF, and `radius(p)` for p from 0.1 to 1e-12."""
    error, top = protocol.error(reports), reports * protocol.precision
    assert error.participants == reports, "the error distribution counts the reports"
    rare = error.misread + ROUNDING
    widest = 0.0
    for total in sorted({0, top // 2, top}):
        off, probabilities = exact_error(protocol, total, reports)
        kept = probabilities > rare
        mean, variance = _moments(off[kept], probabilities[kept])
        spread = np.sqrt(variance)
        widest = max(widest, variance)
        assert abs(mean) <= TOLERANCE * spread + 1e-9, f"errors have mean {mean:.4g}, not 0"
        for p in LEVELS:
            radius = error.radius(p)
            exceeded = float(probabilities[np.abs(off) > radius + 1e-9].sum())
            assert exceeded <= p * (1 + 1e-6) + rare, (
                f"bound({p:g}) is {radius:.4g}: exceeded with probability {exceeded:.3g} at a sum "
                f"of {total} in {reports} reports"
            )
        for tilt, sign in product(TILTS, (1, -1)):
            s = sign * tilt / max(spread, 1e-9)
            stated = float(error.log_mgf(s))
            exact = float(np.logaddexp.reduce(np.log(probabilities[kept]) + s * off[kept]))
            room = np.log(rare) + float((s * off[kept]).max()) + np.log(kept.sum())
            assert exact <= np.logaddexp(stated, room) + 1e-9, (
                f"log_mgf({s:.4g}) is {stated:.6g}: below the exact {exact:.6g} at a sum of {total}"
            )
            assert tilt > FINITE or stated < np.inf, f"log_mgf({s:.4g}) is infinite"
    assert abs(error.variance - widest) <= TOLERANCE * max(widest, error.variance) + 1e-12, (
        f"the stated variance is {error.variance:.6g}; the exact one is {widest:.6g}"
    )


def _moments(off: Floats, probabilities: Floats) -> tuple[float, float]:
    weights = probabilities / probabilities.sum()
    mean = float(off @ weights)
    return mean, float((off - mean) ** 2 @ weights)
