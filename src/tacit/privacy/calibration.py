"""From a target guarantee to the least noise that earns it.

Every answer is found by bisection on the exact δ(ε) of the noise (or, for vectors under an l2
bound, on the best proven bound) and is the safe end: the returned law itself was checked against
the target. `method="paper"` gives the papers' closed forms instead and reports what they truly
guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from tacit.checks import Number, TacitError, integer, positive, probability
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    Skellam,
    sum_divergence,
)
from tacit.noise.law import LOG_TINY
from tacit.privacy import closed_forms
from tacit.privacy.gaussian import Gaussian, GaussianLoss
from tacit.privacy.guarantees import ApproximateDP, ConcentratedDP, PureDP
from tacit.privacy.loss import PrivacyLoss, privacy_loss
from tacit.privacy.search import least, least_integer, least_root
from tacit.privacy.vectors import l2_guarantee, linf_loss

Kind = Literal["discrete-laplace", "skellam", "discrete-gaussian", "gaussian", "binomial"]
Norm = Literal["linf", "l2"]
Target = PureDP | ApproximateDP | ConcentratedDP
LARGEST_EPSILON = 500
KINDS: tuple[Kind, ...] = (
    "discrete-laplace",
    "skellam",
    "discrete-gaussian",
    "gaussian",
    "binomial",
)


@dataclass(frozen=True)
class Calibration:
    """The least noise of a kind for a target, and what it truly guarantees.

    `law` is the law of the total noise. `share` is what each of `users` people adds (for binomial
    noise, `bits_per_user` bits of bias `probability` each). `epsilon` is the true ε at the target's
    δ (for a pure or concentrated target, the guarantee's own number).
    """

    kind: Kind
    method: str
    target: Target
    law: NoiseLaw | Gaussian
    epsilon: float
    derivation: str
    share: NoiseLaw | None = None
    users: int | None = None
    bits_per_user: int | None = None

    @property
    def delta(self) -> float:
        """The δ at which `epsilon` holds."""
        return self.target.delta if isinstance(self.target, ApproximateDP) else 0.0

    @property
    def meets_target(self) -> bool:
        """Whether the noise truly earns the target; a paper's closed form may not."""
        wanted = self.target.rho if isinstance(self.target, ConcentratedDP) else self.target.epsilon
        return self.epsilon <= wanted

    @property
    def guarantee(self) -> Target:
        """What the noise truly guarantees, for whoever sees the noisy sum."""
        if isinstance(self.target, ConcentratedDP):
            return replace(self.target, rho=self.epsilon)
        return replace(self.target, epsilon=self.epsilon)


def calibrate(
    kind: Kind,
    sensitivity: Number,
    target: Target,
    *,
    method: Literal["tight", "paper"] = "tight",
    users: int | None = None,
    bits: int | None = None,
    bias: Number | None = None,
    dimension: int = 1,
    norm: Norm = "linf",
) -> Calibration:
    """The least noise of `kind` that gives `target` to a sum that one person moves by at most
    `sensitivity`.

    `users`: how many people add the noise together (shares are worked out; for binomial noise also
    bits per user and their bias; for the discrete Gaussian the sum of shares is accounted for with
    Kairouz, Liu & Steinke 2021). `bits`: a fixed number of binomial noise bits per user, the least
    bias is found. `bias`: a fixed bias, the least number of bits is found. `dimension` and `norm`:
    the sum is a vector and `sensitivity` bounds the movement of each coordinate (linf) or of all
    (l2).

    >>> calibrate("binomial", 1, ApproximateDP(1.0, 1e-5)).law
    Binomial(n=62, p=Fraction(1, 2))
    >>> round(calibrate("gaussian", 1, ApproximateDP(10.0, 0.25)).law.std, 4)
    0.2472
    """
    if kind not in KINDS:
        raise TacitError(f"noise is {kind!r}; it must be one of {', '.join(KINDS)}")
    if method not in ("tight", "paper"):
        raise TacitError(f"method is {method!r}; it must be tight or paper")
    if norm not in ("linf", "l2"):
        raise TacitError(f"norm is {norm!r}; it must be linf or l2")
    problem = _Problem(
        kind,
        _sensitivity(kind, norm, sensitivity),
        target,
        integer("dimension", dimension, at_least=1),
        norm,
    )
    count = (
        None
        if users is None
        else integer(
            "users", users, at_least=1, remedy="the noise is shared among one or more people"
        )
    )
    if isinstance(target, ApproximateDP):
        positive(
            "epsilon",
            target.epsilon,
            "a guarantee needs epsilon > 0; for no privacy use --trust none",
        )
    if not isinstance(target, ConcentratedDP) and target.epsilon > LARGEST_EPSILON:
        raise TacitError(
            f"epsilon is {target.epsilon:g}; above {LARGEST_EPSILON} a guarantee hides nothing: "
            "use a smaller epsilon"
        )
    if isinstance(target, PureDP) and kind not in ("discrete-laplace", "binomial"):
        raise TacitError(
            f"{kind} noise has no guarantee without exceptions: give a delta, or use "
            "discrete-laplace noise"
        )
    if kind != "binomial" and (bits is not None or bias is not None):
        raise TacitError(f"bits and bias are for binomial noise, not for {kind}")
    if method == "paper":
        return _paper(problem, count)
    match kind:
        case "discrete-laplace":
            return _laplace(problem, count)
        case "skellam":
            start = float(problem.sensitivity) * problem.spread
            return problem.answer(Skellam(problem.least(Skellam, start**2)), count)
        case "gaussian":
            if count is not None and count > 1:
                raise TacitError(
                    "continuous Gaussian noise is not shared among devices: use discrete-gaussian "
                    "or skellam"
                )
            start = float(problem.sensitivity) * problem.spread
            return problem.answer(Gaussian(problem.least(Gaussian, start)), None)
        case "discrete-gaussian":
            return _discrete_gaussian(problem, count)
        case "binomial":
            return _binomial(problem, count, bits, bias)


def _sensitivity(kind: Kind, norm: Norm, value: Number) -> Number:
    remedy = "the most that one person can move the sum"
    if kind == "gaussian" or norm == "l2":
        bound = positive("sensitivity", value, remedy)
        if kind != "gaussian" and bound < 1:
            raise TacitError(
                f"sensitivity is {value}; a vector of integers moves by at least 1 or not at all: "
                "scale the query to integers first"
            )
        return float(bound)
    return integer(
        "sensitivity", value, at_least=1, remedy=remedy + "; scale the query to integers first"
    )


@dataclass(frozen=True)
class _Problem:
    kind: Kind
    sensitivity: Number
    target: Target
    dimension: int
    norm: Norm

    @property
    def spread(self) -> float:
        """A first guess at standard deviation over sensitivity: that of the continuous Gaussian."""
        if isinstance(self.target, ConcentratedDP):
            return 1 / math.sqrt(2 * self.target.rho)
        if isinstance(self.target, PureDP):
            return 1 / self.target.epsilon
        epsilon, delta = self.target.epsilon, self.target.delta
        return least(lambda s: GaussianLoss(s, 1.0).delta(epsilon) <= delta, 1.0)

    def met_by(self, law: NoiseLaw | Gaussian) -> bool:
        """Whether the law earns the target."""
        return self._excess(law) <= 0

    def least(self, law: Callable[[float], NoiseLaw | Gaussian], guess: float) -> float:
        """The least amount whose law earns the target; the law at the returned amount was
        checked.
        """
        return least_root(lambda amount: self._excess(law(amount)), guess)

    def _excess(self, law: NoiseLaw | Gaussian) -> float:
        """At most 0 if the law earns the target; falls smoothly as noise is added."""
        target = self.target
        if isinstance(target, ConcentratedDP):
            return math.log(self.true_epsilon(law) / target.rho)
        if (
            isinstance(target, ApproximateDP)
            and not isinstance(law, Gaussian)
            and self.dimension == 1
        ):
            delta = self._loss(law, target.delta).delta(target.epsilon)
            return delta - target.delta if not delta else math.log(delta / target.delta)
        epsilon = self.true_epsilon(law)
        return math.log(epsilon / target.epsilon) if epsilon else -math.inf

    def true_epsilon(self, law: NoiseLaw | Gaussian) -> float:
        """The ε at the target's δ that the law gives (or ρ, for a concentrated target)."""
        target = self.target
        if isinstance(target, ConcentratedDP):
            return self._rho(law)
        delta = target.delta if isinstance(target, ApproximateDP) else 0.0
        if isinstance(law, Gaussian):
            norm = float(self.sensitivity) * (
                math.sqrt(self.dimension) if self.norm == "linf" else 1.0
            )
            return GaussianLoss(law.sigma, norm).epsilon(delta)
        if self.dimension == 1:
            return self._loss(law, delta).epsilon(delta) if self.sensitivity >= 1 else 0.0
        if self.norm == "linf":
            return linf_loss(law, int(self.sensitivity), self.dimension).epsilon(delta)
        return l2_guarantee(law, float(self.sensitivity), self.dimension, delta).epsilon

    def _loss(self, law: NoiseLaw, delta: float) -> PrivacyLoss:
        """The exact loss, resolved as far as δ needs."""
        # what lies outside the window counts as lost; its mass is about the floor's probability
        # times the standard deviation
        floor = math.log(delta) - 30 - math.log1p(law.std) if delta else LOG_TINY
        return privacy_loss(law, math.floor(self.sensitivity), log_floor=max(floor, LOG_TINY))

    def _rho(self, law: NoiseLaw | Gaussian) -> float:
        norm = float(self.sensitivity) * (math.sqrt(self.dimension) if self.norm == "linf" else 1.0)
        if isinstance(law, (Gaussian, DiscreteGaussian)):
            return norm**2 / (2 * float(law.sigma) ** 2)
        if isinstance(law, DiscreteLaplace):
            return self.dimension * PureDP(float(self.sensitivity / law.scale)).rho_bound()
        raise TacitError(
            f"{self.kind} noise has no concentrated guarantee: use discrete-gaussian, gaussian or "
            "discrete-laplace"
        )

    @property
    def derivation(self) -> str:
        """How the guarantee of the answer is derived."""
        if isinstance(self.target, ConcentratedDP):
            return "divergence of shifted laws, all orders"
        if self.kind == "gaussian":
            return "exact: Gaussian mechanism (Balle & Wang 2018)"
        if self.dimension == 1:
            return "exact: summed over the noise's probabilities, both directions"
        if self.norm == "linf":
            return "composition of the exact losses of the coordinates"
        return {
            "binomial": "proven Rényi bound on likely outcomes",
            "skellam": "proven Rényi bound (Agarwal, Kairouz & Liu 2021)",
        }.get(self.kind, "zCDP of the discrete Gaussian (CKS20)")

    def answer(
        self, law: NoiseLaw | Gaussian, users: int | None, *, method: str = "tight"
    ) -> Calibration:
        """A calibration with the law's true guarantee and, where it divides, the shares."""
        share = law.share(users) if users is not None and isinstance(law, NoiseLaw) else None
        return Calibration(
            self.kind,
            method,
            self.target,
            law,
            self.true_epsilon(law),
            self.derivation,
            share,
            users,
        )


def _laplace(problem: _Problem, users: int | None) -> Calibration:
    """Pure: scale g/ε as an exact fraction. With δ > 0 a little less will do."""
    if problem.norm == "l2" and problem.dimension > 1:
        raise TacitError(
            "discrete Laplace noise is calibrated to an l∞ or l1 bound: use norm='linf', or "
            "another kind for l2"
        )
    if isinstance(problem.target, PureDP):
        scale = Fraction(int(problem.sensitivity) * problem.dimension) / Fraction(
            problem.target.epsilon
        )
        law = DiscreteLaplace(scale)
        share = None if users is None else law.share(users)
        epsilon = float(int(problem.sensitivity) * problem.dimension / scale)
        return Calibration(
            "discrete-laplace",
            "tight",
            problem.target,
            law,
            epsilon,
            "exact: sensitivity / scale",
            share,
            users,
        )
    start = float(problem.sensitivity) * problem.spread
    return problem.answer(DiscreteLaplace(problem.least(DiscreteLaplace, start)), users)


def _discrete_gaussian(problem: _Problem, users: int | None) -> Calibration:
    """One draw, or a sum of n draws, whose distance from one draw widens ε by 2ψ and δ by e^ψ.

    If ln of the ratio of the sum's law to DiscreteGaussian(√n σ) is within ±ψ everywhere, then for
    every event P <= e^ψ P', Q' <= e^ψ Q, so (ε', δ') of the single law gives (ε' + 2ψ, e^ψ δ') of
    the sum.
    """
    start = float(problem.sensitivity) * problem.spread
    if users is None or users == 1:
        return problem.answer(DiscreteGaussian(problem.least(DiscreteGaussian, start)), users)
    if not isinstance(problem.target, ApproximateDP):
        raise TacitError(
            "a sum of discrete Gaussian shares is accounted for at an (epsilon, delta) target: "
            "give a delta"
        )
    target, root = problem.target, math.sqrt(users)

    def shared(sigma: float) -> _Problem | None:
        psi = problem.dimension * sum_divergence(sigma / root, users)
        if 2 * psi >= target.epsilon:
            return None
        inner = ApproximateDP(target.epsilon - 2 * psi, target.delta * math.exp(-psi))
        return _Problem(problem.kind, problem.sensitivity, inner, problem.dimension, problem.norm)

    def enough(sigma: float) -> bool:
        tightened = shared(sigma)
        return tightened is not None and tightened.met_by(DiscreteGaussian(sigma))

    sigma = least(enough, start)
    psi = problem.dimension * sum_divergence(sigma / root, users)
    inner = shared(sigma)
    epsilon = (inner.true_epsilon(DiscreteGaussian(sigma)) if inner else math.inf) + 2 * psi
    how = (
        problem.derivation
        + f"; sum of shares within {psi:.2g} of one draw (Kairouz, Liu & Steinke 2021)"
    )
    share = DiscreteGaussian(sigma / root)
    return Calibration(
        problem.kind, "tight", target, DiscreteGaussian(sigma), epsilon, how, share, users
    )


def _binomial(
    problem: _Problem, users: int | None, bits: int | None, bias: Number | None
) -> Calibration:
    if not isinstance(problem.target, ApproximateDP):
        raise TacitError(
            "binomial noise has a finite range, hence no guarantee without exceptions: give a "
            "delta, or use discrete-laplace"
        )
    if bits is not None and (users is None or bias is not None):
        raise TacitError(
            "a number of bits per user needs the number of users, and leaves the bias to be found: "
            "give users, not bias"
        )
    p = probability("bias", bias) if bias is not None else Fraction(1, 2)
    moved = problem.dimension if problem.norm == "linf" else 1
    guess = max(
        1, round((float(problem.sensitivity) * problem.spread) ** 2 * moved / float(p * (1 - p)))
    )
    everyone = users or 1

    def needed() -> int:
        """Bits per user, all of bias p; more bits never hurt: they can be added after the fact."""
        return least_integer(
            lambda b: problem.met_by(Binomial(everyone * b, p)), max(1, guess // everyone)
        )

    if users is None or bias is not None:
        per_user = needed()
        return _binomial_answer(
            problem, everyone * per_user, p, users, None if users is None else per_user
        )
    if bits is None:
        per_user = needed()
    else:
        per_user = integer("bits", bits, at_least=1)
        if not problem.met_by(Binomial(users * per_user)):
            raise TacitError(
                f"{per_user} noise bits from each of {users} users are too few even when they are "
                f"fair: use at least {needed()}"
            )
    trials = users * per_user
    return _binomial_answer(
        problem, trials, Fraction(_least_bias(problem, trials)), users, per_user
    )


def _least_bias(problem: _Problem, trials: int) -> float:
    """The least p <= ½ at which Binomial(trials, p) is known to meet the target: the safe end of a
    bisection.
    """
    variance = (float(problem.sensitivity) * problem.spread) ** 2 * (
        problem.dimension if problem.norm == "linf" else 1
    )
    guess = (1 - math.sqrt(max(0.0, 1 - 4 * min(0.25, variance / trials)))) / 2
    return min(0.5, problem.least(lambda p: Binomial(trials, min(p, 0.5)), max(guess, 1e-12)))


def _binomial_answer(
    problem: _Problem, trials: int, p: Fraction, users: int | None, per_user: int | None
) -> Calibration:
    law = Binomial(trials, p)
    share = Binomial(per_user, p) if per_user is not None else None
    return Calibration(
        "binomial",
        "tight",
        problem.target,
        law,
        problem.true_epsilon(law),
        problem.derivation,
        share,
        users,
        per_user,
    )


def _paper(problem: _Problem, users: int | None) -> Calibration:
    target = problem.target
    if problem.dimension > 1:
        raise TacitError(
            "the papers' closed forms are for one coordinate: use method='tight' for vectors"
        )
    if problem.kind == "discrete-laplace" and not isinstance(target, ConcentratedDP):
        return problem.answer(
            closed_forms.laplace(int(problem.sensitivity), target), users, method="paper"
        )
    if not isinstance(target, ApproximateDP):
        raise TacitError(
            f"the paper's closed form for {problem.kind} noise needs a target with epsilon and "
            "delta"
        )
    match problem.kind:
        case "gaussian":
            return problem.answer(
                closed_forms.gaussian(float(problem.sensitivity), target), users, method="paper"
            )
        case "discrete-gaussian":
            law = closed_forms.discrete_gaussian(int(problem.sensitivity), target)
            share = None if users is None else DiscreteGaussian(float(law.sigma) / math.sqrt(users))
            how = problem.derivation + " (of one draw)"
            return Calibration(
                problem.kind, "paper", target, law, problem.true_epsilon(law), how, share, users
            )
        case "skellam":
            return problem.answer(
                closed_forms.skellam(int(problem.sensitivity), target), users, method="paper"
            )
    if users is None:
        if problem.sensitivity != 1:
            raise TacitError(
                "TKMS21's noise is for bits (sensitivity 1); LZJ22's for levels depends on the "
                "batch: give users"
            )
        return problem.answer(closed_forms.tkms21_bits(target), None, method="paper")
    per_user, chance = closed_forms.lzj22_bits(int(problem.sensitivity), target, users)
    total = Binomial(per_user * users, chance)
    each = Binomial(per_user, chance)
    return Calibration(
        "binomial",
        "paper",
        target,
        total,
        problem.true_epsilon(total),
        problem.derivation,
        each,
        users,
        per_user,
    )
