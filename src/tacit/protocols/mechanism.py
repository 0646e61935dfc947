"""Mechanisms: the protocol of every round, and the guarantee of a whole run.

`PerRound` releases every round on its own. A participant takes part in one round, so the guarantee
of a round is that of the run. `Releases` releases prefix sums, whose steps are accounted for
jointly. Both serialize to plain data, privacy status included.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from inspect import Signature, signature
from typing import Any, get_type_hints

import numpy as np

from tacit.assumptions import (
    AskedFor,
    Assumption,
    Declared,
    Protects,
    uncovered,
)
from tacit.errors import TacitError
from tacit.names import PACKAGE, is_own, name_of, resolve_name
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    Guarantee,
    Guaranteed,
    KnownPerRound,
    NonPrivate,
    PrivacyStatus,
    PureDP,
)
from tacit.privacy.guarantees import state_arithmetic
from tacit.privacy.status import NON_PRIVATE_TEXT, status_from_data, status_to_data
from tacit.protocols.checking import DRAWS, check_declared
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import factorize
from tacit.protocols.prefix_delivery import Presence
from tacit.protocols.prefix_encoder import Encoder
from tacit.protocols.prefix_guarantees import achieves, derivable_remarks
from tacit.protocols.prefix_sums import PrefixRound, PrefixSums
from tacit.types import Arm, Design, Fit, Floats, PublishedAssignment, Round


class Mechanism(ABC):
    """How the rewards of an experiment are kept private: `open(round)` is the protocol of a
    proposed round.

    Attributes
    ----------
    privacy : PrivacyStatus
        Status of the whole run, for a participant who takes part as often as stated. Components
        that release data consult it.
    smallest : int
        Participants of the smallest round that may be released.
    """

    privacy: PrivacyStatus
    smallest: int = 1

    @abstractmethod
    def open(self, round_: Round) -> Protocol:
        """The protocol of a round; repeated calls return the same one.

        Parameters
        ----------
        round_ : Round
            A proposed round.

        Returns
        -------
        Protocol
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The mechanism as plain data, for `from_dict`."""

    @property
    def metrics(self) -> int:
        """The number of metrics that are released per participant of an arm."""
        return 1

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the whole run, if it is known beforehand."""
        return self.privacy.guarantee if isinstance(self.privacy, Guaranteed) else None

    @property
    def stated(self) -> Guarantee | None:
        """The guarantee of the whole run, or the target where it is known only per round."""
        return self.privacy.target if isinstance(self.privacy, KnownPerRound) else self.guarantee

    def example(self) -> Protocol | None:
        """The protocol of a small round, if its size is known."""
        return None

    @property
    def components(self) -> Sequence[Mechanism]:
        """The mechanisms that this one is composed of."""
        return ()

    def printed(self, guarantee: Guarantee | None = None) -> Guarantee | None:
        """The guarantee as shown to readers.

        Call it as `Mechanism.printed(mechanism)`: a class from outside may have another method.

        Parameters
        ----------
        guarantee : Guarantee, optional
            The guarantee found round by round, if that of the whole run is not known beforehand.

        Returns
        -------
        Guarantee or None

        Notes
        -----
        The declared guarantee of a protocol from outside tacit is checked first, once: recomputed
        from its stated distribution, and its randomizer sampled. It never counts as exact.
        """
        shown = self.guarantee or guarantee
        if shown is None:
            return None
        if not is_own(type(shown)):
            raise TacitError(
                f"guarantee is a {type(shown).__qualname__}, of a class from outside tacit: must "
                "be a PureDP, ApproximateDP, RenyiDP or ConcentratedDP"
            )
        if isinstance(self.privacy, KnownPerRound):
            target = self.privacy.target
            delta = target.delta if isinstance(target, ApproximateDP) else 0.0
            asked = AskedFor(float(target.epsilon), float(delta))
            shown = shown.assuming(asked, *target.assumptions)
        foreign = [part for part in (*self.components, self) if from_outside(part)]
        if not foreign:
            return shown
        shown = state_arithmetic(shown, Arithmetic.UNSTATED)
        remarks = [_checked(part, shown) for part in foreign]
        return shown.assuming(min(remarks, key=lambda one: (one.draws, one.participants)))

    def text(self) -> str:
        """The privacy of a run as a sentence."""
        shown = Mechanism.printed(self)
        if shown is not None:
            return str(shown)
        if isinstance(self.privacy, KnownPerRound):
            return f"known round by round; asked for: {self.privacy.target.short}"
        return NON_PRIVATE_TEXT

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Mechanism:
        """The mechanism that `to_dict` wrote."""
        kind = resolve_name(data["mechanism"], Mechanism)
        restored: Mechanism = kind.restore(data)
        return restored


@dataclass(frozen=True)
class PerRound(Mechanism):
    """A mechanism whose rounds are released independently, by the protocols of a factory function.

    Parameters
    ----------
    make : callable
        Factory: `make(participants, **arguments)` for arms; `make(participants, coordinates, ...)`
        for designs, followed by the radius where a parameter vector is reported; `make(plays, ...)`
        where every play belongs to another participant.
    arguments : mapping
        Further arguments: plain values and guarantees.
    privacy : PrivacyStatus
        `Guaranteed`, `KnownPerRound` or `NonPrivate`.
    smallest : int
        Smallest number of participants of a round.

    Notes
    -----
    `make` is a module-level function with a `Protocol` return annotation, so that it can be stored
    by name.

    Examples
    --------
    >>> from tacit.protocols.factories import exact
    >>> mechanism = PerRound(exact, {"binary": True})
    >>> protocol = mechanism.open(Round(0, 100, Arm(0)))
    >>> protocol.participants, protocol.guarantee, mechanism.guarantee
    (100, None, None)
    """

    make: Callable[..., Protocol]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    privacy: PrivacyStatus = field(default_factory=NonPrivate)
    smallest: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PrivacyStatus):
            raise TacitError(
                f"privacy is {self.privacy!r}: must be Guaranteed(guarantee), "
                "KnownPerRound(target) or NonPrivate()"
            )
        if isinstance(self.privacy, Guaranteed):
            small = self.example()
            problem = "" if small is None else self._shortfall(small.guarantee)
            if small is None and is_own(self.make):
                problem = "cannot be made with these arguments, so that nothing is checked"
            if problem:
                raise TacitError(
                    f"a small round {problem}: its noise, guarantee or smallest round was changed"
                )
            if small is not None and small.guarantee is not None:
                _check_descriptions(self.stated, small.guarantee.assumptions)

    def open(self, round_: Round) -> Protocol:
        """The protocol for the size of the round.

        Parameters
        ----------
        round_ : Round
            The proposed round.

        Returns
        -------
        Protocol

        Raises
        ------
        TacitError
            If the round is smaller than `smallest`, or its guarantee is weaker than that of the
            run.
        """
        if round_.participants < self.smallest:
            raise TacitError(
                f"round {round_.number} is for {round_.participants} participants; the guarantee "
                f"needs at least {self.smallest} in each: propose larger rounds"
            )
        protocol = self.make(*self._factory_size(round_), **self.arguments)
        if not all(map(_is_unmodified, parts_of(protocol))) and not from_outside(self):
            raise TacitError(
                f"round {round_.number} has a protocol from outside tacit, small rounds have not: "
                "use the same protocol for rounds of every size"
            )
        problem = self._shortfall(protocol.guarantee)
        if problem:
            raise TacitError(f"round {round_.number} {problem}: its noise was changed")
        return protocol

    def _shortfall(self, achieved: Guarantee | None) -> str:
        """Why a round's guarantee falls short of the run's privacy; empty if it does not."""
        match self.privacy:
            case Guaranteed(guarantee):
                return falls_short(achieved, guarantee)
            case KnownPerRound(target) if achieved is None:
                return f"gives no guarantee, the experiment asks for {target.short}"
        return ""

    def example(self) -> Protocol | None:
        """The protocol of the smallest round of arms, or of one coordinate for designs."""
        size = _small_size(self.make, self.arguments, self.smallest)
        return None if size is None else self.make(*size, **self.arguments)

    def in_arithmetic_of_rounds(self) -> PerRound:
        """A copy whose guarantee states the arithmetic of a small round; every other round is
        checked.
        """
        small = self.example()
        if self.guarantee is None or small is None or small.guarantee is None:
            return self
        stated = state_arithmetic(self.guarantee, small.guarantee.arithmetic)
        return replace(self, privacy=Guaranteed(stated))

    @property
    def metrics(self) -> int:
        """The factory's `metrics` argument, 1 by default."""
        return int(self.arguments.get("metrics", 1))

    def _factory_size(self, round_: Round) -> tuple[Any, ...]:
        match round_.assignment:
            case Arm():
                return (round_.participants,)
            case Design(each=True):
                return (round_.assignment.plays,)
            case Fit():
                fit = round_.assignment
                return round_.participants, fit.coordinates, fit.radius
            case PublishedAssignment():
                return round_.participants, round_.assignment.weight
        return round_.participants, round_.assignment.coordinates

    def to_dict(self) -> dict[str, Any]:
        """The arguments of the constructor as plain data."""
        return {
            "mechanism": name_of(type(self)),
            "make": name_of(protocol_factory(self.make)),
            "arguments": {key: plain(value) for key, value in self.arguments.items()},
            "privacy": status_to_data(self.privacy),
            "smallest": self.smallest,
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> PerRound:
        """The inverse of `to_dict`.

        Raises
        ------
        TacitError
            If a small round does not give the stored privacy status, or gives a guarantee although
            none is stored, or if rounds are made for another target than the stored one.
        """
        make = protocol_factory(resolve_name(data["make"], Callable))  # type: ignore[arg-type]
        arguments = {key: rich(value) for key, value in data["arguments"].items()}
        found = cls(make, arguments, status_from_data(data["privacy"]), data["smallest"])
        found._check_target()
        found._check_small_round()
        return found

    def _check_target(self) -> None:
        """Reject rounds that are made for other numbers than the stored status asks for."""
        if not isinstance(self.privacy, KnownPerRound):
            return
        asked, made_for = self.privacy.target, self.arguments.get("target")
        if (
            not isinstance(made_for, Guarantee)
            or _numbers(made_for) != _numbers(asked)
            or asked.metrics != 1
        ):
            value = made_for.short if isinstance(made_for, Guarantee) else repr(made_for)
            raise TacitError(
                f"target of the rounds is {value}; epsilon, delta and participations must be those "
                f"that the experiment asks for, {asked.short}: the stored noise was changed"
            )

    def _check_small_round(self) -> None:
        """Reject a stored privacy status that says more or less than a small round gives; the
        constructor has compared the guarantee, `open` compares that of other sizes.
        """
        small = self.example()
        achieved = None if small is None else small.guarantee
        _check_descriptions(self.stated, () if achieved is None else achieved.assumptions)
        problem = "" if small is None else self._shortfall(achieved)
        if isinstance(self.privacy, NonPrivate) and achieved is not None:
            problem = f"gives {achieved.short}, the experiment states non-private"
        if problem:
            raise TacitError(f"a small round {problem}: the stored noise or status was changed")


@dataclass(frozen=True, eq=False)
class Releases(Mechanism):
    """Private prefix sums: round k is step k of one `PrefixSums`, and all steps share one
    guarantee.
    """

    sums: PrefixSums
    privacy: PrivacyStatus = field(default_factory=NonPrivate)
    released: dict[int, Floats] = field(default_factory=dict)
    held: dict[int, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.privacy, KnownPerRound):
            raise TacitError("prefix sums are accounted for together: state their guarantee")
        if self.guarantee is not None and not achieves(self.sums, self.guarantee):
            raise TacitError(
                f"these prefix sums do not give {self.guarantee.short} as it is stated: their "
                "noise was changed, or the guarantee"
            )
        _check_descriptions(self.guarantee, derivable_remarks(self.sums, self.guarantee))

    def open(self, round_: Round) -> PrefixRound:
        """The protocol of this round's step."""
        if round_.participants != self.sums.silos:
            raise TacitError(
                f"round {round_.number} is for {round_.participants} silos; the noise was shared "
                f"among {self.sums.silos}"
            )
        if round_.number > len(self.released):
            raise TacitError(
                f"synchronisation {len(self.released) + 1} was never released, and prefix sums "
                "need all of them: start a new experiment"
            )
        return self.sums.open(round_.number, self.released, self.held, self.guarantee)

    def encoder(self, silo: int | None = None) -> Encoder:
        """The randomizer of one silo, with exact draws; it never leaves the silo."""
        return self.sums.encoder(silo=silo)

    def to_dict(self) -> dict[str, Any]:
        """The released rows, which are public, and the data of simulated silos."""
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
        """The inverse of `to_dict`."""
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


def falls_short(achieved: Guarantee | None, stated: Guarantee) -> str:
    """Why the achieved guarantee does not imply the stated one; empty if it does."""
    if achieved is None:
        return f"gives no guarantee, not {stated.short}"
    if not (is_own(type(achieved)) and is_own(type(stated))):
        return "has a guarantee of a class from outside tacit, which proves nothing"
    if achieved.implies(stated):
        return ""
    if achieved.metrics < stated.metrics:
        return f"covers {achieved.metrics} metrics, not {stated.metrics}"
    missing = [one.identifier for one in uncovered(achieved.assumptions, stated.assumptions)]
    if missing:
        return f"needs assumptions that are not stated: {', '.join(missing)}"
    return (
        f"gives {achieved.short} ({achieved.view.value}), not {stated.short} ({stated.view.value})"
    )


def _check_descriptions(stated: Guarantee | None, derived: Iterable[Assumption]) -> None:
    """Reject a guarantee that says more about the release than can be derived from its noise.

    `Experiment` compares the protected secret with what its learner asks participants for.
    """
    known = frozenset(derived)
    for one in () if stated is None else stated.sorted_assumptions():
        if one.descriptive and one not in known and not isinstance(one, Protects):
            raise TacitError(
                f"the guarantee states {one.to_dict()}; it cannot be derived from the noise: "
                "remove it, or restore the file as it was written"
            )


def _numbers(guarantee: Guarantee) -> tuple[float, float, int] | None:
    """ε, δ and participations; None for guarantees of another kind."""
    match guarantee:
        case PureDP():
            return guarantee.epsilon, 0.0, guarantee.participations
        case ApproximateDP():
            return guarantee.epsilon, guarantee.delta, guarantee.participations
    return None


# annotations are texts, and evaluating them is slow
_hints: Callable[[Any], dict[str, Any]] = lru_cache(maxsize=256)(get_type_hints)
_signature: Callable[[Any], Signature] = lru_cache(maxsize=256)(signature)


def protocol_factory(make: Any) -> Callable[..., Protocol]:
    """`make` itself, if its return annotation is a Protocol.

    A stored file names a function that is then called, and the file could name anything. Classes
    are rejected too: they would take their guarantee from the file.
    """
    try:
        made = _hints(make).get("return")
    except (NameError, TypeError):
        made = None
    if not (isinstance(made, type) and issubclass(made, Protocol)):
        raise TacitError(
            f"{make!r} has no return annotation of a Protocol: give an annotated function at "
            "module level"
        )
    found: Callable[..., Protocol] = make
    return found


def _small_size(
    make: Callable[..., Protocol], arguments: Mapping[str, Any], smallest: int
) -> tuple[Any, ...] | None:
    """The size of a small round, by the required parameters of `make`; None if they are unknown."""
    hints = _hints(make)
    needed = [
        hints.get(name)
        for name, one in _signature(make).parameters.items()
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
    """A protocol and, recursively, the protocols that it is composed of."""
    yield protocol
    for part in protocol.components:
        yield from parts_of(part)


def from_outside(mechanism: Mechanism) -> bool:
    """Whether code from outside tacit takes part in a mechanism: its class, its factory, a factory
    that its arguments name, or a protocol that is made for a small round.

    Classes of tacit that somebody has patched in this process are not recognised.
    """
    if not is_own(type(mechanism)):
        return True
    if isinstance(mechanism, Releases):
        inside = (mechanism.sums, mechanism.sums.shape, mechanism.sums.presence)
        return not all(is_own(type(one)) for one in inside)
    if not isinstance(mechanism, PerRound):
        return False  # its parts are asked themselves
    if not is_own(mechanism.make) or any(map(_is_foreign, mechanism.arguments.values())):
        return True
    protocol = mechanism.example()
    return protocol is not None and not all(map(_is_unmodified, parts_of(protocol)))


def _is_foreign(argument: Any) -> bool:
    """Whether an argument is a value of a class that is neither Python's nor tacit's, or names a
    function, as `tacit.names` writes it, that is not tacit's.
    """
    kind = type(argument)
    if kind.__module__ not in ("builtins", "fractions") and not is_own(kind):
        return True
    return isinstance(argument, str) and ":" in argument and not argument.startswith(f"{PACKAGE}.")


def _checked(mechanism: Mechanism, guarantee: Guarantee) -> Declared:
    """Privacy status of a mechanism from outside, after a small round was checked if it can be.

    Where the guarantee is known only round by round, a small round must imply the one shown.

    Raises
    ------
    TacitError
        If the guarantee of that round is false, or weaker than that of the mechanism.
    """
    protocol = mechanism.example()
    if protocol is None or protocol.guarantee is None:
        return Declared()
    check_round(mechanism, protocol, "a small round")
    _check_descriptions(mechanism.stated, protocol.guarantee.assumptions)
    others = [part for part in parts_of(protocol) if not _is_unmodified(part)] or [protocol]
    if not (isinstance(mechanism, PerRound) and is_own(type(mechanism)) and is_own(mechanism.make)):
        # code from outside may have changed the guarantee of what tacit composes of its parts
        others += [part for part in parts_of(protocol) if part.components and part not in others]
    checked = [check_declared(part) for part in others]
    if isinstance(mechanism.privacy, KnownPerRound):
        checked.append(protocol.guarantee.implies(guarantee))
    return Declared(DRAWS, protocol.participants) if all(checked) else Declared()


def check_round(mechanism: Mechanism, protocol: Protocol, name: str) -> None:
    """Reject a round whose guarantee is weaker than that of the whole run, if that is known.

    Mechanisms of tacit check their rounds themselves; a class from outside may not.
    """
    stated = mechanism.guarantee
    if stated is not None and (problem := falls_short(protocol.guarantee, stated)):
        raise TacitError(f"{name} {problem}: state what the noise of every round gives")


def _is_unmodified(protocol: Protocol) -> bool:
    """Whether a protocol is tacit's, with none of its methods replaced on the instance."""
    replaced = (
        name for name in vars(protocol) if inspect.isfunction(getattr(type(protocol), name, None))
    )
    return is_own(type(protocol)) and not any(replaced)


def plain(value: Any) -> Any:
    """Guarantees, enums and fractions as plain data; other values unchanged."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    return {"guarantee": value.to_data()} if isinstance(value, Guarantee) else value


def rich(value: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, Mapping) and "fraction" in value:
        return Fraction(value["fraction"])
    if isinstance(value, Mapping) and "guarantee" in value:
        return Guarantee.from_data(value["guarantee"])
    return value
