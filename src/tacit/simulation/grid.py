"""Studies: grids of algorithms × problems × environments × guarantees × seeds.

A study comes from a TOML file or a mapping and is validated before anything runs. Every axis is a
list of tables of options; an option whose value is a list is an axis of its own. Each algorithm
gets the options that it has; at least one must have each. Tables that are equal for an algorithm
are one configuration. A `Study` is a picklable function of a cell's number; its row, as JSON, is
the same wherever it is computed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import pickle
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, get_origin

from tacit.algorithms.problems import Option, Problem
from tacit.algorithms.registry import Algorithm, check_together, lookup
from tacit.algorithms.silos_problem import Budget
from tacit.environments.contract import World
from tacit.errors import TacitError, integer, toml_problem
from tacit.privacy import Guarantee
from tacit.simulation.driver import Trial, together
from tacit.simulation.engines import Failure
from tacit.simulation.study import (
    RunConfig,
    build_first_run,
    complete_options,
    guarantee_to,
    options_in_force,
    with_pilot_totals,
)

AXES = ("problems", "environments", "guarantees")
FIELDS = ("name", "algorithms", *AXES, "seeds", "first_seed")
REPLAY = ("replay", "clip", "resample")  # keys of an environment, besides the problem's options
ABOUT = ("label", "family")  # keys of any table
NOT_KEPT = ("seed", "estimates", "realised")  # columns of a run's record
EXPECTED: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int, float), "a whole number, such as 1e5"),
    float: ((int, float), "a number, such as 0.5"),
    str: ((str,), 'a word in quotes, such as "easy"'),
    bool: ((bool,), "true or false"),
    tuple[float, ...]: ((list, tuple), "a list of numbers, such as [0.31, 0.47]"),
    tuple[float | Budget, ...]: ((list, tuple), "a list of pairs, such as [[0.5, 1e-6]]"),
}
MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Choice:
    """One value on an axis: options, or the index of an own world, for some families or all
    (None).
    """

    place: str
    options: Mapping[str, Any]
    label: str | None = None
    families: frozenset[str] | None = None
    world: int | None = None


@dataclass(frozen=True)
class Configuration:
    """The common part of runs that differ only in their seeds."""

    algorithm: str
    label: str
    problem: Problem
    world: int | None
    axes: Mapping[str, str]  # labels of the values on the axes
    chosen: Mapping[str, Mapping[str, Any]]  # their options, as far as the algorithm has them
    named: Mapping[str, Any]  # the study's options, horizon, epsilon and delta
    options: Mapping[str, Any]  # all options in force
    guarantee: Guarantee | None

    def described(self) -> dict[str, Any]:
        """The configuration as data, readable without the registry of algorithms."""
        return {
            "algorithm": self.algorithm,
            "label": self.label,
            "family": self.problem.family,
            "per": self.problem.per,
            "extras": list(self.problem.extras),
            **self.axes,
            "chosen": _plain(self.chosen),
            "options": _plain(self.options),
            "guarantee_data": None if self.guarantee is None else self.guarantee.to_data(),
        }


@dataclass(frozen=True)
class Study:
    """All configurations, in the order of the grid; a cell is a configuration and a seed."""

    name: str
    configurations: tuple[Configuration, ...]
    first_seed: int
    seeds: int
    worlds: tuple[World, ...] = ()
    digests: tuple[str, ...] = ()  # of the worlds' data
    homes: tuple[str, ...] = ()  # modules that register algorithms from outside tacit
    merged: int = 0  # combinations equal to others

    @property
    def cells(self) -> int:
        """Number of runs."""
        return len(self.configurations) * self.seeds

    def at(self, cell: int) -> tuple[Configuration, int]:
        """The configuration and the seed of a cell."""
        place, step = divmod(cell, self.seeds)
        return self.configurations[place], self.first_seed + step

    def description(self, cell: int) -> dict[str, Any]:
        """Description of a cell, sufficient to run it alone."""
        where, seed = self.at(cell)
        return {"cell": cell, "algorithm": where.label, **where.axes, "seed": seed}

    def __call__(self, cell: int) -> str:
        """Run a cell and return its row as JSON."""
        return self._row(cell, self._trial(cell)(self.at(cell)[1]))

    def together(self, cells: Sequence[int]) -> list[tuple[int, str | Failure]]:
        """Run cells of one bundle, and return the row of each, or why it failed."""
        if len(cells) == 1:
            return [(cells[0], self(cells[0]))]
        found = together([self._trial(cell) for cell in cells], self.at(cells[0])[1])
        return [
            (cell, one if isinstance(one, Failure) else self._row(cell, one))
            for cell, one in zip(cells, found, strict=True)
        ]

    def bundles(self, cells: Iterable[int]) -> list[tuple[int, ...]]:
        """Group the cells of one seed whose problems share their draws, to run them together."""
        found: dict[Hashable, list[int]] = {}
        for cell in cells:
            where, seed = self.at(cell)
            shared = where.problem.shared_draws if where.world is None else None
            found.setdefault(cell if shared is None else (seed, shared), []).append(cell)
        return [tuple(group) for group in found.values()]

    def _trial(self, cell: int) -> Trial:
        for home in self.homes:
            import_module(home)
        where, _ = self.at(cell)
        world = None if where.world is None else self.worlds[where.world]
        problem = with_pilot_option(where.algorithm, where.problem, self.first_seed, self.seeds)
        return Trial(where.algorithm, problem, world)

    def _row(self, cell: int, record: Mapping[str, Any]) -> str:
        where, _ = self.at(cell)
        kept = {name: value for name, value in record.items() if name not in NOT_KEPT}
        named = {
            f"asked_{name}" if name in kept else name: value for name, value in where.named.items()
        }
        return json.dumps(
            _plain({**self.description(cell), **named, **kept}), ensure_ascii=False, allow_nan=False
        )

    def identity(self) -> dict[str, Any]:
        """The identity of the results as data: seeds, data digests and configurations."""
        return {
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "data": list(self.digests),
            "configurations": [where.described() for where in self.configurations],
        }


@dataclass(frozen=True)
class Bundles:
    """A study as a picklable function of the number of a bundle of cells."""

    study: Study
    cells: tuple[tuple[int, ...], ...]

    def __call__(self, number: int) -> list[tuple[int, str | Failure]]:
        """Run the cells of a bundle."""
        return self.study.together(self.cells[number])


def with_pilot_option(algorithm: str, problem: Problem, first: int, runs: int) -> Problem:
    """The problem, with the option that pilot runs on the seeds set, if the algorithm has one."""
    if lookup(algorithm).pilot_option is None:
        return problem
    return _searched(algorithm, problem, first, runs)


@cache
def _searched(algorithm: str, problem: Problem, first: int, runs: int) -> Problem:
    return with_pilot_totals(lookup(algorithm), problem, RunConfig(runs, first, workers=1))


def read_study(path: Path) -> Study:
    """Read a study from a TOML file; an error is one line that names its location."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TacitError(f"{path} is not text. Give a study in TOML.") from None
    except OSError as error:
        raise TacitError(
            f"{path} cannot be read ({error.strerror}). Give a study in TOML."
        ) from error
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TacitError(f"{path} is not TOML: {toml_problem(text, error)}") from None
    return study_of({"name": path.stem, **given}, source=path.name, beside=path.parent)


def study_of(entry: Mapping[str, Any], source: str = "study", beside: Path = Path()) -> Study:
    """The study that a mapping describes; paths in it are relative to `beside`.

    >>> study_of({"algorithms": ["ucb1"], "problems": {"arms": [3, 5]}, "seeds": 10}).cells
    20
    """
    try:
        return _Reader(entry, beside).study()
    except TacitError as error:
        raise TacitError(f"{source}: {as_fields(str(error))}") from error


def as_fields(text: str) -> str:
    """Spell options as fields of a file instead of command line options.

    >>> as_fields("--control-share is 2: leave --arms out")
    'control_share is 2: leave arms out'
    """
    return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)


@dataclass
class _Reader:
    """Parser of a study."""

    given: Mapping[str, Any]
    beside: Path
    worlds: list[World] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    entries: dict[str, Algorithm] = field(default_factory=dict)

    def study(self) -> Study:
        for name in self.given:
            if name in REPLAY:
                raise TacitError(f"{name} stands outside of a table: write it in [environments].")
            if name not in FIELDS:
                raise TacitError(f"{name} is not a field of a study{_suggestion(name, FIELDS)}")
        name = self.given.get("name", "study")
        if not isinstance(name, str) or not name.strip():
            raise TacitError(f'name is {name!r}: must be a few words, such as "Which is best?".')
        seeds = integer("seeds", self.given.get("seeds", 20), at_least=1, remedy="how many of each")
        first = integer("first_seed", self.given.get("first_seed", 0), at_least=0)
        variants = self._variants()
        axes = {axis: list(self._choices(axis)) for axis in AXES}
        self._check_used(variants, axes)
        found: dict[str, Configuration] = {}
        count = 0
        for entry, variant in variants:
            for picked in product(*(self._suiting(entry, axis, axes[axis]) for axis in AXES)):
                count += 1
                self._check_size(len(found) * seeds)
                made = self._configuration(entry, variant, picked, RunConfig(seeds, first))
                key = [made.algorithm, made.label, made.world, made.options]
                found.setdefault(json.dumps(_plain(key), sort_keys=True), made)
        self._check_size(len(found) * seeds)
        homes = dict.fromkeys(entry.build.__module__ for entry in self.entries.values())
        foreign = tuple(home for home in homes if not home.startswith("tacit."))
        return Study(
            name.strip(),
            tuple(found.values()),
            first,
            seeds,
            tuple(self.worlds),
            tuple(self.digests),
            foreign,
            count - len(found),
        )

    @staticmethod
    def _check_size(cells: int) -> None:
        if cells > MOST_CELLS:
            raise TacitError(
                f"cells are more than {MOST_CELLS:,}. Use fewer seeds, or several studies."
            )

    def _variants(self) -> list[tuple[Algorithm, Choice]]:
        """The algorithms, each with its own options."""
        listed = self.given.get("algorithms")
        if not isinstance(listed, (list, tuple)) or not listed:
            said = "missing" if listed is None else repr(listed)
            raise TacitError(
                f'algorithms is {said}: must be a list of names, such as ["private-med", '
                '"ucb1"]. See: tacit algorithms.'
            )
        found: list[tuple[Algorithm, Choice]] = []
        for number, one in enumerate(listed, start=1):
            place = f"algorithms[{number}]"
            table = dict(one) if isinstance(one, Mapping) else {"name": one}
            name = table.pop("name", None)
            if not isinstance(name, str):
                raise TacitError(f"{place} is {one!r}: must be a name, or a table with a name.")
            entry = self.entries.setdefault(name, lookup(name))
            for choice in self._expanded("algorithms", place, table, (entry,)):
                shown = f"{name} ({_format_label(choice.options)})" if choice.options else name
                found.append((entry, Choice(place, choice.options, choice.label or shown)))
        labels = [choice.label for _, choice in found]
        for label in labels:
            if labels.count(label) > 1:
                raise TacitError(f"algorithms has {label} twice. Leave one out, or give a label.")
        return found

    def _choices(self, axis: str) -> Iterator[Choice]:
        listed = self.given.get(axis, ())
        tables = [listed] if isinstance(listed, (Mapping, World)) else listed
        if not isinstance(tables, Sequence) or isinstance(tables, str):
            raise TacitError(f"{axis} is {listed!r}: must be tables [[{axis}]].")
        for number, table in enumerate(tables, start=1):
            place = f"{axis}[{number}]"
            if isinstance(table, World) and axis == "environments":
                label = f"{type(table).__name__} {number}"
                yield Choice(place, {}, label, world=self._own(table, pickle_digest(table)))
            elif isinstance(table, Mapping):
                entries = tuple(self.entries.values())
                yield from self._expanded(axis, place, dict(table), entries)
            else:
                raise TacitError(f"{place} is {table!r}: must be a table [[{axis}]].")

    def _expanded(
        self, axis: str, location: str, table: dict[str, Any], entries: Iterable[Algorithm]
    ) -> Iterator[Choice]:
        """The choices that a table stands for; every list in it is an axis."""
        label, family = (table.pop(name, None) for name in ABOUT)
        world = None
        if axis == "environments" and "replay" in table:
            families = {entry.family for entry in entries}
            family = family or (families.pop() if len(families) == 1 else "arms")
            world, name = self._replayed(location, table, contextual=family == "contextual")
            label = label or name
        known = {name: one for entry in entries for name, one in entry.problem.options().items()}
        for name in table:
            if name not in known:
                which = ", ".join(entry.name for entry in entries)
                hint = _suggestion(name, (*known, *ABOUT))
                raise TacitError(f"{location}.{name} is not an option of {which}{hint}")
        suits = {e.family for e in entries if all(name in e.problem.options() for name in table)}
        if family is not None:
            if family not in {entry.family for entry in entries}:
                of = ", ".join(sorted({entry.family for entry in entries}))
                raise TacitError(f"{location}.family is {family!r}: must be one of {of}.")
            suits &= {family}
        if not suits:
            of = f" of {family}" if family else ""
            raise TacitError(
                f"{location} has options that no family{of} has together ({', '.join(table)}). "
                "Split it into a table for each family."
            )
        values = [
            list(self._values(f"{location}.{name}", known[name], table[name])) for name in table
        ]
        for picked in product(*values):
            options = dict(zip(table, picked, strict=True))
            yield Choice(location, options, label, frozenset(suits), world)

    @staticmethod
    def _values(location: str, declared: Option, entry: Any) -> Iterator[Any]:
        """The values of an option; a list is several values, unless the option itself is a list."""
        kind = declared.value_type
        several = isinstance(entry, (list, tuple))
        if get_origin(kind) is tuple:
            several = several and bool(entry) and isinstance(entry[0], (list, tuple))
        listed = list(entry) if several else [entry]
        if not listed:
            raise TacitError(f"{location} is empty. Give a value, or leave it out.")
        types, expected = EXPECTED.get(kind, ((object,), ""))
        for value in listed:
            strange = isinstance(value, bool) and bool not in types and object not in types
            if strange or not isinstance(value, types):
                raise TacitError(f"{location} is {value!r}: must be {expected}.")
            yield tuple(value) if isinstance(value, list) else value

    def _replayed(
        self, location: str, table: dict[str, Any], *, contextual: bool
    ) -> tuple[int, str]:
        """The world of a recorded table or contextual log, which is read once."""
        from tacit.environments import read_context_log, read_table

        how = {name: table.pop(name) for name in REPLAY if name in table}
        if not isinstance(how["replay"], str):
            raise TacitError(f"{location}.replay is {how['replay']!r}: must name a CSV file.")
        for name in REPLAY[1:]:
            if not isinstance(how.get(name, False), bool):
                raise TacitError(f"{location}.{name} is {how[name]!r}: must be true or false.")
        path = self.beside / how.pop("replay")
        if contextual and how.pop("resample", False):
            raise TacitError(f"{location}.resample is for arms: a contextual log is used once")
        world: World = read_context_log(path, **how) if contextual else read_table(path, **how)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        label = ", ".join([path.name, *(name for name in REPLAY[1:] if how.get(name))])
        return self._own(world, f"{label} {digest}"), label

    def _own(self, world: World, digest: str) -> int:
        self.worlds.append(world)
        self.digests.append(digest)
        return len(self.worlds) - 1

    def _check_used(
        self, variants: list[tuple[Algorithm, Choice]], axes: dict[str, list[Choice]]
    ) -> None:
        """Reject an option that no algorithm has."""
        entries = list({entry.name: entry for entry, _ in variants}.values())
        for choice in (choice for listed in axes.values() for choice in listed):
            suited = [e for e in entries if choice.families is None or e.family in choice.families]
            for name in choice.options:
                if not any(name in entry.options for entry in suited):
                    which = ", ".join(entry.name for entry in suited)
                    raise TacitError(
                        f"{choice.place}.{name} is not an option of {which}. Leave it out."
                    )

    @staticmethod
    def _suiting(entry: Algorithm, axis: str, choices: list[Choice]) -> list[Choice]:
        """The choices of an axis for an algorithm's family; an empty choice if the axis has
        none.
        """
        if not choices:
            return [Choice(axis, {})]
        suited = [c for c in choices if c.families is None or entry.family in c.families]
        if not suited:
            raise TacitError(
                f"{axis} have no table for {entry.name}, whose family is {entry.family}. "
                f'Add [[{axis}]] with its options, or with family = "{entry.family}".'
            )
        return suited

    def _configuration(
        self, entry: Algorithm, variant: Choice, picked: Sequence[Choice], config: RunConfig
    ) -> Configuration:
        """The configuration of one cell of the grid."""
        options: dict[str, Any] = dict(variant.options)
        said = dict.fromkeys(options, variant.place)
        labels: dict[str, str] = {}
        chosen: dict[str, Mapping[str, Any]] = {}
        for axis, choice in zip(AXES, picked, strict=True):
            mine = {name: v for name, v in choice.options.items() if name in entry.options}
            for name in mine:
                if name in said:
                    raise TacitError(
                        f"{name} is given by {said[name]} and by {choice.place}. Leave one out."
                    )
            said |= dict.fromkeys(mine, choice.place)
            options |= mine
            none = not mine and choice.world is None and bool(choice.options)
            kept = "–" if none else choice.label or _format_label(mine) or "default"
            labels[axis.removesuffix("s")], chosen[axis.removesuffix("s")] = kept, mine
        index = next((choice.world for choice in picked if choice.world is not None), None)
        world = None if index is None else self.worlds[index]
        place = ", ".join(choice.place for choice in picked if "[" in choice.place)
        assert variant.label is not None
        try:
            made = configured(entry, variant.label, options, (index, world), config)
        except TacitError as error:
            raise TacitError(f"{place or 'study'}, {entry.name}: {error}") from error
        return replace(made, axes=labels, chosen=chosen)


def configured(
    entry: Algorithm,
    label: str,
    options: Mapping[str, Any],
    world: tuple[int | None, World | None],
    config: RunConfig,
) -> Configuration:
    """The configuration of an algorithm with these options, checked by building its first run.

    `world` is an own world's place in the study and the world itself.
    """
    check_together(options)
    index, own = world
    problem = entry.make_problem(complete_options(entry, own, dict(options)))
    fitted, experiment = problem, None
    if entry.pilot_option is None:
        fitted, experiment = build_first_run(entry, problem, config, own)
    in_force = options_in_force(entry, fitted, own)
    common = [name for name in ("horizon", "epsilon", "delta") if name in in_force]
    named = {name: in_force.get(name) for name in dict.fromkeys([*common, *options])}
    guarantee = None if experiment is None else guarantee_to(experiment, own, [])
    axes = dict.fromkeys((axis.removesuffix("s") for axis in AXES), "default")
    return Configuration(entry.name, label, problem, index, axes, {}, named, in_force, guarantee)


def pickle_digest(world: World) -> str:
    """A digest that distinguishes the caller's own worlds."""
    try:
        return hashlib.sha256(pickle.dumps(world)).hexdigest()
    except Exception:  # not picklable, e.g. a lambda
        return f"{type(world).__name__} of one process"


def _suggestion(name: str, known: Iterable[str]) -> str:
    listed = list(known)
    close = difflib.get_close_matches(name, listed, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(listed)}"


def _format_label(options: Mapping[str, Any]) -> str:
    """Format options as a label.

    >>> _format_label({"epsilon": 0.5, "horizon": 1e6, "means": (0.1, 0.25), "lazy": False})
    'ε 0.5, horizon 1,000,000, means 0.1 0.25, lazy no'
    """
    greek = {"epsilon": "ε", "delta": "δ"}
    return ", ".join(
        f"{greek.get(name, name.replace('_', ' '))} {_format_value(v)}"
        for name, v in options.items()
    )


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        whole = abs(value) < 1e15 and value == int(value)
        return f"{int(value):,}" if whole else f"{value:g}"
    return " ".join(map(_format_value, value)) if isinstance(value, (tuple, list)) else str(value)


def _plain(value: Any) -> Any:
    """Convert to JSON data; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)
