"""Guarantees as values: what is promised, about whose view, between which neighbours, and on what
it rests.

A guarantee can be printed in one plain sentence, compared, composed with others and converted into
weaker kinds; what it rests on goes along. Conversions follow CZ23 Lemma 10 (Canonne, Kamath &
Steinke 2020 for Rényi to approximate; Bun & Steinke 2016 for pure to concentrated). What is exact
and what is a bound is said at each function; the exact route through loss distributions is in
`loss`, and `promises` is where a guarantee is derived from noise and its use.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import Enum
from typing import Any, Self

from tacit.checks import TacitError, integer, positive, probability


class Neighbours(Enum):
    """Which two data sets must look alike."""

    REPLACE_ONE = "replacing one person's data"
    ADD_OR_REMOVE_ONE = "adding or removing one person's data"


class View(Enum):
    """Whose view the guarantee bounds: everything that this party ever sees; and who is trusted."""

    trust: str

    OPENED_SUM = (
        "whoever sees the opened sum",
        "the intermediary is trusted to open nothing but the sum",
    )
    SERVER_OUTPUT = (
        "whoever sees what the trusted server publishes",
        "the server is trusted with every answer and adds the noise",
    )
    MESSAGE = ("whoever sees the person's own message", "nobody is trusted")
    SHUFFLED = (
        "whoever sees the shuffled messages",
        "the shuffler is trusted to mix them and to keep their order",
    )
    SILO = (
        "whoever sees what the person's silo sends, the server and the other silos included",
        "the person's silo is trusted with the person's data",
    )
    OTHER_SERVER = (
        "the other server, the collector and all other participants together",
        "one of the two servers is trusted to be honest, whichever",
    )

    def __new__(cls, who: str, trust: str) -> View:
        """A member's value is whose view it is."""
        member = object.__new__(cls)
        member._value_, member.trust = who, trust
        return member


EXACT = "noise is drawn exactly, in integers"
IDEAL = "in ideal real arithmetic: floating-point noise is for simulation only"
IN_RANGE = (
    "a report that is not in range is dropped, unseen, as long as both servers are honest: one "
    "that lies can spoil the sum, but not the privacy"
)
TIMES = {1: "once", 2: "twice"}


READ_AT = 1e-6  # the δ at which Rényi and concentrated guarantees are read as ε and δ
ORDERS: tuple[float, ...] = (
    *(1 + x / 10 for x in range(1, 100)),
    *range(11, 64),
    80,
    96,
    128,
    192,
    256,
    512,
    1024,
)


@dataclass(frozen=True)
class Guarantee(ABC):
    """A differential privacy guarantee for one person, within one view, between stated
    neighbours, for all that person's participations together.

    `conditions` is what else it rests on: honest others, what is not opened, the arithmetic. They
    are printed with it and go along wherever it goes.
    """

    neighbours: Neighbours = field(default=Neighbours.REPLACE_ONE, kw_only=True)
    view: View = field(default=View.OPENED_SUM, kw_only=True)
    participations: int = field(default=1, kw_only=True)
    conditions: tuple[str, ...] = field(default=(), kw_only=True, compare=False)

    def __post_init__(self) -> None:
        remedy = "how often one person takes part"
        often = integer("participations", self.participations, at_least=1, remedy=remedy)
        object.__setattr__(self, "participations", often)

    @abstractmethod
    def delta_at(self, epsilon: float) -> float:
        """The least δ that this guarantee implies at ε."""

    @abstractmethod
    def epsilon_at(self, delta: float) -> float:
        """The least ε that this guarantee implies at δ; inf if there is none."""

    @abstractmethod
    def renyi(self, order: float) -> float:
        """A bound on the Rényi divergence of this order; inf if the guarantee implies none."""

    @property
    @abstractmethod
    def short(self) -> str:
        """The guarantee in the field's notation."""

    @abstractmethod
    def _meaning(self) -> str:
        """What it means, as the end of a sentence."""

    def __str__(self) -> str:
        claim = f"{self.short}: to {self.view.value}, {self.neighbours.value} {self._meaning()}"
        return "; ".join((claim, *self.rests_on)) + "."

    @property
    def rests_on(self) -> tuple[str, ...]:
        """Everything that must hold: how often a person takes part, who is trusted, the
        conditions, the arithmetic.
        """
        return (
            f"each person takes part at most {times(self.participations)}, and whether they do "
            "does not depend on the answer",
            self.view.trust,
            *self.conditions,
            *(() if IDEAL in self.conditions else (EXACT,)),
        )

    def to_dict(self) -> dict[str, Any]:
        """As data, for whoever does not read sentences; numbers are rounded up."""
        at = self.approximated
        return {
            "epsilon": _no_less(at.epsilon),
            "delta": _no_less(getattr(at, "delta", 0.0)),
            "view": self.view.value,
            "neighbours": self.neighbours.value,
            "participations": self.participations,
            "conditions": list(self.rests_on[1:]),
            "text": str(self),
        }

    @property
    def approximated(self) -> PureDP | ApproximateDP:
        """The guarantee as ε and δ; other kinds at a δ of 10^-6."""
        return self.to_approximate(READ_AT)

    @property
    def about(self) -> dict[str, Any]:
        """All but the numbers: what a conversion keeps."""
        return {
            "neighbours": self.neighbours,
            "view": self.view,
            "participations": self.participations,
            "conditions": self.conditions,
        }

    def given(self, *conditions: str) -> Self:
        """The same guarantee, resting on these conditions too."""
        return replace(self, conditions=_union(self.conditions, conditions))

    def to_approximate(self, delta: float) -> ApproximateDP:
        """The (ε, δ) guarantee that this one implies."""
        level = float(
            probability("delta", delta, "give the failure probability to convert at, such as 1e-5")
        )
        epsilon = self.epsilon_at(level)
        if not math.isfinite(epsilon):
            raise TacitError(
                f"{self.short} implies no (epsilon, {level:g})-DP at any epsilon: ask for a larger "
                "delta"
            )
        return ApproximateDP(epsilon, level, **self.about)

    def implies(self, other: Guarantee) -> bool:
        """Whether everything that holds to `other` also holds by this guarantee, as far as the
        conversions here can tell.
        """
        if self.neighbours != other.neighbours or self.view != other.view:
            return False
        if self.participations < other.participations:
            return False
        match other:
            case PureDP():
                return isinstance(self, PureDP) and self.epsilon <= other.epsilon
            case ApproximateDP():
                return self.epsilon_at(other.delta) <= other.epsilon
            case ConcentratedDP():
                return self.rho_bound() <= other.rho
            case RenyiDP():
                return all(self.renyi(order) <= value for order, value in other.curve)
        return False

    def rho_bound(self) -> float:
        """The least ρ such that this guarantee implies ρ-zCDP; inf if there is none."""
        return math.inf

    def group(self, size: int) -> Guarantee:
        """The guarantee for a group of people together, where there is a simple one."""
        raise TacitError(
            f"no group guarantee is known here for {self.short} and {size} people: use PureDP or "
            "ConcentratedDP"
        )

    def at(self, *, neighbours: Neighbours | None = None, view: View | None = None) -> Self:
        """The same numbers about another view or other neighbours; the caller vouches that they
        hold there.
        """
        return replace(self, neighbours=neighbours or self.neighbours, view=view or self.view)


@dataclass(frozen=True)
class PureDP(Guarantee):
    """P[M(D) in E] <= e^ε P[M(D') in E] for every event E.

    >>> print(PureDP(1.0))  # doctest: +NORMALIZE_WHITESPACE +ELLIPSIS
    (1, 0)-DP: to whoever sees the opened sum, replacing one person's data changes the
    probability of anything by a factor of at most 2.72, without exception; each person takes part
    at most once, ...
    """

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(
            "epsilon",
            self.epsilon,
            "a guarantee needs epsilon > 0",
        )

    @property
    def short(self) -> str:
        """(ε, 0)-DP, rounded up."""
        return f"({up(self.epsilon)}, 0)-DP"

    @property
    def approximated(self) -> PureDP:
        """Itself."""
        return self

    def _meaning(self) -> str:
        factor = _factor(self.epsilon)
        return (
            f"changes the probability of anything by a factor of at most {factor}, without "
            "exception"
        )

    def delta_at(self, epsilon: float) -> float:
        """Exact for the worst mechanism, randomized response: (e^ε₀ - e^ε) / (1 + e^ε₀) below
        ε₀.
        """
        if finite_epsilon(epsilon) >= self.epsilon:
            return 0.0
        return -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))

    def epsilon_at(self, delta: float) -> float:
        """The inverse of `delta_at`, rounded up: at a tiny δ half a unit in the last place of ε is
        more than δ allows.
        """
        used = float(probability("delta", delta, zero=True)) * (1 + math.exp(-self.epsilon))
        found = self.epsilon + math.log1p(-used) if used < 1 else 0.0
        return min(self.epsilon, math.nextafter(found, math.inf)) if found > 0 else 0.0

    def renyi(self, order: float) -> float:
        """Exact for the worst mechanism, randomized response; never above CZ23 Lemma 10's ½ε²α.

        With q the likelier answer's probability, q^α (1-q)^{1-α} + (1-q)^α q^{1-α} = cosh((α-½)ε) /
        cosh(ε/2), which is 1 + 2 sinh(αε/2) sinh((α-1)ε/2) / cosh(ε/2): no cancellation at a small
        ε.
        """
        e, rest = self.epsilon, _beyond_one(order)
        if order * e > 30:
            total = (
                (order - 0.5) * e
                - e / 2
                + math.log1p(math.exp(-(2 * order - 1) * e))
                - math.log1p(math.exp(-e))
            )
        else:
            total = math.log1p(
                2 * math.sinh(order * e / 2) * math.sinh(rest * e / 2) / math.cosh(e / 2)
            )
        return min(total / rest, e, e * e * order / 2)

    def rho_bound(self) -> float:
        """½ε² (Bun & Steinke 2016, Proposition 1.4; CZ23 Lemma 10)."""
        return self.epsilon**2 / 2

    def group(self, size: int) -> PureDP:
        """size · ε."""
        return replace(self, epsilon=self.epsilon * integer("group size", size, at_least=1))


@dataclass(frozen=True)
class ApproximateDP(Guarantee):
    """P[M(D) in E] <= e^ε P[M(D') in E] + δ for every event E.

    >>> ApproximateDP(1.0, 1e-5).short
    '(1, 1e-05)-DP'
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            isinstance(self.epsilon, bool)
            or not isinstance(self.epsilon, (int, float))
            or not 0 <= self.epsilon < math.inf
        ):
            raise TacitError(f"epsilon is {self.epsilon}; it must be a finite number of at least 0")
        probability(
            "delta",
            self.delta,
            "for a guarantee without exceptions use PureDP(epsilon), or --delta 0",
        )

    @property
    def short(self) -> str:
        """(ε, δ)-DP, rounded up."""
        return f"({up(self.epsilon)}, {up(self.delta)})-DP"

    @property
    def approximated(self) -> ApproximateDP:
        """Itself."""
        return self

    def _meaning(self) -> str:
        return (
            f"changes the probability of anything by a factor of at most {_factor(self.epsilon)}, "
            f"but for an exception of probability {up(self.delta, 3)}"
        )

    def delta_at(self, epsilon: float) -> float:
        """Exact for the worst mechanism: one that fails openly with probability δ and else answers
        at random.
        """
        exception = self.delta
        if finite_epsilon(epsilon) >= self.epsilon:
            return exception
        return exception + (1 - exception) * PureDP(self.epsilon).delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """The inverse of `delta_at`; inf below δ."""
        if probability("delta", delta, zero=True) < self.delta:
            return math.inf
        return (
            PureDP(self.epsilon).epsilon_at((delta - self.delta) / (1 - self.delta))
            if self.epsilon > 0
            else 0.0
        )

    def renyi(self, order: float) -> float:
        """None is implied."""
        _beyond_one(order)
        return math.inf


@dataclass(frozen=True)
class RenyiDP(Guarantee):
    """D_α(M(D) || M(D')) <= ε(α) at each (α, ε(α)) of the curve.

    >>> RenyiDP.of(lambda order: order / 2).epsilon_at(1e-5) < 5.3
    True
    """

    curve: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.curve or any(
            not 1 < order < math.inf or math.isnan(value) or value < 0
            for order, value in self.curve
        ):
            raise TacitError(
                "a Rényi curve needs pairs (finite order > 1, divergence >= 0); got "
                f"{self.curve[:3]}"
            )

    @classmethod
    def of(
        cls,
        curve: Callable[[float], float],
        orders: Iterable[float] = ORDERS,
        *,
        neighbours: Neighbours = Neighbours.REPLACE_ONE,
        view: View = View.OPENED_SUM,
    ) -> RenyiDP:
        """The curve of a function, at these orders."""
        return cls(
            tuple((order, curve(order)) for order in orders), neighbours=neighbours, view=view
        )

    @property
    def short(self) -> str:
        """A typical point of the curve."""
        order, value = min(self.curve, key=lambda point: abs(point[0] - 10))
        return f"({order:g}, {up(value)})-RDP and {len(self.curve) - 1} other orders"

    def _meaning(self) -> str:
        implied = f"({up(self.epsilon_at(1e-5), 3)}, 1e-05)-DP"
        return f"is bounded at {len(self.curve)} Rényi orders, which implies {implied}"

    def delta_at(self, epsilon: float) -> float:
        """The best order's bound: e^{(α-1)(ε(α)-ε)} (1-1/α)^α / (α-1) (CKS20 Proposition 12)."""
        at = finite_epsilon(epsilon)
        return min(1.0, min(renyi_delta(order, value, at) for order, value in self.curve))

    def epsilon_at(self, delta: float) -> float:
        """CZ23 Lemma 10: inf over orders of ε(α) + ln(1/(αδ))/(α-1) + ln(1-1/α)."""
        remedy = "Rényi divergences promise nothing without exceptions"
        level = float(probability("delta", delta, remedy, zero=True))
        if level == 0:
            return math.inf
        return max(0.0, min(renyi_epsilon(order, value, level) for order, value in self.curve))

    def renyi(self, order: float) -> float:
        """The value at the next listed order (divergences grow with the order); inf past the
        last.
        """
        _beyond_one(order)
        return min((value for listed, value in self.curve if listed >= order), default=math.inf)

    def repeat(self, times: int) -> RenyiDP:
        """Divergences add up."""
        count = integer("times", times, at_least=1)
        curve = tuple((order, value * count) for order, value in self.curve)
        return replace(self, curve=curve, participations=self.participations * count)


@dataclass(frozen=True)
class ConcentratedDP(Guarantee):
    """D_α(M(D) || M(D')) <= ρ α for every α > 1 (zero-concentrated differential privacy).

    >>> round(ConcentratedDP(0.5).epsilon_at(1e-5), 2)  # what "epsilon = 1" of Dist-RDP-SE means
    4.73
    """

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("rho", self.rho, "a concentrated guarantee needs rho > 0")

    @property
    def short(self) -> str:
        """ρ-zCDP."""
        return f"{up(self.rho)}-zCDP"

    def _meaning(self) -> str:
        implied = f"({up(self.epsilon_at(1e-5), 3)}, 1e-05)-DP"
        return f"is bounded at every Rényi order, which implies {implied}"

    def delta_at(self, epsilon: float) -> float:
        """The infimum over real orders."""
        at = finite_epsilon(epsilon)
        return math.exp(
            min(0.0, self._best(lambda order: renyi_log_delta(order, self.rho * order, at)))
        )

    def epsilon_at(self, delta: float) -> float:
        """CZ23 Lemma 10, over real orders; inf at δ = 0."""
        level = float(
            probability(
                "delta",
                delta,
                "a concentrated guarantee promises nothing without exceptions",
                zero=True,
            )
        )
        return (
            math.inf
            if level == 0
            else max(0.0, self._best(lambda order: renyi_epsilon(order, self.rho * order, level)))
        )

    def _best(self, bound: Callable[[float], float]) -> float:
        from scipy.optimize import minimize_scalar  # slow to import

        # any order gives a valid bound, so an inexact minimum is still safe
        found = minimize_scalar(
            lambda t: bound(1 + math.exp(t)),
            bounds=(-12.0, 25.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        return float(found.fun)

    def renyi(self, order: float) -> float:
        """ρ α."""
        _beyond_one(order)
        return self.rho * order

    def rho_bound(self) -> float:
        """ρ itself."""
        return self.rho

    def group(self, size: int) -> ConcentratedDP:
        """size² ρ."""
        return replace(self, rho=self.rho * integer("group size", size, at_least=1) ** 2)


def times(participations: int) -> str:
    """How often, in words.

    >>> times(1), times(2), times(3000)
    ('once', 'twice', '3,000 times')
    """
    return TIMES.get(participations, f"{participations:,} times")


def finite_epsilon(epsilon: float) -> float:
    """An ε at which a δ can be computed: finite, at least 0."""
    if (
        isinstance(epsilon, bool)
        or not isinstance(epsilon, (int, float))
        or not 0 <= epsilon < math.inf
    ):
        raise TacitError(
            f"epsilon is {epsilon}; delta is computed at a finite epsilon of at least 0"
        )
    return float(epsilon)


def _beyond_one(order: float) -> float:
    """α - 1, for a Rényi order that is one."""
    if not 1 < order < math.inf:
        raise TacitError(f"the Rényi order is {order}; it must be greater than 1, and finite")
    return order - 1


def _factor(epsilon: float) -> str:
    """e^ε for a sentence, rounded up, also where it is too large for a float."""
    if 0 < epsilon < 1e-11:  # what `up` leaves out is all that there is
        return "1.01"
    if epsilon < 700:
        return up(math.nextafter(math.exp(epsilon), math.inf), 3)
    return f"10^{math.ceil(epsilon / math.log(10))}"


def up(value: float, digits: int = 4) -> str:
    """A number as it is printed in a promise: rounded up to so many digits. Only a part in 10^12,
    which is what arithmetic in doubles may leave, is not worth a digit.

    >>> up(1.0), up(1.0004), up(1.00001), up(0.1 + 0.2), up(3.2e-18)
    ('1', '1.001', '1.001', '0.3', '3.2e-18')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    rounding = Context(prec=digits, rounding=ROUND_CEILING)
    exact = Decimal(repr(_no_less(value))) * (1 - Decimal("1e-12"))
    return f"{float(rounding.create_decimal(exact)):.{digits}g}"


def down(value: float, digits: int = 4) -> str:
    """A number that a bound was shown to be above, as it is printed: rounded down.

    >>> down(1.0), down(0.99996), down(1.23456, 2)
    ('1', '0.9999', '1.2')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    rounding = Context(prec=digits, rounding=ROUND_FLOOR)
    return f"{float(rounding.create_decimal(repr(float(value)))):.{digits}g}"


def _no_less(value: float) -> float:
    """The nearest float that is not below a number, which may be a fraction."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def _union(*parts: Iterable[str]) -> tuple[str, ...]:
    """All conditions, each once, in the order in which they came."""
    return tuple(dict.fromkeys(condition for part in parts for condition in part))


def renyi_log_delta(order: float, value: float, epsilon: float) -> float:
    """ln of the δ at ε that a Rényi divergence implies (CKS20 Proposition 12)."""
    return (order - 1) * (value - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)


def renyi_delta(order: float, value: float, epsilon: float) -> float:
    """The δ at ε that a Rényi divergence implies."""
    exponent = renyi_log_delta(order, value, epsilon)
    return math.exp(exponent) if exponent < 0 else math.inf


def renyi_epsilon(order: float, value: float, delta: float) -> float:
    """The ε at δ that a Rényi divergence implies (CZ23 Lemma 10)."""
    return value - math.log(order * delta) / (order - 1) + math.log1p(-1 / order)


def compose(guarantees: Iterable[Guarantee]) -> Guarantee:
    """What a person has who is in all of these, each guarantee holding whatever the others' outputs
    (adaptive composition).

    Concentrated guarantees add up in ρ, pure ones in ε, Rényi ones at common orders; a mixture with
    an approximate one adds up ε and δ. For tighter answers through loss distributions see
    `tacit.privacy.composition`.

    >>> compose([PureDP(0.5), PureDP(0.25)]).short
    '(0.75, 0)-DP'
    """
    items = list(guarantees)
    if not items:
        raise TacitError("nothing to compose: give at least one guarantee")
    first = items[0]
    if any(item.neighbours != first.neighbours or item.view != first.view for item in items):
        raise TacitError(
            "guarantees about different neighbours or views do not compose: state them for one "
            "view first, with .at()"
        )
    about = first.about | {
        "participations": sum(item.participations for item in items),
        "conditions": _union(*(item.conditions for item in items)),
    }
    if all(isinstance(item, PureDP) for item in items):
        total = math.fsum(item.epsilon for item in items if isinstance(item, PureDP))
        return PureDP(total, **about)
    if any(isinstance(item, ApproximateDP) for item in items):
        return _compose_approximately(items, about)
    if all(math.isfinite(item.rho_bound()) for item in items):
        return ConcentratedDP(sum(item.rho_bound() for item in items), **about)
    curves = [item for item in items if isinstance(item, RenyiDP)]
    orders = sorted(set.intersection(*({order for order, _ in item.curve} for item in curves)))
    if not orders:
        raise TacitError(
            "these Rényi curves share no order: state them at common orders, such as "
            "tacit.privacy.ORDERS"
        )
    curve = tuple((order, sum(item.renyi(order) for item in items)) for order in orders)
    return RenyiDP(curve, **about)


def _compose_approximately(items: list[Guarantee], about: dict[str, Any]) -> ApproximateDP:
    others = [item for item in items if not isinstance(item, (PureDP, ApproximateDP))]
    if others:
        raise TacitError(
            f"{others[0].short} and an approximate guarantee compose only at a chosen delta: "
            "convert it first, with .to_approximate(delta)"
        )
    epsilon = sum(item.epsilon for item in items if isinstance(item, (PureDP, ApproximateDP)))
    delta = sum(item.delta for item in items if isinstance(item, ApproximateDP))
    if delta >= 1:
        raise TacitError(
            f"the exceptions of these guarantees add up to {delta:g}, which promises nothing: "
            "compose fewer"
        )
    return ApproximateDP(epsilon, delta, **about)
