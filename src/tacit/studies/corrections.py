"""Where the papers' constants are wrong or loose, recomputed on the spot.

Each row names the line of `docs/corrections.md` that it belongs to, what the paper prints, and what
is true by exact numerics. `tacit corrections` prints them; a test holds them to the documented
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tacit.noise import DiscreteLaplace
from tacit.privacy import ApproximateDP, GaussianLoss, calibrate, dropout_loss


@dataclass(frozen=True)
class Correction:
    """One number of a paper, and the true one."""

    line: int
    what: str
    setting: str
    printed: float
    true: float


def corrections() -> Iterator[Correction]:
    """Lines 7, 13, 15, 16 and 17, from scratch."""
    yield from _gaussian()
    yield from _dropout()
    yield from _fair_bits()
    yield from _level_bits()
    yield from _skellam()


def _gaussian() -> Iterator[Correction]:
    for epsilon in (10.0, 20.0):
        setting = f"ε = {epsilon:g}, δ = 0.25"
        target = ApproximateDP(epsilon, 0.25)
        sigma = calibrate("gaussian", 1, target, method="paper").law.std
        yield Correction(
            7,
            "delta of the Gaussian closed form",
            setting,
            0.25,
            GaussianLoss(sigma, 1).delta(epsilon),
        )
        yield Correction(
            7,
            "sigma / sensitivity that is needed",
            setting,
            sigma,
            calibrate("gaussian", 1, target).law.std,
        )


def _dropout() -> Iterator[Correction]:
    for sensitivity in (1, 10):
        for arriving in (0.9, 0.8, 0.5):
            true = dropout_loss(DiscreteLaplace(sensitivity), arriving, sensitivity).pure
            setting = f"{arriving:.0%} of Pólya shares, g = {sensitivity}"
            yield Correction(13, "epsilon when shares are missing", setting, 1.0, true)


def _fair_bits() -> Iterator[Correction]:
    for epsilon, delta in ((1.0, 1e-5), (0.5, 1e-5), (0.1, 1e-5), (1.0, 1e-6)):
        target, setting = ApproximateDP(epsilon, delta), f"ε = {epsilon:g}, δ = {delta:g}"
        paper, tight = (
            calibrate("binomial", 1, target, method="paper"),
            calibrate("binomial", 1, target),
        )
        yield Correction(
            15, "fair noise bits in total", setting, paper.law.variance * 4, tight.law.variance * 4
        )
        yield Correction(15, "true epsilon of the paper's bits", setting, epsilon, paper.epsilon)
        yield Correction(
            15, "standard deviation of the noise", setting, paper.law.std, tight.law.std
        )


def _level_bits() -> Iterator[Correction]:
    for users, levels in ((10_000, 100), (1_000_000, 1000)):
        target, setting = ApproximateDP(1.0, 1e-5), f"ε = 1, δ = 1e-05, n = {users:,}, g = {levels}"
        paper = calibrate("binomial", levels, target, users=users, method="paper")
        tight = calibrate("binomial", levels, target, users=users)
        yield Correction(16, "true epsilon of the paper's bits", setting, 1.0, paper.epsilon)
        yield Correction(
            16, "standard deviation / g", setting, paper.law.std / levels, tight.law.std / levels
        )
        yield Correction(
            16,
            "noise bits per user",
            setting,
            float(paper.bits_per_user or 0),
            float(tight.bits_per_user or 0),
        )


def _skellam() -> Iterator[Correction]:
    for levels in (1, 10, 100, 1000):
        target, setting = ApproximateDP(1.0, 1e-5), f"ε = 1, δ = 1e-05, g = {levels}"
        paper, tight = (
            calibrate("skellam", levels, target, method="paper"),
            calibrate("skellam", levels, target),
        )
        yield Correction(
            17, "Skellam variance", setting, float(paper.law.variance), float(tight.law.variance)
        )
        yield Correction(
            17, "standard deviation / g", setting, paper.law.std / levels, tight.law.std / levels
        )
