"""Clients' own parameter fits, reported in a ball: choice of fit and radius, and the clipping bias.

All quantities follow from public numbers. A client who observed average rewards r of the played
actions X reports K r - G c, clipped to the ball: a ridge fit K = (XᵀWX + κI)⁻¹XᵀW, W the plays,
G = KX, around a public centre c. The penalty κ is chosen to minimise the effect of noise: a larger
one makes reports shorter, and the learner inverts it.

A report is G(θ* - c) plus an error Z that is sub-Gaussian with a known matrix M. For ‖θ* - c‖ <= ρ,
except with probability 2e^-t, its squared norm is at most ρ² + 2ρ √(2‖M‖t) + tr M + 2√(t tr M²) +
2‖M‖t. The inner product is bounded by its own tail, ‖Z‖² by Hsu, Kakade & Zhang 2012, Theorem 1.
The bias from clipping is part of the widths, not assumed away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.types import Floats

RARE = 6.0  # t of the smaller radius: at most one client in 200 is clipped
TAIL = np.concatenate([np.linspace(0.0, 40.0, 161), np.geomspace(41.0, 1e5, 120)])  # beyond t
RATES = np.geomspace(1e-2, 1e3, 60)
EIGHTH = 8
PENALTIES = (0.0, *np.geomspace(1e-4, 1e2, 25))  # candidates for κ, in units of XᵀWX
SINGULAR = 1e-9  # relative singular value below which a direction counts as not played


@dataclass(frozen=True, eq=False)
class PublicPhase:
    """The public numbers of a phase.

    Parameters
    ----------
    played, plays
        The played actions, and how often each was played.
    active
        The active actions.
    clients
        The number of clients who report.
    spreads
        Sub-Gaussian standard deviations: of rewards around a client's means, and of a client's
        parameter around θ* in every direction.
    distance
        A bound on the distance of θ* from the centre.
    noise
        The standard deviation of the noise in the average report, per unit of radius.
    deviations
        The number of standard deviations in a width.
    chance
        The failure probability of the bound on the clipping bias.
    """

    played: Floats
    plays: Floats
    active: Floats
    clients: int
    spreads: tuple[float, float]
    distance: float
    noise: float
    deviations: float
    chance: float


@dataclass(frozen=True, eq=False)
class OwnFit:
    """Fit of one client, in the coordinates of the span of the played actions.

    Parameters
    ----------
    solve, forward
        The matrices K and G.
    plain
        The matrix of the error of one client's least squares estimate of θ*.
    radius
        The radius of the ball.
    lost
        A bound on the norm of the average clipping bias.
    width
        The width of a typical difference between active actions.
    """

    solve: Floats
    forward: Floats
    plain: Floats
    radius: float
    lost: float
    width: float


def best_fit(phase: PublicPhase, below: float = math.inf) -> OwnFit | None:
    """The fit and radius of smallest width for active actions; None if it is not below `below`.

    The radius is either so large that no client is clipped, or so small that a few are: this adds a
    little to every width and reduces the noise.
    """
    rewards, clients = phase.spreads
    weighted = phase.played * np.sqrt(phase.plays)[:, None]
    _, singular, directions = np.linalg.svd(weighted, full_matrices=False)
    kept = singular > SINGULAR * singular[0]
    square, axes = singular[kept] ** 2, directions[kept]
    plain = clients**2 + rewards**2 / square
    apart = (((phase.active - phase.active.mean(axis=0)) @ axes.T) ** 2).mean(axis=0)
    sampled = float((apart * plain).sum()) / phase.clients
    if phase.deviations * math.sqrt(sampled) >= below:  # already without noise
        return None

    gains = square / (square + np.array(PENALTIES)[:, None] * square.mean())
    errors, stretched = gains**2 * plain, (apart / gains**2).sum(axis=1)

    def balls(t: float) -> list[tuple[float, float]]:
        """The width without clipping bias and the radius, for every penalty."""
        sizes = reach(phase.distance, errors, t)
        widths = phase.deviations * np.sqrt(sampled + (phase.noise * sizes) ** 2 * stretched)
        return list(zip(widths.tolist(), sizes.tolist(), strict=True))

    nobody = max(RARE, math.log(2 * phase.clients / phase.chance))
    best = min((*ball, 0.0, place) for place, ball in enumerate(balls(nobody)))
    for width, size, place in sorted((*ball, place) for place, ball in enumerate(balls(RARE))):
        if width > min(best[0], below):  # the clipping bias, slow to bound, only adds to it
            break
        lost = cut_off(phase.distance, errors[place], phase.clients, phase.chance)
        best = min(best, (width + lost * math.sqrt(stretched[place]), size, lost, place))
    width, size, lost, place = best
    if width >= below:
        return None
    gain = gains[place]

    solve = (gain / square)[:, None] * (axes @ (phase.played * phase.plays[:, None]).T)
    error = (axes.T * plain) @ axes
    return OwnFit(solve, gain[:, None] * axes, error, size, lost, width)


def report_inverse(played: Floats, plays: Floats, solve: Floats) -> Floats:
    """The matrix that maps reports back to parameters, within the span of the played actions.

    It follows from the assignment, for any basis of the span.
    """
    root = np.sqrt(plays)
    least_squares = np.linalg.pinv(played * root[:, None], rcond=SINGULAR) * root
    return np.asarray(least_squares @ np.linalg.pinv(solve))


def reach(distance: float, error: Floats, t: Floats | float) -> Floats:
    """The norm that a report exceeds with probability at most 2e^-t.

    `error` has the eigenvalues of M, or one row of them for each of several M.
    """
    inner = 2 * distance * np.sqrt(2 * error.max(axis=-1) * t)
    return np.asarray(np.sqrt(distance**2 + inner + _square(error, t)))


def _square(error: Floats, t: Floats | float) -> Floats:
    """The value that the error's squared norm exceeds with probability at most e^-t."""
    total, square, largest = error.sum(axis=-1), (error**2).sum(axis=-1), error.max(axis=-1)
    return np.asarray(total + 2 * np.sqrt(t * square) + 2 * largest * np.asarray(t))


def distance_of(matrix: Floats, chance: float) -> float:
    """A bound on the distance of an estimate with this error from the truth, except with `chance`.

    Treats privacy noise as a Gaussian. The distance of its true distribution from that Gaussian is
    part of the accounting, within a part of δ.
    """
    values = np.maximum(np.linalg.eigvalsh(matrix), 0.0)
    return math.sqrt(float(_square(values, math.log(1 / chance))))


def cut_off(distance: float, error: Floats, clients: int, chance: float) -> float:
    """A bound on the norm of the average clipping bias at radius `RARE`, except with `chance`.

    A client's loss r is at least 0, so E e^{sr} <= 1 + ∫ s e^{sr} P[loss > r] dr =: 1 + a(s). By
    Markov's inequality the average exceeds a(s)/s + ln(1/chance)/(ns) with at most this
    probability, for every s.
    """
    tail = RARE + TAIL
    lengths = reach(distance, error, tail)
    losses = lengths - lengths[0]
    steps, sampled = np.diff(losses), math.log(1 / chance) / clients

    def bounds(rates: Floats) -> Floats:
        exponents = rates[:, None] * losses[1:] - tail[:-1]
        met = exponents[:, -1] < -100  # and decreasing from there on: the tail is negligible
        moments = 2 * (np.exp(np.minimum(exponents, 300.0)) @ steps)
        return np.where(met, moments + sampled / rates, math.inf)

    # both terms are convex in s, so the best rate is near the best of every eighth
    place = EIGHTH * int(bounds(RATES[::EIGHTH]).argmin())
    return float(bounds(RATES[max(0, place - EIGHTH) : place + EIGHTH]).min())
