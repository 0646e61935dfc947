"""Mechanisms: the protocol of every round, and the guarantee of a whole run.

`PerRound` opens every round by itself: a person takes part in one of them, so what holds for a
round holds for the run. `Releases` opens prefix sums, whose steps are accounted for together. Both
can be written down as plain data and read back; what was promised is part of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from fractions import Fraction
from inspect import signature
from typing import Any, get_type_hints

import numpy as np

from tacit.checks import TacitError
from tacit.estimates import Arm, Design, Fit, Floats, Round
from tacit.names import name_of, named
from tacit.privacy import (
    ALL_BUT_ONE,
    ApproximateDP,
    Crowd,
    GaussianLoss,
    Guarantee,
    Neighbours,
    View,
)
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import factorize
from tacit.protocols.prefix_sums import Encoder, PrefixRound, PrefixSums, Presence


class Mechanism(ABC):
    """How answers are hidden: `open(round)` is the protocol of a round that was proposed.

    `guarantee` is that of the whole run for a person who takes part as often as is stated; None
    where nothing is promised, or where it is only known round by round. `note` is what must be read
    with it.
    """

    guarantee: Guarantee | None
    note: str

    @abstractmethod
    def open(self, round_: Round) -> Protocol:
        """The protocol of a round; asking twice gives the same one."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data."""

    @property
    def metrics(self) -> int:
        """How many numbers are opened of everybody who tries one option."""
        return 1

    @property
    def promise(self) -> str:
        """Guarantee and note as sentences."""
        if self.guarantee is None:
            return self.note
        return str(self.guarantee.given(self.note) if self.note else self.guarantee)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Mechanism:
        """What `to_dict` wrote down."""
        kind = named(data["mechanism"], Mechanism)
        restored: Mechanism = kind.restore(data)
        return restored


@dataclass(frozen=True)
class PerRound(Mechanism):
    """`make(participants, **arguments)` for arms; for designs `make(participants, coordinates, …)`,
    with the radius after them where a parameter is reported, or `make(plays, …)` where every play
    is another person's.

    `make` stands at the top of a module, takes plain arguments and guarantees, and is annotated to
    return a protocol, so that it can be stored by name.
    """

    make: Callable[..., Protocol]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Guarantee | None = None
    note: str = ""
    smallest: int = 1

    def open(self, round_: Round) -> Protocol:
        """Made for the round's size alone; one that promises less than the run is refused, and so
        is one with fewer participants than the promise rests on.
        """
        if round_.participants < self.smallest:
            raise TacitError(
                f"round {round_.number} is for {round_.participants} participants; the promise "
                f"rests on at least {self.smallest} in each: hold larger rounds"
            )
        protocol = self.make(*self._size(round_), **self.arguments)
        earned, promised = protocol.guarantee, self.guarantee
        less = earned is None if promised is None else not (earned and earned.implies(promised))
        if self.private and less:
            raise TacitError(
                f"round {round_.number} would promise {earned.short if earned else 'nothing'}, the "
                f"experiment promises {promised.short if promised else 'more'}: its noise was "
                "changed"
            )
        return protocol

    @property
    def metrics(self) -> int:
        """As many as `make` is told, where it can be."""
        return int(self.arguments.get("metrics", 1))

    @property
    def private(self) -> bool:
        """Whether every round must earn a guarantee, also one that is only known round by round."""
        return self.guarantee is not None or self.note.startswith("the secret")

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
            "guarantee": plain(self.guarantee),
            "note": self.note,
            "smallest": self.smallest,
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> PerRound:
        """The reverse."""
        make = recipe(named(data["make"], Callable))  # type: ignore[arg-type]
        arguments = {key: rich(value) for key, value in data["arguments"].items()}
        found = cls(make, arguments, rich(data["guarantee"]), data["note"], data["smallest"])
        found._check_rests()
        return found

    def _check_rests(self) -> None:
        """Refuses a promise of more than a small round earns, or that leaves out what it rests on:
        the round of the smallest size of arms, a round of one number of designs. Others are not
        known here, and are checked as they are opened.
        """
        size = _small(self.make, self.arguments, self.smallest)
        if self.guarantee is None or size is None:
            return
        earned = self.make(*size, **self.arguments).guarantee
        said = set(self.guarantee.conditions)
        if size != (self.smallest,) and ALL_BUT_ONE in said:  # of a design, whatever its size
            said |= set(Crowd().conditions(max(2, self.smallest)))
        if (
            earned is None
            or not earned.implies(self.guarantee)
            or not set(earned.conditions) <= said
        ):
            raise TacitError(
                f"a small round earns {earned or 'nothing'}; the stored promise is not that, on "
                "all that it rests on: its noise was changed, or the promise, or the smallest round"
            )


@dataclass(frozen=True, eq=False)
class Releases(Mechanism):
    """Private prefix sums: round k is step k of one `PrefixSums`, and all of them together have one
    guarantee.
    """

    sums: PrefixSums
    guarantee: Guarantee | None = None
    note: str = ""
    released: dict[int, Floats] = field(default_factory=dict)
    held: dict[int, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.guarantee is not None and not earned_by(self.sums, self.guarantee):
            raise TacitError(
                f"these prefix sums do not earn {self.guarantee.short} as it is stated: their "
                "noise was changed, or the promise"
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
            "guarantee": plain(self.guarantee),
            "note": self.note,
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
        return cls(sums, rich(data["guarantee"]), data["note"], *lists)


def earned_by(sums: PrefixSums, guarantee: Any) -> bool:
    """Whether somebody who comes as often as they may has this guarantee, about the view and on
    the conditions of these sums. How far shuffling amplifies is beyond what can be checked here,
    but the sum of all messages, which anybody can form, must not refute it.
    """
    if (
        sums.noise == "none"
        or not isinstance(guarantee, ApproximateDP)
        or not _about(sums, guarantee)
    ):
        return False
    if sums.trust == "shuffle" and sums.noise == "gaussian":
        all_of_it = GaussianLoss(sums.sigma * math.sqrt(sums.silos), sums.movement)
        return all_of_it.delta(guarantee.epsilon) <= guarantee.delta
    return all(
        _earns(sums.of(silo), epsilon, delta * (1 + 1e-6))
        for silo, (epsilon, delta) in enumerate(_pairs(guarantee))
    )


def _about(sums: PrefixSums, guarantee: ApproximateDP) -> bool:
    """Whether a guarantee says of whom it holds, to whom, how often and on what as the sums do; the
    headline of silos that each have their own is what holds for all of them.
    """
    weakest = tuple(map(max, zip(*_pairs(guarantee), strict=True)))
    return (
        guarantee.neighbours is Neighbours.REPLACE_ONE
        and guarantee.view is sums.view
        and guarantee.participations <= sums.presence.participations
        and set(sums.conditions) <= set(guarantee.conditions)
        and weakest == (guarantee.epsilon, guarantee.delta)
    )


def _earns(sums: PrefixSums, epsilon: float, delta: float) -> bool:
    """By δ at ε, or by ε at δ where that is accounted for otherwise."""
    loss, left = sums.loss(), delta - sums.slack(epsilon)
    return left > 0 and (loss.delta(epsilon) <= left or loss.epsilon(left) <= epsilon)


def _pairs(guarantee: Any) -> tuple[tuple[float, float], ...]:
    """(ε, δ) of every silo that has its own, or of all alike."""
    return getattr(guarantee, "budgets", ()) or ((guarantee.epsilon, guarantee.delta),)


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


def plain(value: Any) -> Any:
    """A guarantee as a dictionary, a fraction by its two numbers; others as they are."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if not isinstance(value, Guarantee):
        return value
    entries = {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    return {"guarantee": name_of(type(value)), **entries}


def rich(value: Any) -> Any:
    """The reverse of `plain`."""
    if isinstance(value, Mapping) and "fraction" in value:
        return Fraction(value["fraction"])
    if not (isinstance(value, Mapping) and "guarantee" in value):
        return value
    entries = {key: rich(_tuples(part)) for key, part in value.items()}
    kind = named(entries.pop("guarantee"), Guarantee)
    about = {
        "neighbours": Neighbours[entries["neighbours"]],
        "view": View[entries["view"]],
    }
    return kind(**entries | about)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
