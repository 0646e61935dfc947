"""Goodness of fit of exact draws: distribution, independence and source of randomness.

`p_value` is a likelihood-ratio test whose p-value is an upper bound at every sample size (Agrawal
2020, relative entropy of a multinomial), so a false positive rate of 1e-9 is met where the
chi-square approximation is off by orders of magnitude. `dependent_lag` bounds serial correlation by
Freedman's inequality. Neither assumes anything about the distribution that is tested against.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tacit.noise.distribution import Floats, Integers, NoiseDistribution

MOST_CLASSES = 40
FEWEST_PER_CLASS = 4  # draws per class on average; more classes than that cost power
REPEATED_DRAWS = 64
ATTEMPTS = 5  # after which draws that are 0 with probability 0.95 repeat by chance once in 10^12
LEAST = 1e-15  # probability of a class below which rounding decides


def p_value(values: Sequence[int] | Integers, distribution: NoiseDistribution) -> float:
    """An upper bound on the p-value of integer draws against a distribution.

    Parameters
    ----------
    values
        Independent draws.
    distribution
        The distribution under the null hypothesis.

    Returns
    -------
    float
        exp(-G) (eG / (k - 1))^(k - 1) for k classes, G the number of draws times the relative
        entropy of their frequencies; 1 where G is at most k - 1.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> p_value([0] * 100, DiscreteLaplace(4)) < 1e-9
    True
    """
    observed = np.asarray(values, dtype=np.int64)
    size = len(observed)
    low, high = distribution.window(-40.0)
    points = np.arange(low, high + 1)
    masses = distribution.pmf(points)
    classes = min(MOST_CLASSES, max(2, size // FEWEST_PER_CLASS))
    places, expected = _classes(masses, classes)
    inside = (observed >= low) & (observed <= high)
    counts = np.bincount(places[observed[inside] - low], minlength=len(expected)).astype(float)
    counts = np.append(counts, size - inside.sum())
    expected = np.append(expected, 1 - expected.sum()).clip(min=LEAST)
    seen = counts > 0
    statistic = float(counts[seen] @ np.log(counts[seen] / (size * expected[seen])))
    freedom = len(expected) - 1
    if statistic <= freedom:
        return 1.0
    return math.exp(-statistic + freedom * (1 + math.log(statistic / freedom)))


def _classes(masses: Floats, most: int) -> tuple[Integers, Floats]:
    """The class of each point, with classes of about equal probability, and the class
    probabilities.
    """
    places, current = np.zeros(len(masses), dtype=np.int64), 0.0
    joined: list[float] = []
    for place, mass in enumerate(masses.tolist()):
        places[place] = len(joined)
        current += mass
        if current >= 1 / most:
            joined.append(current)
            current = 0.0
    joined.append(current)
    return places, np.array(joined)


def scores(
    values: Sequence[int] | Integers, distribution: NoiseDistribution
) -> tuple[Floats, float]:
    """Each draw's centred rank in [-1/2, 1/2], and the variance of that under the distribution."""
    low, high = distribution.window(-40.0)
    masses = distribution.pmf(np.arange(low, high + 1))
    ranks = np.cumsum(masses) - masses / 2 - 0.5
    ranks -= float(masses @ ranks)
    found: Floats = ranks[np.clip(np.asarray(values, dtype=np.int64), low, high) - low]
    return found, float(masses @ ranks**2)


def dependent_lag(ranks: Floats, variances: Floats, rate: float) -> int | None:
    """The first lag at which consecutive draws are correlated, or None.

    Parameters
    ----------
    ranks, variances
        Centred values in [-1, 1] and the variance of each, see `scores`.
    rate
        The false positive rate over all lags together.

    Notes
    -----
    Products of independent centred values are martingale differences, at most 1 in size, so their
    sum S has P[|S| > t] <= 2 exp(-t² / (2V + 2t/3)), V the sum of their variances (Freedman 1975).
    """
    size = len(ranks)
    lags = size // 2
    if lags < 1:
        return None
    padded = 2 * size
    sums = _correlation(ranks, padded)[1 : lags + 1]
    spread = _correlation(variances, padded)[1 : lags + 1].clip(min=0.0)
    log = math.log(2 * lags / rate)
    allowed = log / 3 + np.sqrt(log**2 / 9 + 2 * spread * log)
    found = np.flatnonzero(np.abs(sums) > allowed + 1e-6)
    return int(found[0]) + 1 if len(found) else None


def _correlation(values: Floats, padded: int) -> Floats:
    spectrum = np.fft.rfft(values, padded)
    found: Floats = np.fft.irfft(np.abs(spectrum) ** 2, padded)
    return found


def seeded(draw: Callable[[], Any], generators: Iterable[Any] = ()) -> bool:
    """Whether draws repeat after pseudo-random generators are reset to the same state.

    Resets Python's and NumPy's global generators, and those given. Constant draws do not count.
    Draws that are nearly always the same repeat by chance now and then, so they must repeat in
    every one of `ATTEMPTS` attempts.
    """
    own = [_state(generator) for generator in generators]
    varied = False
    for _ in range(ATTEMPTS):
        first, second = _drawn_twice(draw, own)
        if first != second:
            return False
        varied = varied or len(set(first)) > 1
    return varied


def _drawn_twice(
    draw: Callable[[], Any], own: list[Callable[[], None]]
) -> tuple[list[str], list[str]]:
    """Draws from the same state of all pseudo-random generators, two times."""
    ours, numpys, seen = random.getstate(), np.random.get_state(), []  # noqa: NPY002
    try:
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)  # noqa: NPY002 - the global state that a device must not use
            for restore in own:
                restore()
            seen.append([str(draw()) for _ in range(REPEATED_DRAWS)])
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002
    return seen[0], seen[1]


def is_pseudo_random(value: Any) -> bool:
    """Whether this is a pseudo-random number generator with a state that can be restored."""
    if isinstance(value, (np.random.Generator, np.random.RandomState)):
        return True
    return isinstance(value, random.Random) and not isinstance(value, random.SystemRandom)


def _state(generator: Any) -> Callable[[], None]:
    """A function that restores a generator to its current state."""
    if isinstance(generator, np.random.Generator):
        bits, state = generator.bit_generator, generator.bit_generator.state
        return lambda: setattr(bits, "state", state)
    if isinstance(generator, np.random.RandomState):
        kept = generator.get_state()
        return lambda: generator.set_state(kept)
    held = generator.getstate()
    return lambda: generator.setstate(held)
