"""Guarantees as frozen values: numbers, neighbours, adversary's view, assumptions, arithmetic.

A guarantee renders as one sentence, and can be compared, composed and converted into weaker kinds;
its assumptions go along. Conversions follow CZ23 Lemma 10 (Canonne, Kamath & Steinke 2020 for Rényi
to approximate; Bun & Steinke 2016 for pure to concentrated). Each function states whether it is
exact or a bound. This module derives no guarantee from noise: `loss` computes exact privacy loss
distributions, and `accounting` derives guarantees from them.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

from tacit.assumptions import (
    TRUST_OF_VIEW,
    Accounting,
    Assumption,
    DistinctRounds,
    Method,
    MetricsPerParticipation,
    of_several,
    together,
    uncovered,
)
from tacit.errors import TacitError, integer, positive, probability
from tacit.names import is_own
from tacit.privacy.renyi import (
    ORDERS,
    finite_epsilon,
    order_minus_one,
    renyi_delta,
    renyi_epsilon,
    renyi_log_delta,
)
from tacit.rounding import delta_up, exactly, no_less, times_up, up
from tacit.trust import Neighbours as Neighbours
from tacit.trust import View as View


class Arithmetic(StrEnum):
    """The arithmetic in which the noise of a guarantee is drawn.

    Only derivation from an integer noise distribution sets `EXACT`
    (`accounting.state_drawn_arithmetic`). Constructors, `dataclasses.replace` and users' own values
    give `UNSTATED`.
    """

    EXACT = "exact"
    IDEAL = "ideal"
    UNSTATED = "unstated"

    def covers(self, other: Arithmetic) -> bool:
        """Whether a guarantee in this arithmetic is at least as strong as in the other."""
        order = (Arithmetic.UNSTATED, Arithmetic.IDEAL, Arithmetic.EXACT)
        return order.index(self) >= order.index(other)

    def text(self) -> str:
        """Render as a clause of a sentence."""
        return {
            Arithmetic.EXACT: "noise is drawn exactly, in integers",
            Arithmetic.IDEAL: "in ideal real arithmetic: floating-point noise is for simulation "
            "only",
            Arithmetic.UNSTATED: "how the noise is drawn is not stated",
        }[self]


TIMES = {1: "once", 2: "twice"}


READ_AT = 1e-6  # δ at which Rényi and concentrated guarantees are converted to (ε, δ)
Kept = TypeVar("Kept", bound="Guarantee")


def state_arithmetic(guarantee: Kept, arithmetic: Arithmetic) -> Kept:
    """Return the guarantee with this arithmetic; for derivations within `tacit.privacy` only."""
    made = replace(guarantee)
    object.__setattr__(made, "arithmetic", Arithmetic(arithmetic))
    return made


@dataclass(frozen=True)
class Guarantee(ABC):
    """A differential privacy guarantee for one participant, over all of their participations.

    Attributes
    ----------
    neighbours : Neighbours
        The neighbouring relation.
    view : View
        What the adversary observes. It determines which party must be trusted.
    participations : int
        The most times that one participant takes part.
    assumptions : frozenset of Assumption
        Further assumptions. They are part of equality, JSON and `implies`.
    arithmetic : Arithmetic
        Not an argument: derivations set it, everything else is `UNSTATED`.

    Notes
    -----
    Subclasses are `PureDP`, `ApproximateDP`, `RenyiDP` and `ConcentratedDP`. They implement
    `delta_at`, `epsilon_at` and `renyi`.

    Examples
    --------
    >>> strong, weak = PureDP(0.5), ApproximateDP(1.0, 1e-6)
    >>> strong.implies(weak), weak.implies(strong)
    (True, False)
    """

    kind: ClassVar[str]

    neighbours: Neighbours = field(default=Neighbours.REPLACE_ONE, kw_only=True)
    view: View = field(default=View.RELEASED_SUM, kw_only=True)
    participations: int = field(default=1, kw_only=True)
    assumptions: frozenset[Assumption] = field(default=frozenset(), kw_only=True)
    arithmetic: Arithmetic = field(default=Arithmetic.UNSTATED, init=False)

    def __post_init__(self) -> None:
        if not is_own(type(self)):
            raise TacitError(
                f"guarantee is a {type(self).__qualname__}; its class must be one of tacit's, "
                "which derives and compares guarantees: use PureDP, ApproximateDP, RenyiDP or "
                "ConcentratedDP"
            )
        remedy = "it bounds how often one participant takes part"
        often = integer("participations", self.participations, at_least=1, remedy=remedy)
        object.__setattr__(self, "participations", often)
        strange = [one for one in self.assumptions if not isinstance(one, Assumption)]
        if strange:
            raise TacitError(
                f"assumptions hold {strange[0]!r}; they must be values of tacit.assumptions"
            )
        # the view implies its trust assumption: drop the duplicate
        stated = together(self.assumptions) - {TRUST_OF_VIEW[self.view]}
        object.__setattr__(self, "assumptions", stated)

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
        """What the numbers mean, as the end of the sentence of `__str__`."""

    def __str__(self) -> str:
        claim = f"{self.short}: to {self.view.text()}, {self.neighbours.text()} {self._meaning()}"
        return "; ".join((claim, *self.clauses())) + "."

    def clauses(self) -> tuple[str, ...]:
        """Everything that must hold, one clause each: participations, trust, assumptions, noise."""
        return (
            f"each participant takes part at most {times(self.participations)}, and whether they "
            "do does not depend on the answer",
            TRUST_OF_VIEW[self.view].text(),
            *(one.text() for one in self.sorted_assumptions()),
            self.arithmetic.text(),
        )

    def sorted_assumptions(self) -> list[Assumption]:
        """The assumptions in display order."""
        return sorted(self.assumptions, key=Assumption.sort_key)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON for readers: numbers rounded up, sentences beside identifiers.

        `to_data` is the form that is stored and compared.
        """
        at = self.approximated
        trust = TRUST_OF_VIEW[self.view]
        return {
            "epsilon": no_less(at.epsilon),
            "delta": no_less(at.delta) if isinstance(at, ApproximateDP) else 0.0,
            "view": self.view.value,
            "neighbours": self.neighbours.value,
            "participations": self.participations,
            "arithmetic": self.arithmetic.value,
            "assumptions": [one.to_dict() for one in (trust, *self.sorted_assumptions())],
            "text": str(self),
        }

    def to_data(self) -> dict[str, Any]:
        """Return every field as plain data, without any sentence; `from_data` reads it."""
        about = {
            "kind": self.kind,
            "neighbours": self.neighbours.value,
            "view": self.view.value,
            "participations": self.participations,
            "assumptions": [one.to_dict() for one in self.sorted_assumptions()],
            "arithmetic": self.arithmetic.value,
        }
        return about | {name: _data(getattr(self, name)) for name in self._numbers()}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Guarantee:
        """Restore the guarantee that `to_data` wrote.

        Raises
        ------
        TacitError
            If the kind of guarantee is unknown.

        Examples
        --------
        >>> Guarantee.from_data(PureDP(1.0).to_data()) == PureDP(1.0)
        True
        """
        kinds = {one.kind: one for one in _with_subclasses(*KINDS) if is_own(one)}
        kind = kinds.get(str(data.get("kind")))
        if kind is None:
            raise TacitError(
                f"kind of guarantee is {data.get('kind')!r}: must be one of "
                f"{', '.join(sorted(kinds))}"
            )
        made: Guarantee = kind(
            **{name: _from_data(data[name]) for name in kind._numbers()},
            neighbours=Neighbours(data["neighbours"]),
            view=View(data["view"]),
            participations=data["participations"],
            assumptions=frozenset(map(Assumption.from_dict, data["assumptions"])),
        )
        return state_arithmetic(made, Arithmetic(data["arithmetic"]))

    @classmethod
    def _numbers(cls) -> list[str]:
        """The fields that only this kind of guarantee has."""
        common = {entry.name for entry in fields(Guarantee)}
        return [entry.name for entry in fields(cls) if entry.name not in common]

    @property
    def digest(self) -> str:
        """SHA-256 of `to_data`: identifies exactly this guarantee, its assumptions included."""
        spelled = json.dumps(self.to_data(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(spelled.encode()).hexdigest()

    @property
    def approximated(self) -> PureDP | ApproximateDP:
        """The guarantee as (ε, δ); Rényi and concentrated ones at δ = 10^-6."""
        return self.to_approximate(READ_AT)

    @property
    def metrics(self) -> int:
        """Number of metrics of a participation covered together; 1 if nothing is stated."""
        counts = [one.count for one in self.assumptions if isinstance(one, MetricsPerParticipation)]
        return min(counts, default=1)

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The arguments that a conversion keeps."""
        return {
            "neighbours": self.neighbours,
            "view": self.view,
            "participations": self.participations,
            "assumptions": self.assumptions,
        }

    def assuming(self, *assumptions: Assumption) -> Self:
        """Return the same guarantee under these additional assumptions."""
        made = replace(self, assumptions=together(self.assumptions, assumptions))
        return state_arithmetic(made, self.arithmetic)

    def to_approximate(self, delta: float) -> ApproximateDP:
        """Return the (ε, δ) guarantee that this one implies at `delta`.

        Raises
        ------
        TacitError
            If it implies none at any ε.
        """
        level = float(
            probability("delta", delta, "give the failure probability to convert at, such as 1e-5")
        )
        epsilon = self.epsilon_at(level)
        if not math.isfinite(epsilon):
            raise TacitError(
                f"{self.short} implies no (epsilon, {level:g})-DP at any epsilon: ask for a larger "
                "delta"
            )
        made = ApproximateDP(epsilon, level, **self.shared_fields).assuming(*self._accounting())
        return state_arithmetic(made, self.arithmetic)

    def _accounting(self) -> tuple[Accounting, ...]:
        """Method of composition over participations; None for basic composition."""
        methods = {"renyi": Method.RENYI, "concentrated": Method.CONCENTRATED}
        if self.participations == 1 or self.kind not in methods:
            return ()
        return (Accounting(methods[self.kind], self.participations),)

    def implies(self, other: Guarantee) -> bool:
        """Whether this guarantee is at least as strong as `other`, as far as conversions can tell.

        Numbers alone do not suffice. View and neighbours must be equal. Every assumption that this
        guarantee needs must be implied by one that `other` states. Participations must be at least
        as many, and the arithmetic no weaker.
        """
        if self.neighbours is not other.neighbours or self.view is not other.view:
            return False
        if self.participations < other.participations:
            return False
        if self.metrics < other.metrics or not self.arithmetic.covers(other.arithmetic):
            return False
        if uncovered(self.assumptions, other.assumptions):
            return False
        match other:
            case PureDP():
                return isinstance(self, PureDP) and self.epsilon <= other.epsilon
            case ApproximateDP():
                return all(self.epsilon_at(delta) <= epsilon for epsilon, delta in other.pairs)
            case ConcentratedDP():
                return self.rho_bound() <= other.rho
            case RenyiDP():
                return all(self.renyi(order) <= value for order, value in other.curve)
        return False

    def rho_bound(self) -> float:
        """The least ρ such that this guarantee implies ρ-zCDP; inf if there is none."""
        return math.inf

    def group(self, size: int) -> Guarantee:
        """Return the guarantee for a group of participants together, where one is known.

        Raises
        ------
        TacitError
            If no group guarantee is known for this kind.
        """
        raise TacitError(
            f"no group guarantee is known here for {self.short} and {size} participants: use "
            "PureDP or ConcentratedDP"
        )

    def _without_claims(self, count: int) -> Self:
        """The same without claims about one release or participant, where there are several."""
        kept = of_several(self.assumptions) if count > 1 else self.assumptions
        return state_arithmetic(replace(self, assumptions=kept), self.arithmetic)

    def with_view(self, *, neighbours: Neighbours | None = None, view: View | None = None) -> Self:
        """Return the same numbers for another view or other neighbours.

        The caller must ensure that they hold there.

        Parameters
        ----------
        neighbours : Neighbours, optional
            The other neighbouring relation; unchanged by default.
        view : View, optional
            The other view; unchanged by default.
        """
        made = replace(self, neighbours=neighbours or self.neighbours, view=view or self.view)
        return state_arithmetic(made, self.arithmetic)


@dataclass(frozen=True)
class PureDP(Guarantee):
    """Pure differential privacy: P[M(D) in E] <= e^ε P[M(D') in E] for every event E.

    Parameters
    ----------
    epsilon : float
        ε > 0.
    neighbours, view, participations, assumptions
        As in `Guarantee`.

    Raises
    ------
    TacitError
        If epsilon is not positive.

    Examples
    --------
    >>> print(PureDP(1.0))  # doctest: +NORMALIZE_WHITESPACE +ELLIPSIS
    (1, 0)-DP: to an adversary who sees the released sums, replacing one participant's data changes
    the probability of anything by a factor of at most 2.72, without exception; each participant
    takes part at most once, ...
    """

    kind: ClassVar[str] = "pure"

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon", self.epsilon, "a guarantee needs epsilon > 0")

    @property
    def short(self) -> str:
        """(ε, 0)-DP, rounded up."""
        return f"({up(self.epsilon)}, 0)-DP"

    @property
    def approximated(self) -> PureDP:
        """The guarantee itself."""
        return self

    def _meaning(self) -> str:
        factor = _factor(self.epsilon)
        return (
            f"changes the probability of anything by a factor of at most {factor}, without "
            "exception"
        )

    def delta_at(self, epsilon: float) -> float:
        """(e^ε₀ - e^ε) / (1 + e^ε₀) below ε₀: exact for randomized response, the worst case."""
        if finite_epsilon(epsilon) >= self.epsilon:
            return 0.0
        return -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))

    def epsilon_at(self, delta: float) -> float:
        """The inverse of `delta_at`, rounded up.

        At a tiny δ, half a unit in the last place of ε is more than δ allows.
        """
        used = float(probability("delta", delta, zero=True)) * (1 + math.exp(-self.epsilon))
        found = self.epsilon + math.log1p(-used) if used < 1 else 0.0
        return min(self.epsilon, math.nextafter(found, math.inf)) if found > 0 else 0.0

    def renyi(self, order: float) -> float:
        """Exact for the worst mechanism, randomized response; at most ½ε²α (CZ23 Lemma 10).

        With q the probability of the likelier answer, q^α (1-q)^{1-α} + (1-q)^α q^{1-α} =
        cosh((α-½)ε) / cosh(ε/2) = 1 + 2 sinh(αε/2) sinh((α-1)ε/2) / cosh(ε/2). The last form does
        not cancel at a small ε.
        """
        e, rest = self.epsilon, order_minus_one(order)
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
        """½ε², rounded up (Bun & Steinke 2016, Proposition 1.4; CZ23 Lemma 10)."""
        return no_less(Fraction(self.epsilon) ** 2 / 2)

    def group(self, size: int) -> PureDP:
        """size · ε."""
        count = integer("group size", size, at_least=1)
        made = replace(self, epsilon=times_up(self.epsilon, count))
        return state_arithmetic(made, self.arithmetic)._without_claims(size)


@dataclass(frozen=True)
class ApproximateDP(Guarantee):
    """Approximate differential privacy: P[M(D) in E] <= e^ε P[M(D') in E] + δ for every event E.

    Parameters
    ----------
    epsilon : float
        ε >= 0, finite.
    delta : float
        0 < δ < 1.
    neighbours, view, participations, assumptions
        As in `Guarantee`.

    Raises
    ------
    TacitError
        If epsilon or delta is out of range.

    Examples
    --------
    >>> ApproximateDP(1.0, 1e-5).short
    '(1, 1e-05)-DP'
    """

    kind: ClassVar[str] = "approximate"

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            isinstance(self.epsilon, bool)
            or not isinstance(self.epsilon, (int, float))
            or not 0 <= self.epsilon < math.inf
        ):
            raise TacitError(f"epsilon is {self.epsilon}: must be a finite number of at least 0")
        probability("delta", self.delta, "for a pure guarantee use PureDP(epsilon), or --delta 0")

    @property
    def short(self) -> str:
        """(ε, δ)-DP, rounded up."""
        return f"({up(self.epsilon)}, {up(self.delta)})-DP"

    @property
    def approximated(self) -> ApproximateDP:
        """The guarantee itself."""
        return self

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Every (ε, δ) that the guarantee states."""
        return ((self.epsilon, self.delta),)

    def _meaning(self) -> str:
        return (
            f"changes the probability of anything by a factor of at most {_factor(self.epsilon)}, "
            f"but for an exception of probability {up(self.delta, 3)}"
        )

    def delta_at(self, epsilon: float) -> float:
        """Exact for the worst mechanism.

        That mechanism reveals the data with probability δ and otherwise is randomized response.
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
        """inf: an approximate guarantee implies no Rényi bound."""
        order_minus_one(order)
        return math.inf


@dataclass(frozen=True)
class RenyiDP(Guarantee):
    """Rényi differential privacy: D_α(M(D) || M(D')) <= ε(α) at each (α, ε(α)) of the curve.

    Parameters
    ----------
    curve : tuple of (float, float)
        Pairs (α, ε(α)) with finite α > 1 and ε(α) >= 0.
    neighbours, view, participations, assumptions
        As in `Guarantee`.

    Examples
    --------
    >>> RenyiDP.of(lambda order: order / 2).epsilon_at(1e-5) < 5.3
    True
    """

    kind: ClassVar[str] = "renyi"

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
        view: View = View.RELEASED_SUM,
    ) -> RenyiDP:
        """Evaluate a curve, given as a function, at these orders.

        Parameters
        ----------
        curve : callable
            Returns the divergence at an order.
        orders : iterable of float
            The orders, each > 1.
        neighbours : Neighbours
            The neighbouring relation.
        view : View
            The adversary's view.

        Returns
        -------
        RenyiDP
            The guarantee at these orders.
        """
        return cls(
            tuple((order, curve(order)) for order in orders), neighbours=neighbours, view=view
        )

    @property
    def short(self) -> str:
        """The point of the curve nearest to order 10."""
        order, value = min(self.curve, key=lambda point: abs(point[0] - 10))
        others = len(self.curve) - 1
        more = f" and {others} other order{'s' * (others > 1)}" if others else ""
        return f"({exactly(order)}, {up(value)})-RDP{more}"

    def _meaning(self) -> str:
        implied = f"({up(self.epsilon_at(1e-5), 3)}, 1e-05)-DP"
        orders = f"{len(self.curve)} order{'s' * (len(self.curve) > 1)}"
        return (
            "changes the distribution of the outputs by a Rényi divergence that is bounded at "
            f"{orders}, which implies {implied}"
        )

    def delta_at(self, epsilon: float) -> float:
        """The best order's bound: e^{(α-1)(ε(α)-ε)} (1-1/α)^α / (α-1) (CKS20 Proposition 12)."""
        at = finite_epsilon(epsilon)
        return min(1.0, min(renyi_delta(order, value, at) for order, value in self.curve))

    def epsilon_at(self, delta: float) -> float:
        """CZ23 Lemma 10: inf over orders of ε(α) + ln(1/(αδ))/(α-1) + ln(1-1/α)."""
        remedy = "Rényi divergences imply no pure guarantee"
        level = float(probability("delta", delta, remedy, zero=True))
        if level == 0:
            return math.inf
        return max(0.0, min(renyi_epsilon(order, value, level) for order, value in self.curve))

    def renyi(self, order: float) -> float:
        """The value at the next listed order, as divergences grow with it; inf past the last."""
        order_minus_one(order)
        return min((value for listed, value in self.curve if listed >= order), default=math.inf)

    def repeat(self, times: int) -> RenyiDP:
        """Compose `times` times: divergences add up."""
        count = integer("times", times, at_least=1)
        curve = tuple((order, times_up(value, count)) for order, value in self.curve)
        made = replace(self, curve=curve, participations=self.participations * count)
        said = made.assuming(DistinctRounds()) if count > 1 else made
        return state_arithmetic(said, self.arithmetic)._without_claims(count)


@dataclass(frozen=True)
class ConcentratedDP(Guarantee):
    """Zero-concentrated differential privacy: D_α(M(D) || M(D')) <= ρ α for every α > 1.

    Parameters
    ----------
    rho : float
        ρ > 0.
    neighbours, view, participations, assumptions
        As in `Guarantee`.

    Examples
    --------
    >>> round(ConcentratedDP(0.5).epsilon_at(1e-5), 2)  # "epsilon = 1" of Dist-RDP-SE
    4.73
    """

    kind: ClassVar[str] = "concentrated"

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
        return (
            "changes the distribution of the outputs by a Rényi divergence of at most ρα at every "
            f"order α, which implies {implied}"
        )

    def delta_at(self, epsilon: float) -> float:
        """The infimum of the Rényi bounds over real orders."""
        at = finite_epsilon(epsilon)
        found = self._best(lambda order: renyi_log_delta(order, self.rho * order, at))
        return delta_up(math.exp(min(0.0, found)))

    def epsilon_at(self, delta: float) -> float:
        """CZ23 Lemma 10, over real orders; inf at δ = 0."""
        level = float(
            probability("delta", delta, "a concentrated guarantee implies no pure one", zero=True)
        )
        return (
            math.inf
            if level == 0
            else max(0.0, self._best(lambda order: renyi_epsilon(order, self.rho * order, level)))
        )

    def _best(self, bound: Callable[[float], float]) -> float:
        from scipy.optimize import minimize_scalar  # slow to import

        # every order gives a valid bound, so an inexact minimum is valid, too
        found = minimize_scalar(
            lambda t: bound(1 + math.exp(t)),
            bounds=(-12.0, 25.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        return float(found.fun)

    def renyi(self, order: float) -> float:
        """ρ α."""
        order_minus_one(order)
        return self.rho * order

    def rho_bound(self) -> float:
        """ρ itself."""
        return self.rho

    def group(self, size: int) -> ConcentratedDP:
        """size² ρ."""
        count = integer("group size", size, at_least=1)
        made = replace(self, rho=times_up(self.rho, count**2))
        return state_arithmetic(made, self.arithmetic)._without_claims(size)


KINDS = (PureDP, ApproximateDP, RenyiDP, ConcentratedDP)


def times(participations: int) -> str:
    """Format a number of participations in words.

    >>> times(1), times(2), times(3000)
    ('once', 'twice', '3,000 times')
    """
    return TIMES.get(participations, f"{participations:,} times")


def _factor(epsilon: float) -> str:
    """Format e^ε, rounded up, even where it overflows a float."""
    if 0 < epsilon < 1e-11:  # smaller than the tolerance of `up`
        return "1.01"
    if epsilon < 700:
        return up(math.nextafter(math.exp(epsilon), math.inf), 3)
    return f"10^{math.ceil(epsilon / math.log(10))}"


def with_metrics(assumptions: Iterable[Assumption], metrics: int) -> frozenset[Assumption]:
    """These assumptions, for participations that report `metrics` metrics under one guarantee."""
    others = {one for one in assumptions if not isinstance(one, MetricsPerParticipation)}
    return frozenset(others | ({MetricsPerParticipation(metrics)} if metrics > 1 else set()))


def for_fewer(guarantee: Kept, participations: int) -> Kept:
    """Return the same guarantee, stated for at most the participations it was derived for."""
    if not 1 <= participations <= guarantee.participations:
        raise TacitError(
            f"participations is {participations}; the guarantee was derived for "
            f"{guarantee.participations}"
        )
    made = replace(guarantee, participations=participations)
    return state_arithmetic(made, guarantee.arithmetic)


def _with_subclasses(*kinds: type[Any]) -> list[type[Any]]:
    """These kinds of guarantees and all their subclasses."""
    return [one for kind in kinds for one in (kind, *_with_subclasses(*kind.__subclasses__()))]


def _data(value: Any) -> Any:
    """A number or tuples of numbers as plain data; a fraction as a string."""
    if isinstance(value, (tuple, list)):
        return [_data(part) for part in value]
    return str(value) if isinstance(value, Fraction) else value


def _from_data(value: Any) -> Any:
    """The reverse of `_data`."""
    if isinstance(value, (tuple, list)):
        return tuple(_from_data(part) for part in value)
    return Fraction(value) if isinstance(value, str) else value
