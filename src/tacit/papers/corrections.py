"""Wrong or loose constants of the papers, recomputed.

Each row names its line of `docs/explanation/corrections.md`, the value that the paper prints, and
the true value by exact numerics. `tacit corrections` prints the rows; a test compares them with the
documented values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from scipy.special import ndtr

from tacit.algorithms import SilosProblem, zc24_noise
from tacit.noise import Binomial, DiscreteLaplace
from tacit.papers.public_code import PublicSetting
from tacit.privacy import ApproximateDP, Calibration, GaussianLoss, calibrate, dropout_loss
from tacit.protocols.shuffled_bits import tkms21_noise


@dataclass(frozen=True)
class Correction:
    """A number as a paper prints it, and its true value."""

    line: int
    what: str
    setting: str
    printed: float
    true: float


class GuaranteeCorrection(Correction):
    """A correction of an ε or a δ, which is rounded up where it is shown."""


def corrections() -> Iterator[Correction]:
    """Recompute lines 7, 13, 15 to 17, 24 to 27, 32 and 34."""
    yield from _gaussian()
    yield from _dropout()
    yield from _fair_bits()
    yield from _level_bits()
    yield from _skellam()
    yield from _person()
    yield from _group()
    yield from _tree()
    yield from _biased_bits()
    yield from _rounding()
    yield from _public()


def _both(kind: str, levels: int, target: ApproximateDP, **index: int) -> tuple[Calibration, ...]:
    """The paper's calibration, and the tight one."""
    return (
        calibrate(kind, levels, target, constants="paper", **index),  # type: ignore[arg-type]
        calibrate(kind, levels, target, **index),  # type: ignore[arg-type]
    )


def _gaussian() -> Iterator[Correction]:
    for epsilon in (10.0, 20.0):
        setting = f"ε = {epsilon:g}, δ = 0.25"
        printed, needed = (
            one.distribution.std for one in _both("gaussian", 1, ApproximateDP(epsilon, 0.25))
        )
        true = GaussianLoss(printed, 1).delta(epsilon)
        yield GuaranteeCorrection(7, "delta of the Gaussian closed form", setting, 0.25, true)
        yield Correction(7, "sigma / sensitivity that is needed", setting, printed, needed)


def _dropout() -> Iterator[Correction]:
    for sensitivity in (1, 10):
        for arriving in (0.9, 0.8, 0.5):
            true = dropout_loss(DiscreteLaplace(sensitivity), arriving, sensitivity).pure
            setting = f"{arriving:.0%} of Pólya shares, g = {sensitivity}"
            yield GuaranteeCorrection(13, "epsilon when shares are missing", setting, 1.0, true)


def _fair_bits() -> Iterator[Correction]:
    for epsilon, delta in ((1.0, 1e-5), (0.5, 1e-5), (0.1, 1e-5), (1.0, 1e-6)):
        setting = f"ε = {epsilon:g}, δ = {delta:g}"
        both = _both("binomial", 1, ApproximateDP(epsilon, delta))
        bits = (one.distribution.variance * 4 for one in both)
        yield Correction(15, "fair noise bits in total", setting, *bits)
        true = both[0].epsilon
        yield GuaranteeCorrection(15, "true epsilon of the paper's bits", setting, epsilon, true)
        stds = (one.distribution.std for one in both)
        yield Correction(15, "standard deviation of the noise", setting, *stds)


def _spread(line: int, setting: str, levels: int, both: Iterable[Calibration]) -> Correction:
    """The standard deviation of the noise, in levels."""
    stds = (one.distribution.std / levels for one in both)
    return Correction(line, "standard deviation / g", setting, *stds)


def _level_bits() -> Iterator[Correction]:
    for users, levels in ((10_000, 100), (1_000_000, 1000)):
        setting = f"ε = 1, δ = 1e-05, n = {users:,}, g = {levels}"
        both = _both("binomial", levels, ApproximateDP(1.0, 1e-5), users=users)
        true = both[0].epsilon
        yield GuaranteeCorrection(16, "true epsilon of the paper's bits", setting, 1.0, true)
        yield _spread(16, setting, levels, both)
        bits = (float(one.bits_per_user or 0) for one in both)
        yield Correction(16, "noise bits per user", setting, *bits)


def _skellam() -> Iterator[Correction]:
    for levels in (1, 10, 100, 1000):
        setting = f"ε = 1, δ = 1e-05, g = {levels}"
        both = _both("skellam", levels, ApproximateDP(1.0, 1e-5))
        variances = (float(one.distribution.variance) for one in both)
        yield Correction(17, "Skellam variance", setting, *variances)
        yield _spread(17, setting, levels, both)


def _person() -> Iterator[Correction]:
    """The guarantee to a recorded pair, and to the participant."""
    setting = "M = 100, T = 1e4, B = 25, not lazy"
    for epsilon, delta in ((0.2, 0.1), (1.0, 1e-5)):
        problem = SilosProblem.of(epsilon=epsilon, delta=delta, lazy=False)
        found = zc24_noise.secagg_fedlinucb(problem).guarantee
        assert found is not None
        what = f"epsilon of a person at ({epsilon:g}, {delta:g})"
        yield GuaranteeCorrection(24, what, setting, epsilon, found.epsilon)


def _group() -> Iterator[Correction]:
    """ε of all records of a silo: Lemma F.2's T times one record's ε at the same δ₀, and the true
    one.
    """
    problem = SilosProblem.of(epsilon=3e-5, delta=1e-6)
    sigma, moved = zc24_noise.sdp_fedlinucb(problem).sums.sigma, zc24_noise.sensitivity(problem)
    delta0 = problem.privacy.delta / (16 * zc24_noise.nodes(problem) * problem.silos)
    multiplied = problem.horizon * GaussianLoss(sigma, moved).epsilon(delta0)
    true = GaussianLoss(sigma, problem.horizon * moved).epsilon(delta0)
    setting = "M = 100, T = 1e4, ε = 3e-05, δ = 1e-06"
    yield GuaranteeCorrection(25, "epsilon of a silo's records together", setting, multiplied, true)


def _tree() -> Iterator[Correction]:
    """Variance of the paper's tree of one silo, for κ as printed and for whole nodes."""
    for delta in (1e-5, 0.1):
        problem = SilosProblem.of(epsilon=1.0, delta=delta, constants="paper")
        sums = zc24_noise.ldp_fedlinucb(problem).sums
        depth = 1 + math.log2(problem.steps)
        printed = depth * 8 * depth * (math.log(2 / delta) + 1)
        setting = f"ε = 1, δ = {delta:g}, T = 1e4, B = 25"
        released = float(sums.variances.max()) / problem.silos
        yield Correction(26, "variance of a released prefix sum", setting, printed, released)


def _biased_bits() -> Iterator[Correction]:
    """TKMS21 Algorithm 3 with far more participants than τ: each adds one bit of bias τ/2n."""
    target = ApproximateDP(0.5, 1e-5)
    needed = 96 * math.log(2 / target.delta) / target.epsilon**2
    participants = 1000 * math.ceil(needed)
    each, bias = tkms21_noise(participants, target)
    noise = Binomial(each * participants, bias)
    setting = "ε = 0.5, δ = 1e-05, n = 1000τ"
    yield Correction(
        27, "variance of a batch's noise / τ", setting, 0.25, float(noise.variance) / needed
    )
    grown = float(noise.log_mgf(3.0)) - 3.0 * float(noise.mean)
    yield Correction(27, "log-MGF of the noise at 3", setting, 9 * needed * 3 / 4, grown)


def _rounding() -> Iterator[Correction]:
    """CZ23 Theorem 4: how often noise and rounding exceed (√2/ε) √ln(2/p) in a large batch.

    Rounding adds at most 1/(2sε)² to the variance 1/ε² of discrete Gaussian noise.
    """
    chance = 1e-6
    for scale in (1, 10):
        widened = 1 + 1 / (2 * scale) ** 2
        true = 2 * float(ndtr(-math.sqrt(2 * math.log(2 / chance) / widened)))
        setting = f"s = {scale}, large batch, p = 1e-06"
        yield Correction(32, "how often the radius without rounding fails", setting, chance, true)


def _public() -> Iterator[Correction]:
    """ZC24's public code against its theorems: noise of Figure 2, and its true guarantee."""
    setting = PublicSetting()
    asked = {"epsilon": setting.epsilon, "delta": setting.delta, "constants": "paper"}
    silo = zc24_noise.ldp_fedlinucb(SilosProblem.of(**asked, lazy=False)).sums.sigma
    where = "Figure 2(a), M = 100, T = 1e4, ε = 0.001, δ = 0.0001"
    yield Correction(34, "deviation of a silo's node", where, silo, setting.sigma("ldp"))
    problem = SilosProblem.of(epsilon=0.2, delta=0.1, constants="paper")
    printed = zc24_noise.sdp_fedlinucb_vec(replace(problem, bits="printed")).sums.row_variance
    run = 3 / 16 * math.log(problem.dimension**2 / 0.1) ** 2 / 0.2**2
    where = "Figure 2(b), M = 100, T = 1e4, ε = 0.2, δ = 0.1"
    yield Correction(34, "variance of a shuffled node", where, printed, run)
    moved = zc24_noise.sensitivity(problem) * math.sqrt(zc24_noise.nodes(problem))
    true = GaussianLoss(math.sqrt(run), moved).epsilon(0.1)
    yield GuaranteeCorrection(34, "epsilon of those nodes, one record", where, 0.2, true)
