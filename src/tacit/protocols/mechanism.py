"""Mechanisms: the protocol of every round, and the privacy of a whole run.

`PerRound` releases every round by itself: a participant takes part in one of them, so what holds
for a round holds for the run. `Releases` releases prefix sums, whose steps are accounted for
together. Both can be stored as plain data and restored; the privacy status is part of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from fractions import Fraction
from inspect import signature
from typing import Any, get_type_hints

import numpy as np

from tacit.assumptions import AskedFor, Declared, uncovered
from tacit.errors import TacitError
from tacit.names import name_of, named
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    GaussianLoss,
    Guarantee,
    Guaranteed,
    KnownPerRound,
    Neighbours,
    NonPrivate,
    PrivacyStatus,
)
from tacit.privacy.accounting import PACKAGE
from tacit.privacy.guarantees import state_arithmetic
from tacit.privacy.silos import SilosDP
from tacit.privacy.status import NON_PRIVATE_TEXT, status_from_data, status_to_data
from tacit.protocols.checking import DRAWS, check_declared
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import factorize
from tacit.protocols.prefix_sums import Encoder, PrefixRound, PrefixSums, Presence
from tacit.trust import TrustModel
from tacit.types import Arm, Design, Fit, Floats, Round


class Mechanism(ABC):
    """How answers are kept private: `open(round)` is the protocol of a round that was proposed.

    `privacy` is that of the whole run for a participant who takes part as often as is stated.
    Whatever releases data asks it.
    """

    privacy: PrivacyStatus

    @abstractmethod
    def open(self, round_: Round) -> Protocol:
        """The protocol of a round; asking twice gives the same one."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data."""

    @property
    def metrics(self) -> int:
        """How many numbers are released of everybody who tries one option."""
        return 1

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the whole run, where it is known beforehand."""
        return self.privacy.guarantee if isinstance(self.privacy, Guaranteed) else None

    @property
    def outside(self) -> bool:
        """Whether a protocol of this mechanism has code that is not tacit's."""
        return False

    def example(self) -> Protocol | None:
        """The protocol of a small round, where its size is known."""
        return None

    def printed(self, found: Guarantee | None = None) -> Guarantee | None:
        """A guarantee of this mechanism as readers are shown it: that of the whole run, or what
        was found round by round.

        What a protocol from outside declares is checked first, once: recomputed from its stated
        distribution, and its randomizer sampled. It never counts as exact.
        """
        shown = self.guarantee or found
        if shown is None:
            return None
        if isinstance(self.privacy, KnownPerRound):
            target = self.privacy.target
            delta = target.delta if isinstance(target, ApproximateDP) else 0.0
            asked = AskedFor(float(target.epsilon), float(delta))
            shown = shown.given(asked, *target.assumptions)
        if not self.outside:
            return shown
        protocol = self.example()
        draws = DRAWS if protocol is not None and check_declared(protocol) else 0
        return state_arithmetic(shown, Arithmetic.UNSTATED).given(Declared(draws))

    def text(self) -> str:
        """The privacy of a run as a sentence."""
        shown = self.printed()
        if shown is not None:
            return str(shown)
        if isinstance(self.privacy, KnownPerRound):
            return f"known round by round; asked for: {self.privacy.target.short}"
        return NON_PRIVATE_TEXT

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Mechanism:
        """The mechanism that `to_dict` wrote."""
        kind = named(data["mechanism"], Mechanism)
        restored: Mechanism = kind.restore(data)
        return restored


@dataclass(frozen=True)
class PerRound(Mechanism):
    """`make(participants, **arguments)` for arms; for designs `make(participants, coordinates, …)`,
    with the radius after them where a parameter is reported, or `make(plays, …)` where every play
    is another participant's.

    `make` stands at the top of a module, takes plain arguments and guarantees, and is annotated to
    return a protocol, so that it can be stored by name.
    """

    make: Callable[..., Protocol]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    privacy: PrivacyStatus = field(default_factory=NonPrivate)
    smallest: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PrivacyStatus):
            raise TacitError(
                f"privacy is {self.privacy!r}; it must be Guaranteed(guarantee), "
                "KnownPerRound(target) or NonPrivate()"
            )

    def open(self, round_: Round) -> Protocol:
        """The protocol for the round's size; a round that earns less than the run's guarantee, or
        that has fewer participants than the smallest, is rejected.
        """
        if round_.participants < self.smallest:
            raise TacitError(
                f"round {round_.number} is for {round_.participants} participants; the guarantee "
                f"needs at least {self.smallest} in each: hold larger rounds"
            )
        protocol = self.make(*self._size(round_), **self.arguments)
        problem = self._weaker(protocol.guarantee)
        if problem:
            raise TacitError(f"round {round_.number} {problem}: its noise was changed")
        return protocol

    def _weaker(self, earned: Guarantee | None) -> str:
        """How a round's guarantee falls short of the run's privacy; empty if it does not."""
        match self.privacy:
            case Guaranteed(guarantee):
                return falls_short(earned, guarantee)
            case KnownPerRound(target) if earned is None:
                return f"earns no guarantee, the experiment asks for {target.short}"
        return ""

    @property
    def outside(self) -> bool:
        """Whether the recipe, or a protocol that it makes for a small round, is not tacit's."""
        if _package(self.make) != PACKAGE:
            return True
        protocol = self.example()
        return protocol is not None and not all(map(_ours, parts_of(protocol)))

    def example(self) -> Protocol | None:
        """The round of the smallest size of arms, a round of one number of designs."""
        size = _small(self.make, self.arguments, self.smallest)
        return None if size is None else self.make(*size, **self.arguments)

    def in_arithmetic_of_rounds(self) -> PerRound:
        """With the guarantee in the arithmetic of a small round; every other one is checked."""
        small = self.example()
        if self.guarantee is None or small is None or small.guarantee is None:
            return self
        stated = state_arithmetic(self.guarantee, small.guarantee.arithmetic)
        return replace(self, privacy=Guaranteed(stated))

    @property
    def metrics(self) -> int:
        """As many as `make` is told, where it can be."""
        return int(self.arguments.get("metrics", 1))

    def _size(self, round_: Round) -> tuple[Any, ...]:
        match round_.assignment:
            case Arm():
                return (round_.participants,)
            case Design(each=True):
                return (round_.assignment.plays,)
            case Fit():
                fit = round_.assignment
                return round_.participants, fit.coordinates, fit.radius
        return round_.participants, round_.assignment.coordinates

    def to_dict(self) -> dict[str, Any]:
        """Nothing but what it was made with."""
        return {
            "mechanism": name_of(type(self)),
            "make": name_of(recipe(self.make)),
            "arguments": {key: plain(value) for key, value in self.arguments.items()},
            "privacy": status_to_data(self.privacy),
            "smallest": self.smallest,
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> PerRound:
        """The reverse."""
        make = recipe(named(data["make"], Callable))  # type: ignore[arg-type]
        arguments = {key: rich(value) for key, value in data["arguments"].items()}
        found = cls(make, arguments, status_from_data(data["privacy"]), data["smallest"])
        found._check_small_round()
        return found

    def _check_small_round(self) -> None:
        """Rejects a stored privacy status that a small round does not earn under the stored
        assumptions. Rounds of other sizes are checked as they are opened.
        """
        small = self.example()
        if small is None:
            return
        problem = self._weaker(small.guarantee)
        if problem:
            raise TacitError(
                f"a small round {problem}: the stored noise, guarantee or smallest round was "
                "changed"
            )


@dataclass(frozen=True, eq=False)
class Releases(Mechanism):
    """Private prefix sums: round k is step k of one `PrefixSums`, and all of them together have one
    guarantee.
    """

    sums: PrefixSums
    privacy: PrivacyStatus = field(default_factory=NonPrivate)
    released: dict[int, Floats] = field(default_factory=dict)
    held: dict[int, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.privacy, KnownPerRound):
            raise TacitError("prefix sums are accounted for together: state their guarantee")
        if self.guarantee is not None and not earned_by(self.sums, self.guarantee):
            raise TacitError(
                f"these prefix sums do not earn {self.guarantee.short} as it is stated: their "
                "noise was changed, or the guarantee"
            )

    def open(self, round_: Round) -> PrefixRound:
        """The step of this round."""
        if round_.participants != self.sums.silos:
            raise TacitError(
                f"round {round_.number} is for {round_.participants} silos; the noise was shared "
                f"among {self.sums.silos}"
            )
        if round_.number > len(self.released):
            raise TacitError(
                f"synchronisation {len(self.released) + 1} was never opened, and prefix sums need "
                "all of them: end this experiment and begin another"
            )
        return self.sums.open(round_.number, self.released, self.held, self.guarantee)

    def encoder(self, silo: int | None = None) -> Encoder:
        """One silo's side, which draws exactly; it stays with the silo."""
        return self.sums.encoder(silo=silo)

    def to_dict(self) -> dict[str, Any]:
        """What was opened, which is public, and what simulated silos hold."""
        shape = {
            "kind": self.sums.shape.kind,
            "steps": self.sums.shape.steps,
            "importance": list(self.sums.shape.importance),
        }
        numbers = {f.name: getattr(self.sums, f.name) for f in fields(self.sums)}
        numbers["presence"] = asdict(self.sums.presence)
        lists = {
            name: {str(step): row.tolist() for step, row in getattr(self, name).items()}
            for name in ("released", "held")
        }
        return {
            "mechanism": name_of(type(self)),
            "sums": {**numbers, "shape": shape},
            "privacy": status_to_data(self.privacy),
            **lists,
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Releases:
        """The reverse."""
        stored = data["sums"]["shape"]
        shape = factorize(stored["kind"], stored["steps"], tuple(stored.get("importance", ())))
        presence = Presence(**data["sums"]["presence"])
        own = {name: tuple(data["sums"].get(name, ())) for name in ("sigmas", "weights")}
        sums = PrefixSums(**{**data["sums"], "shape": shape, "presence": presence, **own})
        lists = (
            {int(step): np.array(row) for step, row in data[name].items()}
            for name in ("released", "held")
        )
        return cls(sums, status_from_data(data["privacy"]), *lists)


def falls_short(earned: Guarantee | None, stated: Guarantee) -> str:
    """Why what is earned does not imply what is stated; empty if it does."""
    if earned is None:
        return f"earns no guarantee, not {stated.short}"
    if earned.implies(stated):
        return ""
    missing = [one.identifier for one in uncovered(earned.assumptions, stated.assumptions)]
    if missing:
        return f"needs assumptions that are not stated: {', '.join(missing)}"
    return f"earns {earned.short} ({earned.view.value}), not {stated.short} ({stated.view.value})"


def earned_by(sums: PrefixSums, guarantee: Guarantee) -> bool:
    """Whether a participant who comes as often as allowed has this guarantee, about the view and
    under the assumptions of these sums. How far shuffling amplifies is beyond what can be checked
    here, but the sum of all messages, which anybody can form, must not refute it.
    """
    if (
        sums.noise == "none"
        or not isinstance(guarantee, ApproximateDP)
        or not _about(sums, guarantee)
    ):
        return False
    if sums.trust == TrustModel.SHUFFLER and sums.noise == "gaussian":
        all_of_it = GaussianLoss(sums.sigma * math.sqrt(sums.silos), sums.movement)
        return all_of_it.delta(guarantee.epsilon) <= guarantee.delta
    return all(
        _earns(sums.of(silo), epsilon, delta * (1 + 1e-6))
        for silo, (epsilon, delta) in enumerate(_pairs(guarantee))
    )


def _about(sums: PrefixSums, guarantee: ApproximateDP) -> bool:
    """Whether a guarantee states neighbours, view, participations, assumptions and arithmetic as
    the sums earn them; the headline of silos that each have their own is what holds for all.
    """
    weakest = tuple(map(max, zip(*_pairs(guarantee), strict=True)))
    arithmetic = Arithmetic.EXACT if sums.integral else Arithmetic.IDEAL
    return (
        guarantee.neighbours is Neighbours.REPLACE_ONE
        and guarantee.view is sums.view
        and guarantee.participations <= sums.presence.participations
        and not uncovered(sums.assumptions, guarantee.assumptions)
        and arithmetic.covers(guarantee.arithmetic)
        and weakest == (guarantee.epsilon, guarantee.delta)
    )


def _earns(sums: PrefixSums, epsilon: float, delta: float) -> bool:
    """By δ at ε, or by ε at δ where that is accounted for otherwise."""
    loss, left = sums.loss(), delta - sums.slack(epsilon)
    return left > 0 and (loss.delta(epsilon) <= left or loss.epsilon(left) <= epsilon)


def _pairs(guarantee: ApproximateDP) -> tuple[tuple[float, float], ...]:
    """(ε, δ) of every silo that has its own, or of all alike."""
    if isinstance(guarantee, SilosDP) and guarantee.budgets:
        return guarantee.budgets
    return ((guarantee.epsilon, guarantee.delta),)


def recipe(make: Any) -> Callable[..., Protocol]:
    """`make` itself, if it says of itself that it makes protocols: what a file names is called, and
    a file could name anything. A class would take its guarantee from the file, too.
    """
    try:
        made = get_type_hints(make).get("return")
    except (NameError, TypeError):
        made = None
    if not (isinstance(made, type) and issubclass(made, Protocol)):
        raise TacitError(
            f"{make!r} does not say that it makes protocols: give a function at the top of a "
            "module, whose result is annotated as a Protocol"
        )
    found: Callable[..., Protocol] = make
    return found


def _small(
    make: Callable[..., Protocol], arguments: Mapping[str, Any], smallest: int
) -> tuple[Any, ...] | None:
    """The size of a small round, by what `make` needs besides these arguments; None where that is
    something else.
    """
    hints = get_type_hints(make)
    needed = [
        hints.get(name)
        for name, one in signature(make).parameters.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        if name not in arguments
    ]
    few = max(2, smallest)
    sizes: dict[tuple[Any, ...], tuple[Any, ...]] = {
        (int,): (smallest,),
        (int, int): (few, 1),
        (tuple[int, ...],): ((few,),),
    }
    return sizes.get(tuple(needed))


def parts_of(protocol: Protocol) -> Iterator[Any]:
    """A protocol and the protocols that it is made of."""
    yield protocol
    for part in protocol.made_of:
        yield from parts_of(part)


def _package(thing: Any) -> str:
    return str(thing.__module__).partition(".")[0]


def _ours(protocol: Protocol) -> bool:
    return _package(type(protocol)) == PACKAGE


def plain(value: Any) -> Any:
    """A guarantee as data, a fraction by its two numbers; others as they are."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    return {"guarantee": value.to_data()} if isinstance(value, Guarantee) else value


def rich(value: Any) -> Any:
    """The reverse of `plain`."""
    if isinstance(value, Mapping) and "fraction" in value:
        return Fraction(value["fraction"])
    if isinstance(value, Mapping) and "guarantee" in value:
        return Guarantee.from_data(value["guarantee"])
    return value
