"""Privacy auditing: a lower confidence bound on ε from samples of a mechanism's output.

The attack chooses an event on one half of the samples and measures it on the other, so the choice
costs no confidence. The false positive rate is the stated 1 - confidence: otherwise the bound never
exceeds the true ε. A mechanism with half its noise is detected when the bound exceeds its claim. A
low bound proves nothing: an audit refutes guarantees, it does not establish them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, erfcinv

from tacit.errors import TacitError, integer, probability

Floats = npt.NDArray[np.float64]
MOST_SAMPLES = 50_000_000
MOST_EVENTS = 1 << 16
MOST_COUNTED = 1e15  # beyond this no number of samples is reported


@dataclass(frozen=True)
class Audit:
    """The result of an audit: ε is at least `epsilon` with the stated confidence.

    The refuting event is {output >= threshold} if `above`, else {output <= threshold}.

    Parameters
    ----------
    epsilon : float
        The lower confidence limit of ε.
    confidence : float
        The confidence level of that limit.
    samples : int
        The number of outputs per input on which it is based.
    threshold : float
        The threshold of the refuting event.
    above : bool
        Whether the event is {output >= threshold}.
    swapped : bool
        Whether the event is the more likely one for the second input.
    """

    epsilon: float
    confidence: float
    samples: int
    threshold: float
    above: bool
    swapped: bool

    def refutes(self, claimed: float) -> bool:
        """Whether the claimed ε is refuted."""
        return self.epsilon > claimed


def audit(
    mechanism: Callable[[Any, int], npt.ArrayLike],
    x: Any,
    x_prime: Any,
    samples: int,
    *,
    delta: float = 0.0,
    confidence: float = 0.999,
) -> Audit:
    """Return a lower bound on the ε, at this δ, of a mechanism with numeric output.

    Parameters
    ----------
    mechanism : callable
        `mechanism(input, count)` returns `count` independent outputs.
    x, x_prime
        Neighbouring inputs.
    samples : int
        Number of outputs on each input.
    delta : float
    confidence : float

    Returns
    -------
    Audit

    Notes
    -----
    Half of the samples choose the event of the best ratio among {output >= t} and {output <= t}, in
    both directions. The other half bound its two probabilities by Clopper-Pearson, each with half
    of the error probability. Then P[E] <= e^ε P'[E] + δ gives ε >= ln((P_low - δ) / P'_high).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noisy = lambda value, count: value + np.floor(rng.laplace(scale=1.0, size=count) + 0.5)
    >>> result = audit(noisy, 0, 1, samples=20_000)
    >>> 0.5 < result.epsilon < 1.0
    True
    """
    count = integer(
        "samples", samples, at_least=100, remedy="fewer samples have no statistical power"
    )
    if count > MOST_SAMPLES:
        raise TacitError(
            f"samples is {count:.3g}; all are kept in memory: use at most {MOST_SAMPLES:,}"
        )
    probability("confidence", confidence)
    probability("delta", delta, zero=True)
    one, other = (_outputs(mechanism, value, count) for value in (x, x_prime))
    return lower_bound(one, other, delta=delta, confidence=confidence)


def lower_bound(
    one: Floats, other: Floats, *, delta: float = 0.0, confidence: float = 0.999
) -> Audit:
    """The same from given outputs, equally many on each input; with very few the bound is 0."""
    error, half = 1 - confidence, len(one) // 2
    if half == 0:
        return Audit(0.0, confidence, len(one), 0.0, True, False)
    threshold, above, swapped = _choose(one[:half], other[:half], delta)
    first, second = (other[half:], one[half:]) if swapped else (one[half:], other[half:])
    hits, misses = (
        int(np.count_nonzero(s >= threshold if above else s <= threshold)) for s in (first, second)
    )
    low = float(betaincinv(hits, len(first) - hits + 1, error / 2)) if hits else 0.0
    high = (
        float(betaincinv(misses + 1, len(second) - misses, 1 - error / 2))
        if misses < len(second)
        else 1.0
    )
    epsilon = math.log((low - delta) / high) if low > delta else 0.0
    return Audit(max(0.0, epsilon), confidence, len(one), float(threshold), above, swapped)


def samples_to_refute(
    p: Floats, q: Floats, claimed: float, *, delta: float = 0.0, confidence: float = 0.999
) -> int | None:
    """Approximate number of samples on each input that an audit needs to refute a claimed ε.

    `p` and `q` are the probabilities of the outputs on one grid. None where no number suffices. The
    events are half-lines, with Clopper-Pearson bounds by the normal approximation. Half of the
    samples choose the event.

    >>> from tacit.noise import DiscreteLaplace
    >>> points = np.arange(-60, 61)
    >>> p, q = (DiscreteLaplace(0.5).pmf(points - shift) for shift in (0, 1))
    >>> samples_to_refute(p, q, 1.0), samples_to_refute(p, q, 2.0)
    (455, None)
    """
    z = math.sqrt(2) * float(erfcinv(1 - confidence))
    places = np.unique(np.linspace(0, len(p) - 1, MOST_EVENTS).round().astype(int))
    events = [
        (np.cumsum(a)[places], np.cumsum(b)[places])
        for a, b in ((p, q), (q, p), (p[::-1], q[::-1]), (q[::-1], p[::-1]))
    ]

    def refuted(count: float) -> bool:
        for hit, missed in events:
            low = hit - z * np.sqrt(hit / count) - delta
            high = missed + z * np.sqrt(missed / count) + z * z / count
            if np.any(low > math.exp(claimed) * high * (1 + 1e-9)):
                return True
        return False

    count = 8.0
    while not refuted(count):
        count *= 1.25
        if count > MOST_COUNTED:
            return None
    return math.ceil(2 * count)


def _outputs(mechanism: Callable[[Any, int], npt.ArrayLike], value: Any, count: int) -> Floats:
    outputs = np.asarray(mechanism(value, count), dtype=float)
    if outputs.shape != (count,):
        raise TacitError(
            f"the mechanism returned outputs of shape {outputs.shape}; an audit needs {count} "
            "numbers in one row"
        )
    if np.isnan(outputs).any():
        raise TacitError(
            "the mechanism returned outputs that are not numbers (NaN): an audit can only order "
            "numbers"
        )
    return outputs


def _choose(one: Floats, other: Floats, delta: float) -> tuple[float, bool, bool]:
    """The threshold, side and direction with the largest estimated ln ratio.

    Three standard errors are subtracted, so that rare events do not win by chance.
    """
    thresholds = np.unique(np.concatenate([one, other]))
    if len(thresholds) > 4096:
        thresholds = np.unique(np.quantile(thresholds, np.linspace(0, 1, 4096), method="nearest"))
    best = (-math.inf, float(thresholds[0]), True, False)
    for swapped, (p_side, q_side) in ((False, (one, other)), (True, (other, one))):
        p_sorted, q_sorted = np.sort(p_side), np.sort(q_side)
        for above in (True, False):
            if above:
                p = len(p_side) - np.searchsorted(p_sorted, thresholds, side="left")
                q = len(q_side) - np.searchsorted(q_sorted, thresholds, side="left")
            else:
                p = np.searchsorted(p_sorted, thresholds, side="right")
                q = np.searchsorted(q_sorted, thresholds, side="right")
            numerator = (p - 3 * np.sqrt(p + 1)) / len(p_side) - delta
            denominator = (q + 3 * np.sqrt(q + 1)) / len(q_side)
            with np.errstate(divide="ignore", invalid="ignore"):
                score = np.where(numerator > 0, np.log(numerator / denominator), -np.inf)
            index = int(np.argmax(score))
            if score[index] > best[0]:
                best = (float(score[index]), float(thresholds[index]), above, swapped)
    return best[1], best[2], best[3]
