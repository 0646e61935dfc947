"""Calibration: the least noise of a kind that achieves a target guarantee.

Bisection runs on the exact δ(ε) of the noise or, for vectors under an l2 bound, on the best proven
bound. It returns the safe end: the returned distribution itself was checked against the target, for
as many participations as the target states. `constants="paper"` returns the papers' closed forms
instead and reports their true guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from tacit.assumptions import Accounting, DistinctRounds, Method
from tacit.errors import Number, TacitError, integer, one_of, positive, probability
from tacit.noise import Binomial, NoiseDistribution
from tacit.privacy import closed_forms
from tacit.privacy.accounting import (
    LARGEST_RATIO,
    SUMMED,
    accounting,
    check_replaced,
    epsilon_of,
    in_distinct_rounds,
    resolved_loss,
    state_drawn_arithmetic,
)
from tacit.privacy.divergences import concentration, divergence, renyi_of
from tacit.privacy.gaussian import Gaussian, GaussianLoss
from tacit.privacy.guarantees import ApproximateDP, ConcentratedDP, PureDP, RenyiDP, View
from tacit.privacy.search import RELATIVE, least, least_integer, least_root
from tacit.privacy.threat_model import ThreatModel
from tacit.privacy.vectors import l2_guarantee, linf_loss

Kind = type[NoiseDistribution] | type[Gaussian]
Norm = Literal["linf", "l2"]
Target = PureDP | ApproximateDP | ConcentratedDP | RenyiDP
LEAST_EPSILON, LARGEST_EPSILON = 1e-9, 500
WIDEST_APART = 100.0  # log ratio of two distributions beyond which no bound is computed


@dataclass(frozen=True)
class Calibration:
    """The least noise of a kind for a target, and its true guarantee.

    Attributes
    ----------
    kind, constants : str
        Family of the noise; "tight" or "paper".
    target : PureDP, ApproximateDP, ConcentratedDP or RenyiDP
    distribution : NoiseDistribution or Gaussian
        Distribution of the total noise.
    epsilon : float
        The true ε at the target's δ (ε of a pure target, ρ of a concentrated one, the divergence at
        the first order of a Rényi one).
    derivation : str
        How `epsilon` was derived.
    share : NoiseDistribution, optional
        Distribution that each of `users` adds; for binomial noise, `bits_per_user` biased bits
        each.
    users : int, optional
    curve : tuple
        The true (α, ε(α)) at the orders of a Rényi target.
    ways : tuple
        The accounting method of several participations, as an assumption of the guarantee.
    """

    kind: str
    constants: str
    target: Target
    distribution: NoiseDistribution | Gaussian
    epsilon: float
    derivation: str
    share: NoiseDistribution | None = None
    users: int | None = None
    curve: tuple[tuple[float, float], ...] = ()
    ways: tuple[Accounting, ...] = ()

    @property
    def integer_distribution(self) -> NoiseDistribution:
        """The distribution, for devices; continuous noise is rejected."""
        if self.distribution.continuous:
            raise TacitError(f"{self.kind} noise is continuous: use discrete-gaussian")
        return self.distribution

    @property
    def bits_per_user(self) -> int | None:
        """The number of noise bits that each user sends; None unless the noise is binomial."""
        return int(self.share.support[1]) if self.share and self.kind == Binomial.kind else None

    @property
    def delta(self) -> float:
        """The δ at which `epsilon` holds."""
        return self.target.delta if isinstance(self.target, ApproximateDP) else 0.0

    @property
    def meets_target(self) -> bool:
        """Whether the noise achieves the target; a paper's closed form may not."""
        target = self.target
        if isinstance(target, RenyiDP):
            pairs = zip(self.curve, target.curve, strict=True)
            return all(true <= wanted for (_, true), (_, wanted) in pairs)
        wanted = target.rho if isinstance(target, ConcentratedDP) else target.epsilon
        return self.epsilon <= wanted

    @property
    def guarantee(self) -> Target:
        """The true guarantee of the noise.

        Where users share the noise, it assumes that all of them add their share and none is
        curious.
        """
        target = self.target
        if (self.users or 1) > 1:
            target = target.assuming(*ThreatModel(curious=0).assumptions())
        if isinstance(target, (ConcentratedDP, RenyiDP)):
            composed = target.assuming(DistinctRounds()) if target.participations > 1 else target
            concentrated = isinstance(target, ConcentratedDP)
            true: dict[str, Any] = {"rho": self.epsilon} if concentrated else {"curve": self.curve}
            return state_drawn_arithmetic(replace(composed, **true), self.distribution)
        target = target.assuming(*self.ways, *in_distinct_rounds(target))
        return state_drawn_arithmetic(replace(target, epsilon=self.epsilon), self.distribution)


@dataclass(frozen=True)
class NoiseBits:
    """Fixed parameters of binomial noise; calibration finds the rest.

    Parameters
    ----------
    per_user : int, optional
        Number of noise bits per user; the least bias is found.
    bias : Number, optional
        Bias of every bit; the least number of bits is found.
    """

    per_user: int | None = None
    bias: Number | None = None


ANY_BITS = NoiseBits()


def calibrate(
    kind: str | Kind,
    sensitivity: Number,
    target: Target,
    *,
    constants: Literal["tight", "paper"] = "tight",
    users: int | None = None,
    bits: NoiseBits = ANY_BITS,
    dimension: int = 1,
    norm: Norm = "linf",
) -> Calibration:
    """Return the least noise of `kind` that achieves `target` for a sum of given sensitivity.

    Parameters
    ----------
    kind : str or type
        Name of a noise family, or a class of distributions that has `of_std`.
    sensitivity : Number
        The most that one participation changes the sum; an integer unless noise is continuous or
        `norm` is "l2".
    target : PureDP, ApproximateDP, ConcentratedDP or RenyiDP
        Covers all of its participations together.
    constants : {"tight", "paper"}
        Exact accounting, or the papers' closed forms.
    users : int, optional
        Number of users who add the noise together: shares are computed, and for binomial noise the
        bits per user and their bias. For a distribution that is not divisible, such as the discrete
        Gaussian, the sum of shares is accounted for by its distance from one draw.
    bits : NoiseBits
        What is fixed of binomial noise.
    dimension : int
        Number of coordinates of the sum.
    norm : {"linf", "l2"}
        Whether `sensitivity` bounds the change of each coordinate or of the whole vector.

    Returns
    -------
    Calibration

    Raises
    ------
    TacitError
        If the kind of noise cannot achieve this kind of target, or an argument is out of range.

    Examples
    --------
    >>> calibrate("binomial", 1, ApproximateDP(1.0, 1e-5)).distribution
    Binomial(n=62, p=Fraction(1, 2))
    >>> round(calibrate("gaussian", 1, ApproximateDP(10.0, 0.25)).distribution.std, 4)
    0.2472
    """
    family = _family(kind)
    one_of("constants", constants, ("tight", "paper"))
    one_of("norm", norm, ("linf", "l2"))
    problem = _Problem(
        family.kind,
        _sensitivity(family, norm, sensitivity),
        target,
        integer("dimension", dimension, at_least=1),
        norm,
    )
    remedy = "the noise is shared among at least one participant"
    count = None if users is None else integer("users", users, at_least=1, remedy=remedy)
    if count is not None and count > 1:
        _check_shared(target)
    if isinstance(target, ApproximateDP):
        positive("epsilon", target.epsilon, "a guarantee needs epsilon > 0")
        if target.epsilon < LEAST_EPSILON:
            raise TacitError(
                f"epsilon is {target.epsilon:g}; below {LEAST_EPSILON:g} it is 0 for all that can "
                "be computed: use a larger epsilon, or discrete-laplace noise and delta 0"
            )
    if isinstance(target, RenyiDP) and (dimension > 1 or norm == "l2"):
        raise TacitError(
            "a Rényi target is calibrated for one coordinate: leave dimension and norm out, or use "
            "a concentrated target"
        )
    if isinstance(target, (PureDP, ApproximateDP)) and target.epsilon > LARGEST_EPSILON:
        raise TacitError(
            f"epsilon is {target.epsilon:g}; above {LARGEST_EPSILON} it gives no meaningful "
            "privacy: use a smaller epsilon"
        )
    if family is not Binomial and bits != ANY_BITS:
        raise TacitError(f"bits and bias are for binomial noise, not for {family.kind}")
    if constants == "paper":
        return _paper(problem, count)
    if family is Binomial:
        return _binomial(problem, count, bits)
    if isinstance(target, PureDP):
        return _pure(problem, target.epsilon, family, count)
    if family.continuous and count is not None and count > 1:
        raise TacitError(
            "continuous Gaussian noise is not shared among devices: use discrete-gaussian or "
            "skellam"
        )
    if family.continuous or family.divisible or count is None or count == 1:
        return problem.answer(problem.least(family), count)
    return _close_shares(problem, family, count)


def _check_shared(target: Target) -> None:
    """Reject targets that shared noise cannot achieve.

    These are guarantees about one message, which holds one share only, and add-or-remove
    neighbours.
    """
    check_replaced(target)
    if target.view not in (View.RELEASED_SUM, View.SHUFFLED):
        raise TacitError(
            f"{target.short} is about {target.view.text()}, who sees each share alone: leave users "
            "out, or ask for the view of the released sum"
        )


def _family(kind: str | Kind) -> Kind:
    """The class that a kind names; a class stands for itself."""
    if isinstance(kind, type):
        return kind
    known: dict[str, Kind] = {**NoiseDistribution.kinds, Gaussian.kind: Gaussian}
    if kind not in known:
        raise TacitError(
            f"noise is {kind!r}: must be one of {', '.join(sorted(known))}, or a "
            "class of distributions"
        )
    return known[kind]


def _sensitivity(family: Kind, norm: Norm, value: Number) -> Number:
    remedy = "the most that one participant can move the sum"
    if family.continuous or norm == "l2":
        bound = positive("sensitivity", value, remedy)
        if not family.continuous and bound < 1:
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
    kind: str
    sensitivity: Number
    target: Target
    dimension: int
    norm: Norm

    @property
    def times(self) -> int:
        """Participations of one participant."""
        return self.target.participations

    @property
    def start(self) -> float:
        """First guess at the standard deviation: that of continuous Gaussian noise."""
        return float(self.sensitivity) * self._spread * math.sqrt(self.times)

    @property
    def _spread(self) -> float:
        if isinstance(self.target, ConcentratedDP):
            return 1 / math.sqrt(2 * self.target.rho)
        if isinstance(self.target, RenyiDP):
            return max(math.sqrt(order / (2 * value)) for order, value in self.target.curve)
        if isinstance(self.target, PureDP):
            return 1 / self.target.epsilon
        epsilon, delta = self.target.epsilon, self.target.delta
        return least(lambda s: GaussianLoss(s, 1.0).delta(epsilon) <= delta, 1.0)

    @property
    def l2(self) -> float:
        """The l2 sensitivity of all coordinates of all participations together."""
        each = math.sqrt(self.dimension) if self.norm == "linf" else 1.0
        return float(self.sensitivity) * each * math.sqrt(self.times)

    def met_by(self, distribution: NoiseDistribution | Gaussian) -> bool:
        """Whether the distribution achieves the target."""
        return self.excess(distribution) <= 0

    def least(self, family: Kind) -> NoiseDistribution | Gaussian:
        """The least noise of a family that achieves the target; the result itself was checked."""
        make, start = family.family(self.start)
        return make(least_root(lambda amount: self.excess(make(amount)), start))

    def excess(self, distribution: NoiseDistribution | Gaussian) -> float:
        """At most 0 if the distribution achieves the target; decreases smoothly as noise grows."""
        target = self.target
        if isinstance(target, ConcentratedDP):
            return math.log(self.account(distribution)[0] / target.rho)
        if isinstance(target, RenyiDP):
            found = (self.times * self._divergence(distribution, a) / v for a, v in target.curve)
            return math.log(max(found) * (1 + 1e-15))
        single = self.dimension == self.times == 1
        if isinstance(target, ApproximateDP) and single and not distribution.continuous:
            delta = resolved_loss(distribution, self.integer_sensitivity, target.delta).delta(
                target.epsilon
            )
            return delta - target.delta if not delta else math.log(delta / target.delta)
        epsilon = self.account(distribution)[0]
        return math.log(epsilon / target.epsilon) if epsilon else -math.inf

    def account(self, distribution: NoiseDistribution | Gaussian) -> tuple[float, str]:
        """The ε at the target's δ (ρ for a concentrated target), and its derivation."""
        target = self.target
        if isinstance(target, ConcentratedDP):
            return self._rho(distribution), "divergence of shifted distributions, all orders"
        if isinstance(target, RenyiDP):
            worst = self.times * self._divergence(distribution, target.curve[0][0])
            return worst, "divergence of shifted distributions, at each order"
        delta = target.delta if isinstance(target, ApproximateDP) else 0.0
        if distribution.continuous:
            return (
                distribution.loss(self.l2).epsilon(delta),
                "exact: Gaussian mechanism (Balle & Wang 2018)",
            )
        if delta == 0:
            loss = self.times * self.dimension * distribution.pure_loss(self.integer_sensitivity)
            return loss, LARGEST_RATIO
        if self.dimension == 1:
            epsilon = (
                epsilon_of(distribution, self.integer_sensitivity, target)
                if self.integer_sensitivity
                else 0.0
            )
            return epsilon, _format_methods(accounting(distribution, target)) or SUMMED
        everything = self.dimension * self.times
        if self.norm == "linf":
            epsilon = linf_loss(distribution, int(self.sensitivity), everything).epsilon(delta)
            return epsilon, "composition of the exact losses of the coordinates"
        once = self.times == 1
        found = l2_guarantee(distribution, self.l2, everything, delta, at_once=once)
        return found.epsilon, found.derivation

    def ways(self, distribution: NoiseDistribution | Gaussian) -> tuple[Accounting, ...]:
        """The accounting method of several participations; that of equal releases only for
        vectors and continuous noise.
        """
        if not isinstance(self.target, ApproximateDP) or self.times == 1:
            return ()
        if self.dimension == 1 and not distribution.continuous:
            return accounting(distribution, self.target)
        composed = self.norm == "linf" or distribution.continuous
        return (Accounting(Method.LOSS if composed else Method.RENYI, self.times),)

    @property
    def integer_sensitivity(self) -> int:
        """The integer sensitivity of one participation."""
        return math.floor(self.sensitivity)

    def _divergence(self, distribution: NoiseDistribution | Gaussian, order: float) -> float:
        moved = self.sensitivity if distribution.continuous else self.integer_sensitivity
        return divergence(distribution, float(moved), order)

    def _rho(self, distribution: NoiseDistribution | Gaussian) -> float:
        if distribution.continuous:
            return distribution.concentration(self.l2)
        if self.dimension == 1:
            single = concentration(distribution, self.integer_sensitivity)
            if single is not None:
                return self.times * single
        rho, pure = distribution.concentration(self.l2), distribution.pure_loss(self.sensitivity)
        if rho is not None:
            return rho
        if math.isinf(pure) or (self.norm == "l2" and self.dimension > 1):
            raise TacitError(
                f"{self.kind} noise has no concentrated guarantee here: use discrete-gaussian or "
                "gaussian noise, or discrete-laplace noise with norm='linf'"
            )
        return self.times * self.dimension * PureDP(pure).rho_bound()

    def apart(self, distribution: NoiseDistribution, users: int) -> float:
        """ψ: bound on the absolute log ratio between all sums of shares and single draws."""
        return self.dimension * self.times * distribution.approximate_share(users).closeness(users)

    def tightened(self, psi: float) -> _Problem:
        """The target that single draws must achieve so that the sums of shares achieve this one.

        For every event P <= e^ψ P' and Q' <= e^ψ Q, so (ε', δ') of single draws gives
        (ε' + 2ψ, e^ψ δ') of the sums.
        """
        assert isinstance(self.target, ApproximateDP)
        epsilon, delta = self.target.epsilon - 2 * psi, self.target.delta * math.exp(-psi)
        return replace(self, target=replace(self.target, epsilon=max(0.0, epsilon), delta=delta))

    def account_of_rounds(self, distribution: NoiseDistribution, users: int) -> tuple[float, str]:
        """As `account_of_shares`, but each of several rounds is accounted for independently."""
        assert isinstance(self.target, ApproximateDP)
        apart = distribution.approximate_share(users).closeness(users)
        said = _format_methods(accounting(distribution, self.target))
        how = f"{said}; sums of shares within {apart:.2g} of one draw"
        return epsilon_of(distribution, self.integer_sensitivity, self.target, apart), how

    def account_of_shares(self, distribution: NoiseDistribution, users: int) -> tuple[float, str]:
        """The ε at the target's δ of a sum of shares that is only close to one draw."""
        psi = self.apart(distribution, users)
        if not psi < WIDEST_APART:
            raise TacitError(
                f"{users} shares of {self.kind} noise do not approximate one draw of standard "
                f"deviation {distribution.std:.3g}: use fewer users, constants='tight', or "
                "skellam noise, whose shares add up exactly"
            )
        epsilon, how = self.tightened(psi).account(distribution)
        how += f"; sum of shares within {psi:.2g} of one draw (Kairouz, Liu & Steinke 2021)"
        return epsilon + 2 * psi, how

    def answer(
        self,
        distribution: NoiseDistribution | Gaussian,
        users: int | None,
        *,
        constants: str = "tight",
        account: tuple[float, str] | None = None,
    ) -> Calibration:
        """A calibration with the true guarantee and, where the noise is divisible, the shares."""
        epsilon, how = account or self.account(distribution)
        share = (
            None
            if users is None or distribution.continuous
            else distribution.approximate_share(users)
        )
        curve: tuple[tuple[float, float], ...] = ()
        if isinstance(self.target, RenyiDP):
            orders = [order for order, _ in self.target.curve]
            moved = self.sensitivity if distribution.continuous else self.integer_sensitivity
            found = renyi_of(distribution, float(moved), orders, participations=self.times)
            true = dict(found.curve)
            curve = tuple((order, true[order]) for order in orders)
        numbers = (self.target, distribution, epsilon, how, share, users, curve)
        return Calibration(self.kind, constants, *numbers, self.ways(distribution))


def _pure(problem: _Problem, epsilon: float, family: Kind, users: int | None) -> Calibration:
    """Calibrate a pure target, in closed form where known (discrete Laplace: scale g/ε, exact)."""
    if problem.norm == "l2" and problem.dimension > 1:
        raise TacitError(
            "a pure guarantee is calibrated to an l∞ or l1 bound: use norm='linf', or give a delta"
        )
    moved = problem.integer_sensitivity * problem.dimension * problem.times
    distribution = None if family.continuous else family.of_pure_loss(epsilon, moved)
    if distribution is not None:
        return problem.answer(
            distribution, users, account=(distribution.pure_loss(moved), LARGEST_RATIO)
        )
    if family.continuous or math.isinf(family.of_std(problem.start).pure_loss(1)):
        raise TacitError(
            f"{problem.kind} noise has no pure guarantee: give a delta, or use "
            "discrete-laplace noise"
        )
    return problem.answer(problem.least(family), users)


def _close_shares(problem: _Problem, family: type[NoiseDistribution], users: int) -> Calibration:
    """The least noise as a sum of n draws that is only close to one draw."""
    target = problem.target
    if not isinstance(target, ApproximateDP):
        raise TacitError(
            f"a sum of {family.kind} shares is accounted for at an (epsilon, delta) target: "
            "give a delta"
        )
    make, start = family.family(problem.start)
    rounds = problem.times > 1 and problem.dimension == 1  # protocols account for each round
    account = problem.account_of_rounds if rounds else problem.account_of_shares

    def enough(amount: float) -> bool:
        distribution = make(amount)
        if rounds:
            return account(distribution, users)[0] <= target.epsilon
        psi = problem.apart(distribution, users)
        return 2 * psi < target.epsilon and problem.tightened(psi).met_by(distribution)

    distribution = make(least(enough, start))
    return problem.answer(distribution, users, account=account(distribution, users))


def _binomial(problem: _Problem, users: int | None, fixed: NoiseBits) -> Calibration:
    """Calibrate the number of noise bits per user, or their bias."""
    bits, bias = fixed.per_user, fixed.bias
    if not isinstance(problem.target, ApproximateDP):
        raise TacitError(
            "binomial noise has a finite range, hence no pure guarantee: give a "
            "delta, or use discrete-laplace"
        )
    if bits is not None and (users is None or bias is not None):
        raise TacitError(
            "bits per user are given: the number of users is needed, and the bias is computed: "
            "give users, not bias"
        )
    p = probability("bias", bias) if bias is not None else Fraction(1, 2)
    moved = problem.dimension if problem.norm == "linf" else 1
    guess = max(1, round(problem.start**2 * moved / float(p * (1 - p))))
    everyone = users or 1

    def needed() -> int:
        """The least bits per user, all of bias p; beyond 10^7 the least up to a part in 10^7.

        More bits never weaken the guarantee: they could be added by post-processing.
        """
        first = max(1, guess // everyone)
        if first * RELATIVE < 1:
            return least_integer(lambda b: problem.met_by(Binomial(everyone * b, p)), first)
        found = least_root(lambda b: problem.excess(Binomial(everyone * math.ceil(b), p)), first)
        return math.ceil(found)

    if users is None or bias is not None:
        per_user = needed()
        return problem.answer(Binomial(everyone * per_user, p), users)
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
    return problem.answer(Binomial(trials, Fraction(_least_bias(problem, trials))), users)


def _least_bias(problem: _Problem, trials: int) -> float:
    """The least p <= ½ at which Binomial(trials, p) meets the target, from above."""
    variance = problem.start**2 * (problem.dimension if problem.norm == "linf" else 1)
    guess = (1 - math.sqrt(max(0.0, 1 - 4 * min(0.25, variance / trials)))) / 2
    return min(
        0.5, least_root(lambda p: problem.excess(Binomial(trials, min(p, 0.5))), max(guess, 1e-12))
    )


def _paper(problem: _Problem, users: int | None) -> Calibration:
    """The closed form that a paper prints, for one coordinate."""
    form, pure = closed_forms.BY_KIND.get(problem.kind), isinstance(problem.target, PureDP)
    if form is None or problem.dimension > 1:
        raise TacitError(
            f"the papers have no closed form for {problem.kind} noise beyond one coordinate: use "
            "constants='tight'"
        )
    if isinstance(problem.target, (ConcentratedDP, RenyiDP)) or (
        pure and problem.kind != "discrete-laplace"
    ):
        raise TacitError(
            f"the paper's closed form for {problem.kind} noise needs a target with epsilon and "
            "delta"
        )
    distribution = form(problem.sensitivity, problem.target, users)
    summed = (
        not distribution.continuous
        and not distribution.divisible
        and users is not None
        and users > 1
    )
    account = problem.account_of_shares(distribution, users) if summed else None  # type: ignore[arg-type]
    return problem.answer(distribution, users, constants="paper", account=account)


def _format_methods(ways: tuple[Accounting, ...]) -> str:
    """The accounting methods of several participations, in words."""
    return "; ".join(way.text().removeprefix("accounted for by ") for way in ways)
