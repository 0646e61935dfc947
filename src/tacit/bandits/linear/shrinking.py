"""Parameters that clients fit themselves and report in a ball: which fit, how large a ball, what is
lost by it. All of it follows from public numbers.

A client who saw average rewards r of the played actions X reports K r - G c, shrunk to the ball: a
ridge fit K = (XᵀWX + κI)⁻¹XᵀW, W the plays, G = KX, about a public centre c. The penalty κ is the
one under which noise matters least: a larger one makes reports shorter, and the learner undoes it.
A report is G(θ* - c) and an error Z that is sub-Gaussian with a known matrix M. For ‖θ* - c‖ <= ρ,
but for a chance of 2e^-t, its squared length is at most ρ² + 2ρ √(2‖M‖t) + tr M + 2√(t tr M²) +
2‖M‖t: the inner product by its own tail, ‖Z‖² by Hsu, Kakade & Zhang 2012, Theorem 1. What is cut
off beyond the ball is part of the widths, not assumed away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.types import Floats

RARE = 6.0  # t at which the radius may be taken: at most one client in 200 is shrunk
TAIL = np.concatenate([np.linspace(0.0, 40.0, 161), np.geomspace(41.0, 1e5, 120)])  # beyond t
RATES = np.geomspace(1e-2, 1e3, 60)
EIGHTH = 8
PENALTIES = (0.0, *np.geomspace(1e-4, 1e2, 25))  # of which the best is taken, in units of XᵀWX
SINGULAR = 1e-9  # part of the largest singular value below which a direction was not played


@dataclass(frozen=True, eq=False)
class PublicPhase:
    """What is public of a phase: the played actions and how often each was; the active ones; how
    many clients report; the spreads of rewards about a client's means and of a client's parameter
    about θ* in every direction; how far θ* may be from the centre; the standard deviation of the
    noise in the average report, per radius; how many standard deviations a width has; and the
    chance with which the bound on what is lost may fail.
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
    """How clients fit, in as many coordinates as what was played spans: `solve` is K, `forward` G,
    `plain` is the matrix of the error of one client's least squares about θ*, `radius` that of
    the ball, `lost` bounds the length of the average that is cut off, and
    `width` is that of a typical difference between active actions.
    """

    solve: Floats
    forward: Floats
    plain: Floats
    radius: float
    lost: float
    width: float


def best_fit(phase: PublicPhase, below: float = math.inf) -> OwnFit | None:
    """The fit and the ball with which active actions are told apart best, if its width is `below`
    what it is to beat.

    The ball is so large that nobody is shrunk, or so small that a few are, which costs a little in
    every width and saves noise.
    """
    rewards, clients = phase.spreads
    weighted = phase.played * np.sqrt(phase.plays)[:, None]
    _, singular, directions = np.linalg.svd(weighted, full_matrices=False)
    kept = singular > SINGULAR * singular[0]
    square, axes = singular[kept] ** 2, directions[kept]
    plain = clients**2 + rewards**2 / square
    apart = (((phase.active - phase.active.mean(axis=0)) @ axes.T) ** 2).mean(axis=0)
    sampled = float((apart * plain).sum()) / phase.clients
    if phase.deviations * math.sqrt(sampled) >= below:  # before any noise
        return None

    gains = square / (square + np.array(PENALTIES)[:, None] * square.mean())
    errors, stretched = gains**2 * plain, (apart / gains**2).sum(axis=1)

    def balls(t: float) -> list[tuple[float, float]]:
        """How wide widths are but for what is lost, and the radius, at every penalty."""
        sizes = reach(phase.distance, errors, t)
        widths = phase.deviations * np.sqrt(sampled + (phase.noise * sizes) ** 2 * stretched)
        return list(zip(widths.tolist(), sizes.tolist(), strict=True))

    nobody = max(RARE, math.log(2 * phase.clients / phase.chance))
    best = min((*ball, 0.0, place) for place, ball in enumerate(balls(nobody)))
    for width, size, place in sorted((*ball, place) for place, ball in enumerate(balls(RARE))):
        if width > min(best[0], below):  # all the more with what is lost, which takes long to bound
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


def undo(played: Floats, plays: Floats, solve: Floats) -> Floats:
    """The matrix that takes reports back to parameters, within the span of what was played. It
    follows from the assignment, in whichever basis of the span that is.
    """
    root = np.sqrt(plays)
    least_squares = np.linalg.pinv(played * root[:, None], rcond=SINGULAR) * root
    return np.asarray(least_squares @ np.linalg.pinv(solve))


def reach(distance: float, error: Floats, t: Floats | float) -> Floats:
    """The length that a report exceeds with a chance of at most 2e^-t, M given by its values, or
    one row of them for each of several M.
    """
    inner = 2 * distance * np.sqrt(2 * error.max(axis=-1) * t)
    return np.asarray(np.sqrt(distance**2 + inner + _square(error, t)))


def _square(error: Floats, t: Floats | float) -> Floats:
    """What the squared length of the error exceeds with a chance of at most e^-t."""
    total, square, largest = error.sum(axis=-1), (error**2).sum(axis=-1), error.max(axis=-1)
    return np.asarray(total + 2 * np.sqrt(t * square) + 2 * largest * np.asarray(t))


def distance_of(matrix: Floats, chance: float) -> float:
    """How far an estimate with this error can be from the truth, but for a chance.

    Privacy noise counts as the Gaussian from which its whole law is no farther than its accounting
    allows, a part of δ.
    """
    values = np.maximum(np.linalg.eigvalsh(matrix), 0.0)
    return math.sqrt(float(_square(values, math.log(1 / chance))))


def cut_off(distance: float, error: Floats, clients: int, chance: float) -> float:
    """A length that the average of what so many clients' reports lose beyond the radius at `RARE`
    exceeds with this chance.

    A loss r is at least 0, so E e^{sr} <= 1 + ∫ s e^{sr} P[loss > r] dr =: 1 + a(s), and by
    Markov's inequality the average exceeds a(s)/s + ln(1/chance)/(ns) with this chance, for
    every s.
    """
    tail = RARE + TAIL
    lengths = reach(distance, error, tail)
    losses = lengths - lengths[0]
    steps, sampled = np.diff(losses), math.log(1 / chance) / clients

    def bounds(rates: Floats) -> Floats:
        exponents = rates[:, None] * losses[1:] - tail[:-1]
        met = exponents[:, -1] < -100  # and falling from there on: what is left out is nothing
        moments = 2 * (np.exp(np.minimum(exponents, 300.0)) @ steps)
        return np.where(met, moments + sampled / rates, math.inf)

    # both terms are convex in s, so the best rate is next to the best of every eighth
    place = EIGHTH * int(bounds(RATES[::EIGHTH]).argmin())
    return float(bounds(RATES[max(0, place - EIGHTH) : place + EIGHTH]).min())
