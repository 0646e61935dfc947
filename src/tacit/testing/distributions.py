"""Contract suite of noise distributions."""

from __future__ import annotations

import json
import math
from copy import copy

import numpy as np

from tacit.errors import TacitError
from tacit.noise import NoiseDistribution, convolve
from tacit.noise.serialize import distribution_from_dict, distribution_to_dict
from tacit.testing.losses import check_losses
from tacit.testing.statistics import SEEDED, UNSEEDED, check_source, chi_square_p_value


def check_distribution(
    distribution: NoiseDistribution, *, samples: int = 20_000, draws: int = 1_000
) -> None:
    """Check that a noise distribution fulfils its contract.

    It compares probabilities, moments, tails, shares, statements about the privacy loss and both
    samplers, and stores and restores the distribution.

    Parameters
    ----------
    distribution : NoiseDistribution
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
    >>> check_distribution(DiscreteLaplace(2))
    """
    _check_probabilities(distribution)
    _check_tails(distribution)
    _check_shares(distribution)
    check_losses(distribution)
    drawn = np.asarray(distribution.sample(np.random.default_rng(5), samples))
    assert drawn.dtype.kind == "i", "sample() must give integers"
    assert chi_square_p_value(drawn.tolist(), distribution) > SEEDED, (
        "sample() does not follow pmf()"
    )
    exact = [distribution.draw() for _ in range(draws)]
    assert all(type(value) is int for value in exact), "draw() must give Python integers"
    assert chi_square_p_value(exact, distribution) > UNSEEDED, "draw() does not follow pmf()"
    assert len(distribution.draw(7)) == 7, "draw(7) must give seven values"
    if distribution.variance:
        check_source(distribution.draw, "draw()")
    twin = copy(distribution)
    assert twin == distribution, "equal distributions must compare equal"
    assert hash(twin) == hash(distribution), "equal distributions must have equal hashes"
    stored = json.loads(json.dumps(distribution_to_dict(distribution)))
    restored = distribution_from_dict(stored)
    points = np.arange(-3, 4) + round(distribution.mean)
    assert np.array_equal(restored.log_pmf(points), distribution.log_pmf(points)), (
        "pmf() must be restored"
    )


def _check_probabilities(distribution: NoiseDistribution) -> None:
    """The probabilities sum to 1 and have the stated mean and variance."""
    low, high = distribution.window(-45.0)
    points = np.arange(low, high + 1)
    pmf = distribution.pmf(points)
    assert abs(pmf.sum() - 1) < 1e-9, f"probabilities add up to {pmf.sum()}"
    mean = float(points @ pmf)
    variance = float((points - mean) ** 2 @ pmf)
    scale = max(1.0, math.sqrt(variance))
    assert abs(mean - distribution.mean) < 1e-6 * scale, (
        f"the mean is {mean}, not {distribution.mean}"
    )
    assert abs(variance - float(distribution.variance)) < 1e-5 * scale**2, (
        f"the variance is {variance}"
    )
    s = 0.3 * min(distribution.mgf_radius, 1 / scale)
    known = math.log(float(np.exp(s * (points - mean)) @ pmf)) + s * mean
    assert abs(float(distribution.log_mgf(s)) - known) < 1e-6, "log_mgf differs from that of pmf()"
    value, slope, curve = distribution.cumulants()(s)
    assert value >= known - s * mean - 1e-6, "cumulants() must not be below the true ones"
    assert slope > 0 or not variance, "K' has the sign of s"
    assert curve > 0 or not variance, "K is convex"
    if distribution.symmetric:
        mirrored = distribution.pmf(round(2 * distribution.mean) - points)
        assert np.allclose(pmf, mirrored, rtol=1e-6, atol=1e-12), "pmf() is not symmetric"


def _check_tails(distribution: NoiseDistribution) -> None:
    """Tail bounds hold on both sides."""
    low, high = distribution.window(-45.0)
    points = np.arange(low, high + 1)
    pmf = distribution.pmf(points)
    for t in (
        round(distribution.mean),
        round(distribution.mean + distribution.std),
        round(distribution.mean + 3 * distribution.std),
    ):
        beyond = float(pmf[points > t].sum())
        assert abs(distribution.tail(t) - beyond) <= 1e-9 + 1e-6 * beyond, (
            f"tail({t}) is not {beyond}"
        )
    for p in (0.3, 0.01):
        bound, centre = distribution.bound(p), round(distribution.mean)
        outside = float(pmf[np.abs(points - centre) > bound].sum())
        assert outside <= p * (1 + 1e-6) + 1e-12, f"bound({p}) is exceeded too often"


def _check_shares(distribution: NoiseDistribution) -> None:
    """Three shares add up to the distribution, exactly or within the stated distance."""
    try:
        share = distribution.approximate_share(3)
    except TacitError:
        return  # not divisible, and rejected as such
    total = convolve(convolve(share, share), share)
    low, high = distribution.window(-25.0)
    points = np.arange(low, high + 1)
    allowed = share.closeness(3) + 1e-6
    with np.errstate(invalid="ignore"):
        apart = np.abs(total.log_pmf(points) - distribution.log_pmf(points))
    assert np.nanmax(apart) <= allowed, f"the sum of three shares differs by {np.nanmax(apart):.3g}"
    assert float(share.variance) < float(distribution.variance), (
        "a share has less noise than the sum"
    )
