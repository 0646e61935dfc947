"""Every named algorithm, in one registry.

A name stands for a function that puts an `Experiment` together for a problem. `@algorithm` enters
it; a package outside tacit enters its own through the entry-point group `tacit.algorithms`, and is
then simulated, compared, planned with and tested like all others. Listing names loads no NumPy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import TacitError
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.algorithms.problems import Problem
    from tacit.experiment import Experiment

GROUP = "tacit.algorithms"
OWN = (
    "nonprivate_baselines",
    "private_baselines",
    "cz23",
    "tkms21",
    "private_klucb",
    "private_med",
    "lzj22",
    "zc24",
)
HIDDEN = ("binary", "control", "levels", "smallest", "table")  # of a problem, beside its options
Build = TypeVar("Build", bound=Callable[[Any], Any])


@dataclass(frozen=True)
class Algorithm:
    """One named algorithm: where it comes from, whom it trusts, what it promises, what it takes."""

    name: str
    paper: str
    trusts: tuple[TrustModel, ...]
    promise: str
    problem: type[Problem]
    build: Callable[[Any], Experiment]
    options: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    cautions: Mapping[str, str] = field(default_factory=dict)

    @property
    def trust(self) -> str:
        """The trust models that it runs under, by name."""
        return ", ".join(self.trusts)

    @property
    def family(self) -> str:
        """Arms, linear or federated."""
        return self.problem.family

    def ask(self, options: Mapping[str, Any]) -> Problem:
        """The problem with these options; one that this algorithm does not have is refused."""
        strange = [name for name in options if name not in self.options]
        if strange:
            raise TacitError(
                f"{self.name} has no option {', '.join(map(spelled, strange))}; it has "
                f"{', '.join(spelled(name) for name in self.options)}"
            )
        return self.problem(**{**self.defaults, **options})

    def describe(self, problem: Problem) -> dict[str, Any]:
        """The options that were in force."""
        return {name: getattr(problem, name) for name in self.options}


_KNOWN: dict[str, Algorithm] = {}


def _trust_model(algorithm: str, name: str) -> TrustModel:
    try:
        return TrustModel(name)
    except ValueError:
        raise TacitError(
            f"trust of {algorithm} is {name!r}; it must be one of {', '.join(TrustModel)}"
        ) from None


def algorithm(
    name: str,
    *,
    paper: str,
    trust: TrustModel | Iterable[TrustModel],
    promise: str,
    problem: type[Problem],
    options: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    cautions: Mapping[str, str] | None = None,
) -> Callable[[Build], Build]:
    """Enters a function from problems to experiments under a name.

    `options` are the fields of the problem that matter to it, all by default; `defaults` are its
    own where they differ from the problem's; `trust` is the trust model, or all that `--trust`
    may name; `cautions` are what a reader of a run must know, by
    setting.
    """

    def enter(build: Build) -> Build:
        if name in _KNOWN:
            raise TacitError(f"the name {name} is taken by {_KNOWN[name].build.__module__}")
        taken = tuple(options) if options is not None else tuple(problem.options())
        unknown = set(taken) - set(problem.options())
        if unknown:
            raise TacitError(f"{problem.__name__} has no {', '.join(sorted(unknown))}")
        models = (trust,) if isinstance(trust, str) else tuple(trust)
        trusts = tuple(_trust_model(name, one) for one in models)
        about = (paper, trusts, promise, problem, build, taken, dict(defaults or {}))
        _KNOWN[name] = Algorithm(name, *about, dict(cautions or {}))
        return build

    return enter


@cache
def _load() -> None:
    for module in OWN:
        import_module(f"tacit.algorithms.{module}")
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            raise TacitError(
                f"the package that brings {point.name} cannot be loaded ({error}): mend or remove "
                f"{point.value}"
            ) from error


def algorithms() -> dict[str, Algorithm]:
    """All of them by name, ours first."""
    _load()
    return dict(_KNOWN)


def lookup(name: str) -> Algorithm:
    """The algorithm of a name, or an error that says which was meant."""
    known = algorithms()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
        raise TacitError(f"algorithm is {name!r}; {hint} (see: tacit algorithms)")
    return known[name]


def begin(name: str, options: Iterable[str] = (), **given: Any) -> Experiment:
    """An experiment by a named algorithm, to be driven by hand or by a service.

    `options` are their names; `given` are the algorithm's own options, `binary=True` where answers
    are 0 or 1, `control` (which option it is), `levels` and `smallest` where terms name an answer's
    levels and a crowd, and `table` where options are actions of a linear bandit.
    """
    entry, names = lookup(name), tuple(options)
    hidden: dict[str, Any] = {key: given.pop(key) for key in HIDDEN if key in given}
    if names and "arms" not in entry.options:
        raise TacitError(f"{name} is {entry.family}: it takes no named options, leave them out")
    if names:
        hidden |= {"labels": names, "arms": len(names)}
    problem = entry.ask(given)
    return entry.build(replace(problem, **hidden))


def check_together(options: Mapping[str, Any]) -> None:
    """Refuses what contradicts itself, or would count for nothing."""
    means, arms = options.get("means"), options.get("arms")
    if means is not None and arms is not None and len(means) != arms:
        raise TacitError(f"--arms is {arms}, but --means has {len(means)}: leave --arms out")
    if means is not None and "instance" in options:
        raise TacitError("--instance draws means and --means gives them: use one of the two")
    if options.get("budgets") is not None and "epsilon" in options:
        raise TacitError("--budgets gives every silo its epsilon: leave --epsilon out")
    if "data" in options:
        for name in ("actions", "dimension", "deviation"):
            if name in options:
                raise TacitError(f"--{name} is decided by the file of --data: leave it out")
    elif "field" in options:
        raise TacitError("--field is about --data: give the file with it")


def spelled(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"


def option(default: Any, text: str, *, panel: str = "", world: bool = False) -> Any:
    """A field of a problem that is an option: its help, and whether it only describes the
    environment, so that it does not count where somebody brings their own.
    """
    return field(default=default, metadata={"help": text, "panel": panel, "world": world})
