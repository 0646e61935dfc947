"""Problems that named algorithms solve, and the declaration of their options.

A problem is composed of its own fields and of groups: the requested privacy and the simulated
environment. Fields declared with `option` are the options of Python and command line; callers give
them by name, whichever group they belong to. The module imports NumPy only when it is needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from tacit.errors import TacitError, did_you_mean, integer, one_of

if TYPE_CHECKING:
    import numpy as np

    from tacit.algorithms.run_outcome import RunOutcome
    from tacit.environments.contract import World

Constants = Literal["tight", "paper"]
Noise = Literal["discrete-gaussian", "skellam"]
DEFAULT_DELTA = 1e-6
MOST = 10**15  # most participants that 64-bit generators can draw


@dataclass(frozen=True)
class Option:
    """A declared option of a problem: its name, type, default, help text and panel of the help."""

    name: str
    kind: Any
    default: Any
    help: str
    panel: str

    @property
    def value_type(self) -> Any:
        """The type of a value that is given: without None, and str for a choice of words."""
        parts = get_args(self.kind)
        kind = parts[0] if NoneType in parts else self.kind
        return str if get_origin(kind) is Literal else kind

    @property
    def simulated(self) -> bool:
        """Whether it describes only random instances, and not an environment that is given."""
        return self.panel == "Environment"


def option(default: Any, text: str) -> Any:
    """Declare a field of a problem, or of a group in it, as an option.

    Parameters
    ----------
    default
        Default value.
    text : str
        Help text.

    Returns
    -------
    dataclasses.Field

    Examples
    --------
    >>> option(10, "Number of options.").metadata["help"]
    'Number of options.'
    """
    return field(default=default, metadata={"help": text})


def group(kind: type) -> Any:
    """Declare a field of a problem as a group of options; its name is that of a panel of the
    help.
    """
    return field(default_factory=kind, metadata={"group": kind})


@cache
def _choices(part: Any) -> dict[str, tuple[str, ...]]:
    """The values of every field that is a choice of words."""
    found = {}
    for name, kind in get_type_hints(part).items():
        for choice in (kind, *get_args(kind)):
            if get_origin(choice) is Literal:
                found[name] = get_args(choice)
    return found


class Checked:
    """Base of problems and their groups: checks that `__post_init__` uses."""

    def _check_words(self) -> None:
        """Check every field that has a fixed set of allowed values, if it is given."""
        kind: Any = type(self)
        for name, words in _choices(kind).items():
            if self._given(name):
                one_of(name, getattr(self, name), words)

    def _check_counts(self, **least: int) -> None:
        """Check integers (1e6 is one), if given, against their least values and an upper limit."""
        for name, at_least in least.items():
            if not self._given(name):
                continue
            value = integer(name, getattr(self, name), at_least=at_least)
            if value > MOST:
                raise TacitError(f"{name} is {value:.4g}: must be at most {MOST:.0e}")
            self._set_field(name, value)

    def _given(self, name: str) -> bool:
        """Whether a field has a value; None is one unless it is the default."""
        return (getattr(self, name), getattr(type(self), name)) != (None, None)

    def _set_field(self, name: str, value: Any) -> None:
        """Set a field of a frozen dataclass."""
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Start:
    """A run before its first round: its environment and its random generators."""

    world: World
    rng: np.random.Generator
    noise: np.random.Generator


@dataclass(frozen=True)
class Problem(Checked):
    """Base class of problems. A run sets `learner_seed` for learners that draw random numbers."""

    family: ClassVar[str]
    per: ClassVar[str] = "participant"
    extras: ClassVar[tuple[str, ...]] = ()
    featured: ClassVar[bool] = False  # whether algorithms use features of the options

    horizon: int = option(1_000_000, "Number of participants.")

    @property
    def shared_draws(self) -> Hashable:
        """Key of shared draws: problems with equal keys, unless None, draw the same participants
        from one seed.
        """
        return None

    @classmethod
    def _groups(cls) -> Iterator[tuple[str, type, str]]:
        """Name ("" for the problem itself), class and panel of everything that has options."""
        yield "", cls, "Problem"
        for entry in fields(cls):
            if "group" in entry.metadata:
                yield entry.name, entry.metadata["group"], entry.name.capitalize()

    @classmethod
    def options(cls) -> dict[str, Option]:
        """The declared options, by name."""
        return {
            entry.name: Option(entry.name, kinds[entry.name], entry.default, text, panel)
            for _, part, panel in cls._groups()
            for kinds in [get_type_hints(part)]
            for entry in fields(part)
            if (text := entry.metadata.get("help")) is not None
        }

    @classmethod
    def _placed(cls, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The given fields by the name of their group."""
        homes = {entry.name: name for name, part, _ in cls._groups() for entry in fields(part)}
        placed: dict[str, dict[str, Any]] = {name: {} for name, _, _ in cls._groups()}
        for name, value in options.items():
            if name not in homes:
                raise TacitError(f"{cls.__name__} has no {name}{did_you_mean(name, homes)}")
            placed[homes[name]][name] = value
        return placed

    @classmethod
    def of(cls, **options: Any) -> Self:
        """The problem with these fields, given by name whichever group they belong to.

        Parameters
        ----------
        **options
            Fields of the problem and of its groups; the others have their defaults.

        Returns
        -------
        Problem

        Raises
        ------
        TacitError
            If there is no such field, a value is out of range, or values contradict each other.

        Examples
        --------
        >>> from tacit import ArmsProblem
        >>> ArmsProblem.of(horizon=1e4, epsilon=0.5).privacy.epsilon
        0.5
        """
        placed = cls._placed(options)
        parts = {name: part(**placed[name]) for name, part, _ in cls._groups() if name}
        return cls(**placed[""], **parts)

    def changed(self, **changes: Any) -> Self:
        """A copy of this problem with other values of some fields, as `of` takes them."""
        placed = self._placed(changes)
        parts = {
            name: replace(getattr(self, name), **values)
            for name, values in placed.items()
            if name and values
        }
        return replace(self, **placed[""], **parts)

    def values(self) -> dict[str, Any]:
        """The values of all options."""
        return {
            entry.name: getattr(getattr(self, name) if name else self, entry.name)
            for name, part, _ in self._groups()
            for entry in fields(part)
            if "help" in entry.metadata
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the options, if given."""
        return ()

    @property
    def dropout(self) -> float:
        """Fraction of each round that does not report."""
        return 0.0

    def start(self, seed: int, world: World | None) -> Start:  # noqa: ARG002
        """The environment and the generators of one run."""
        raise TacitError(f"{type(self).__name__} has no simulated environment: define start")

    def for_environment(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """A copy of this problem with the environment's public facts and its seed."""
        return self

    def record(self, outcome: RunOutcome) -> dict[str, Any]:  # noqa: ARG002
        """Columns of a run's record that only this family of problems has."""
        return {}


def merged_options(problems: Iterable[type[Problem]]) -> dict[str, Option]:
    """The options of several problems; the help names the families if not all have an option."""
    options = {problem.family: problem.options() for problem in problems}
    merged: dict[str, Option] = {}
    for name in dict.fromkeys(chain.from_iterable(options.values())):
        families = [family for family, declared in options.items() if name in declared]
        declared = options[families[0]][name]
        only = f" ({', '.join(families)} only)" if len(families) < len(options) else ""
        merged[name] = replace(declared, help=declared.help + only)
    return merged
