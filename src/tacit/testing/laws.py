"""Contract suite of noise distributions."""

from __future__ import annotations

import json
import math

import numpy as np

from tacit.errors import TacitError
from tacit.noise import NoiseLaw, convolve
from tacit.noise.serialize import law_from_dict, law_to_dict
from tacit.testing.statistics import SEEDED, UNSEEDED, check_source, follows


def check_law(law: NoiseLaw, *, samples: int = 20_000, draws: int = 1_000) -> None:
    """Check that a noise distribution fulfils its contract.

    It compares probabilities, moments, tails, shares and both samplers, and stores and restores the
    distribution.

    Parameters
    ----------
    law : NoiseLaw
    samples : int
        Simulated values; chi-square at a false positive rate of 1e-6.
    draws : int
        Exact values; chi-square at a false positive rate of 1e-9.

    Raises
    ------
    AssertionError
        If the distribution violates its contract.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> check_law(DiscreteLaplace(2))
    """
    _check_probabilities(law)
    _check_tails(law)
    _check_shares(law)
    drawn = np.asarray(law.sample(np.random.default_rng(5), samples))
    assert drawn.dtype.kind == "i", "sample() must give integers"
    assert follows(drawn.tolist(), law) > SEEDED, "sample() does not follow pmf()"
    exact = [law.draw() for _ in range(draws)]
    assert all(type(value) is int for value in exact), "draw() must give Python integers"
    assert follows(exact, law) > UNSEEDED, "draw() does not follow pmf()"
    assert len(law.draw(7)) == 7, "draw(7) must give seven values"
    if law.variance:
        check_source(law.draw, "draw()")
    assert hash(law) == hash(law) and law == law, "equal distributions must have equal hashes"  # noqa: PT018
    stored = json.loads(json.dumps(law_to_dict(law)))
    restored = law_from_dict(stored)
    points = np.arange(-3, 4) + round(law.mean)
    assert np.array_equal(restored.log_pmf(points), law.log_pmf(points)), "pmf() must be restored"


def _check_probabilities(law: NoiseLaw) -> None:
    low, high = law.window(-45.0)
    points = np.arange(low, high + 1)
    pmf = law.pmf(points)
    assert abs(pmf.sum() - 1) < 1e-9, f"probabilities add up to {pmf.sum()}"
    mean = float(points @ pmf)
    variance = float((points - mean) ** 2 @ pmf)
    scale = max(1.0, math.sqrt(variance))
    assert abs(mean - law.mean) < 1e-6 * scale, f"the mean is {mean}, not {law.mean}"
    assert abs(variance - float(law.variance)) < 1e-5 * scale**2, f"the variance is {variance}"
    s = 0.3 * min(law.mgf_radius, 1 / scale)
    known = math.log(float(np.exp(s * (points - mean)) @ pmf)) + s * mean
    assert abs(float(law.log_mgf(s)) - known) < 1e-6, "log_mgf differs from that of pmf()"
    value, slope, curve = law.cumulants()(s)
    assert value >= known - s * mean - 1e-6, "cumulants() must not be below the true ones"
    assert slope > 0 or not variance, "K' has the sign of s"
    assert curve > 0 or not variance, "K is convex"
    if law.symmetric:
        mirrored = law.pmf(round(2 * law.mean) - points)
        assert np.allclose(pmf, mirrored, rtol=1e-6, atol=1e-12), "pmf() is not symmetric"


def _check_tails(law: NoiseLaw) -> None:
    low, high = law.window(-45.0)
    points = np.arange(low, high + 1)
    pmf = law.pmf(points)
    for t in (round(law.mean), round(law.mean + law.std), round(law.mean + 3 * law.std)):
        beyond = float(pmf[points > t].sum())
        assert abs(law.tail(t) - beyond) <= 1e-9 + 1e-6 * beyond, f"tail({t}) is not {beyond}"
    for p in (0.3, 0.01):
        bound, centre = law.bound(p), round(law.mean)
        outside = float(pmf[np.abs(points - centre) > bound].sum())
        assert outside <= p * (1 + 1e-6) + 1e-12, f"bound({p}) is exceeded too often"


def _check_shares(law: NoiseLaw) -> None:
    """Three shares add up to the distribution, exactly or within the stated distance."""
    try:
        share = law.nearby_share(3)
    except TacitError:
        return  # not divisible, and rejected as such
    total = convolve(convolve(share, share), share)
    low, high = law.window(-25.0)
    points = np.arange(low, high + 1)
    allowed = share.closeness(3) + 1e-6
    with np.errstate(invalid="ignore"):
        apart = np.abs(total.log_pmf(points) - law.log_pmf(points))
    assert np.nanmax(apart) <= allowed, f"the sum of three shares differs by {np.nanmax(apart):.3g}"
    assert float(share.variance) < float(law.variance), "a share has less noise than the sum"
