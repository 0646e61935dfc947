"""Options that several commands share, and the options that problems declare.

The fields of a problem are its options. They are read from the registry, so packages from outside
add their own. The options of an algorithm are checked once its name is known.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import wraps
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from typer.core import TyperCommand

from tacit.algorithms import registry
from tacit.algorithms.problems import merged_options
from tacit.algorithms.registry import algorithms, lookup
from tacit.algorithms.silos_problem import Budget
from tacit.cli.operating import needs_live
from tacit.cli.printing import no_less
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.silos.replays import SiloReplay


class ConstantsChoice(StrEnum):
    """Constants: exact calibration, or the paper's."""

    tight = "tight"
    paper = "paper"


class SizeChoice(StrEnum):
    """Size of a figure's problems."""

    paper = "paper"
    small = "small"


class AxisChoice(StrEnum):
    """Meaning of ε in a figure."""

    paper = "paper"
    equal = "equal"


def whole(text: str) -> int:
    """Parse a whole number: 1000000 or 1e6."""
    try:
        number = float(text)
        if number == int(number):
            return int(text) if str(text).lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is not a whole number, such as 1000 or 1e6")


def option(text: str, *names: str, **more: Any) -> Any:
    """An option of a command, with its help."""
    return typer.Option(*names, help=text, **more)


def argument(text: str, **more: Any) -> Any:
    """An argument of a command, with its help."""
    return typer.Argument(help=text, **more)


Whole: dict[str, Any] = {"parser": whole, "metavar": "N"}
MOST_SILOS = 100_000


def numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas."""
    try:
        return tuple(float(part) for part in str(text).split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r}: must be numbers separated by commas, such as 0.31,0.47"
        ) from error


def _silos(text: str) -> int:
    """Parse a repeat count of silos; bounded, because the list is expanded."""
    count = whole(text)
    if not 1 <= count <= MOST_SILOS:
        raise typer.BadParameter(f"{text!r} silos: must be 1 to {MOST_SILOS:,}")
    return count


def budgets(text: str) -> tuple[float | tuple[float, float], ...]:
    """Parse budgets of silos: 0.5, or 0.5:1e-6 with a delta; 3*0.5:1e-6 for three equal silos.

    >>> budgets("2*0.5:1e-6,1")
    ((0.5, 1e-06), (0.5, 1e-06), 1.0)
    """
    found: list[float | tuple[float, float]] = []
    for part in str(text).split(","):
        count, _, pair = part.rpartition("*")
        epsilon, colon, delta = pair.partition(":")
        try:
            one = (float(epsilon), float(delta)) if colon else float(epsilon)
            found += [one] * (_silos(count) if count else 1)
        except (ValueError, typer.BadParameter) as error:
            raise typer.BadParameter(
                f"{part!r} is not a budget: must be epsilon:delta for each silo, such as "
                f"0.5:1e-6,2*1:1e-5, with at most {MOST_SILOS:,} silos alike"
            ) from error
    return tuple(found)


Algorithm = Annotated[str, option("Name of the algorithm; see: tacit algorithms.")]
Epsilon = Annotated[float, option("Epsilon of the guarantee.")]
Delta = Annotated[float | None, option("Delta of the guarantee; leave it out for a pure one.")]
Runs = Annotated[int, option("Number of runs.", **Whole)]
Seed = Annotated[int, option("First seed; run r has seed + r.", **Whole)]
Workers = Annotated[
    int | None, option("Processes; all cores by default, 0 for this process.", **Whole)
]
Engine = Annotated[str, option("local: processes on this machine; ray: a Ray cluster.")]
Address = Annotated[
    str | None, option("Address of the Ray cluster; auto: this machine's, local: a new one.")
]
Out = Annotated[Path | None, option("Directory for tables, pictures and the log.")]
Json = Annotated[bool, option("Print one JSON object instead of a table.", "--json")]
Replay = Annotated[
    Path | None,
    option(
        "Your own CSV instead of random instances: a column per option, or a log; of silos a "
        "TOML file that declares their tables."
    ),
]
Resume = Annotated[bool, option("Keep the finished runs of the log in --out, and run the rest.")]
Clip = Annotated[bool, option("Clip recorded rewards to [0, 1] and count them.")]
Resample = Annotated[bool, option("Sample recorded participants with replacement.")]
ARGUMENTS = "tacit.arguments"
ARMS_ONLY = {"replay", "clip", "resample", "user_by_user", "until_decided", "poisoned"}
ALSO = {"contextual": {"replay", "clip", "poisoned"}, "federated": {"replay"}}  # other families
PROBLEM, RUN, OUTPUT = "Problem", "Run", "Output"
PANELS = {
    **dict.fromkeys(("algorithm", "algorithms"), PROBLEM),
    **dict.fromkeys(("replay", "clip", "resample"), "Environment"),
    **dict.fromkeys(("out", "as_json"), OUTPUT),
}
ORDER = (PROBLEM, "Privacy", "Environment", RUN, OUTPUT)  # of panels in the help
KINDS: dict[Any, tuple[Any, dict[str, Any]]] = {
    int: (int, Whole),
    float: (float, {}),
    bool: (bool, {}),
    tuple[float, ...]: (str, {"parser": numbers, "metavar": "X,Y,…"}),
    tuple[float | Budget, ...]: (str, {"parser": budgets, "metavar": "E:D,…"}),
}


def problem_options(without: Collection[str]) -> Iterator[inspect.Parameter]:
    """A parameter for every other option of every problem; None means not given."""
    problems = dict.fromkeys(entry.problem for entry in algorithms().values())
    for name, declared in merged_options(problems).items():
        if name in without:
            continue
        kind, how = KINDS.get(declared.value_type, (str, {}))
        said = option(declared.help, rich_help_panel=declared.panel, **how)
        annotation = Annotated[kind | None, said]  # type: ignore[valid-type]
        keyword = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(name, keyword, default=None, annotation=annotation)


class OfAlgorithm(TyperCommand):
    """A command whose help shows only the options of the named algorithm, with their defaults."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the arguments: the help is printed before they are parsed."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of a named algorithm, or that of all."""
        words = [part for word in ctx.meta.get(ARGUMENTS, []) for part in word.split("=", 1)]
        named = dict(pairwise(words)).get("--algorithm")
        if named is not None and "user_by_user" in {one.name for one in self.params}:
            self.params = list(self._of(lookup(named)))
            self.help = f"Simulate {named}; these are its options, with their defaults."
        super().format_help(ctx, formatter)

    def _of(self, entry: registry.Algorithm) -> Iterator[Any]:
        every = {name for one in algorithms().values() for name in one.problem.options()}
        declared, usual = entry.problem.options(), entry.make_problem({}).values()
        others = every
        if entry.family != "arms":
            others |= ARMS_ONLY - ALSO.get(entry.family, set())
        for parameter in self.params:
            name = str(parameter.name)
            if name in entry.options:
                parameter.help = declared[name].help  # type: ignore[attr-defined]
                parameter.default = usual[name]
            if name in entry.options or name not in others:
                yield parameter


@dataclass(frozen=True)
class CommandGroup:
    """Commands under a common name: help text, commands by name, and the command without a name."""

    about: str | None
    commands: Mapping[str, Callable[..., None]]
    command: Callable[..., None] | None = None


@dataclass(frozen=True)
class OwnData:
    """The user's own table of rewards, if given."""

    replay: Replay = None
    clip: Clip = False
    resample: Resample = False

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Self:
        """Take these options out of all options."""
        return cls(**{name: options.pop(name) for name in inspect.signature(cls).parameters})

    def environment(self, family: str) -> Any:
        """The environment that replays the table; None without one."""
        if self.replay is not None and family == "contextual":
            from tacit.environments import read_context_log

            if self.resample:
                raise TacitError("--resample is for arms: a contextual log is used once")
            return read_context_log(self.replay, clip=self.clip)
        if self.replay is not None and family == "federated":
            if self.clip or self.resample:
                raise TacitError("--clip and --resample are for arms: the file declares bounds")
            return self.silos().world()
        if self.replay is not None and family != "arms":
            raise TacitError(
                f"--replay is {self.replay}; {family} algorithms take no table of rewards: use one "
                "of arms, such as private-klucb"
            )
        if self.replay is None:
            if self.clip or self.resample:
                raise TacitError("--clip and --resample need --replay: give a CSV with it")
            return None
        from tacit.environments import read_table

        return read_table(self.replay, clip=self.clip, resample=self.resample)

    def silos(self) -> SiloReplay:
        """The recorded tables of silos."""
        assert self.replay is not None
        if self.replay.suffix != ".toml":
            raise TacitError(
                f"--replay is {self.replay}: of silos it must be a .toml that declares columns "
                "and names one table per silo"
            )
        with needs_live():
            from tacit.silos.replays import read_replay
        return read_replay(self.replay)


def with_problem_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `OwnData` and of all problems to a command that takes `**options`."""
    parts = (inspect.signature(part, eval_str=True).parameters for part in (command, OwnData))
    own = [p for part in parts for p in part.values() if p.kind is not p.VAR_KEYWORD]
    for parameter in own:
        _declared(parameter).rich_help_panel = PANELS.get(parameter.name, RUN)
    every = [*own, *problem_options([p.name for p in own])]
    return _taking(command, sorted(every, key=lambda p: ORDER.index(_declared(p).rich_help_panel)))


def _declared(parameter: inspect.Parameter) -> Any:
    """Typer's declaration of an option."""
    return parameter.annotation.__metadata__[0]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's dataclass parameter by the options in it."""
    own = inspect.signature(command, eval_str=True).parameters
    name = next(p.name for p in own.values() if is_dataclass(p.annotation))
    group = own[name].annotation
    inner = inspect.signature(group, eval_str=True).parameters

    @wraps(command)
    def asked(**options: Any) -> None:
        taken = {field: options.pop(field) for field in inner}
        command(**{name: group(**taken)}, **options)

    parts = ([*inner.values()] if p.name == name else [p] for p in own.values())
    return _taking(asked, chain.from_iterable(parts))


def _taking(
    command: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Set the command's signature to these parameters."""
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in keyword}
    return command


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def warnings(epsilon: float | None, delta: float | None, clipped: float = 0.0) -> list[str]:
    """Warnings about weak guarantees and about clipped rewards."""
    found = []
    if delta is not None and delta >= 1e-3:
        found.append(f"delta {delta:g} may disclose one participant in {1 / delta:,.0f}: use 1e-6")
    if epsilon is not None and epsilon > 5:
        most = no_less(epsilon)
        found.append(
            f"epsilon {most} is a weak guarantee: an answer can become e^{most} times likelier"
        )
    if clipped > 0.01:
        found.append(
            f"{clipped:.0%} of rewards were outside [0, 1] and clipped. Clipped rewards are not "
            "linear in the features, so confidence sets do not hold: rescale, or use a smaller "
            "deviation"
        )
    return found


def interactive() -> bool:
    """Whether standard error is a terminal that can show progress bars."""
    return sys.stderr.isatty()
