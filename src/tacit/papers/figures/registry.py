"""The registry of figures: `lookup(name).draw(out)` draws any of them.

A figure consists of a function that lists its curves and one that writes its plot and data. All
runs of all curves are one study of `tacit.simulation.sweeping`: they run on its engines, and a
drawing that was interrupted resumes. `as_panels` writes the most common kind of figure, panels of
regret over time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tacit.algorithms.registry import lookup as algorithm
from tacit.environments.contract import World
from tacit.errors import TacitError, integer, one_of
from tacit.papers.bounds import with_bounds
from tacit.simulation.grid import Configuration, Study, configured, pickle_digest
from tacit.simulation.pictures import Panel, draw_panels, write_panels
from tacit.simulation.results import Result
from tacit.simulation.study import RunConfig
from tacit.simulation.sweeping import ExecutionConfig, run_study

Axis = Literal["paper", "equal"]
Size = Literal["paper", "small"]
SIZES: tuple[Size, ...] = ("paper", "small")
SMALL_RUNS = 3
MODULES = ("arms", "lzj22", "zc24")


@dataclass(frozen=True)
class Options:
    """Options of a figure.

    Parameters
    ----------
    runs : int, optional
        Number of runs; None means as many as the size has.
    axis : {"paper", "equal"}
        The meaning of an algorithm's ε, for figures of CZ23.
    data : Path, optional
        A fold file of MSLR-WEB10K.
    size : {"paper", "small"}
        The size of the paper's problems, or a small one for a first look.
    execution : ExecutionConfig
        Engine, workers and progress of the runs.
    seed : int
        First seed.
    changes : mapping
        Options of the figure's problems that replace those of its size, such as fewer actions.
    """

    runs: int | None = None
    axis: Axis = "paper"
    data: Path | None = None
    size: Size = "paper"
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    seed: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("size", self.size, SIZES)

    def sized(self, paper: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a problem at the chosen size; `small` replaces some of `paper`."""
        return {**paper, **(small if self.size == "small" else {}), **self.changes}


@dataclass(frozen=True)
class FigureCurve:
    """One curve of a figure: its panel and label, an algorithm, and its options."""

    panel: str
    label: str
    algorithm: str
    options: Mapping[str, Any]
    world: World | None = None


Curves = list[tuple[FigureCurve, Result]]
Write = Callable[[str, Path, Options, Curves], list[Path]]


@dataclass(frozen=True)
class Figure:
    """One figure: the paper's number of runs, its curves, and the function that writes it.

    `has` says which of the options `axis` and `data` the figure supports.
    """

    name: str
    runs: int
    curves: Callable[[Options], list[FigureCurve]]
    write: Write
    has: tuple[str, ...] = ()

    def draw(self, out: Path, options: Options | None = None) -> list[Path]:
        """Draw the figure into a directory and return the paths of all files.

        Finished runs are kept in `out`/runs, so that a second call resumes or only draws.

        Raises
        ------
        KeyboardInterrupt
            If the runs were interrupted.
        """
        given = options or Options()
        self.check(given)
        usual = self.runs if given.size == "paper" else min(self.runs, SMALL_RUNS)
        runs = usual if given.runs is None else integer("runs", given.runs, at_least=1)
        chosen = replace(given, runs=runs)
        curves = self.curves(chosen)
        results = simulated(self.name, curves, chosen, out)
        return self.write(self.name, out, chosen, list(zip(curves, results, strict=True)))

    def check(self, options: Options) -> None:
        """Reject options that this figure does not support."""
        for name in ("axis", "data"):
            given = getattr(options, name)
            if given != getattr(Options(), name) and name not in self.has:
                having = [other.name for other in figures().values() if name in other.has]
                raise TacitError(
                    f"{name} is {str(given)!r}, which {self.name} does not support. Leave it out, "
                    f"or draw one of {', '.join(having)}."
                )


def simulated(
    name: str, curves: Sequence[FigureCurve], options: Options, out: Path
) -> list[Result]:
    """The results of all curves, in their order; curves with equal options are run once."""
    study, places = as_study(name, curves, options)
    digest = hashlib.sha256(json.dumps(study.identity(), sort_keys=True).encode()).hexdigest()
    kept = out / "runs" / f"{name}-{digest[:12]}"
    swept = run_study(study, options.execution, kept)
    if swept.failures:
        failed = swept.failures[0]
        raise TacitError(f"{failed['error']} ({failed['algorithm']}, seed {failed['seed']})")
    if swept.interrupted:
        raise KeyboardInterrupt(f"{len(swept.rows)} of {study.cells} runs; repeat it to resume")
    found = tuple(swept.results())
    return [found[place] for place in places]


def as_study(name: str, curves: Sequence[FigureCurve], options: Options) -> tuple[Study, list[int]]:
    """All runs of a figure as one study, and the configuration of each curve."""
    assert options.runs is not None
    worlds: list[World] = []
    known: dict[str, int] = {}
    found: list[Configuration] = []
    places = []
    how = RunConfig(options.runs, options.seed)
    for curve in curves:
        entry = algorithm(curve.algorithm)
        mine = {key: value for key, value in curve.options.items() if key in entry.options}
        index = None if curve.world is None else _world_index(curve.world, worlds)
        made = configured(entry, entry.name, mine, (index, curve.world), how)
        key = json.dumps(made.described(), sort_keys=True, default=str) + str(index)
        places.append(known.setdefault(key, len(found)))
        if places[-1] == len(found):
            found.append(made)
    digests = tuple(map(pickle_digest, worlds))
    return Study(name, tuple(found), options.seed, options.runs, tuple(worlds), digests), places


def _world_index(world: World, worlds: list[World]) -> int:
    """The place of a world in the list, at its end if it is new."""
    for place, other in enumerate(worlds):
        if other is world:
            return place
    worlds.append(world)
    return len(worlds) - 1


def panels_of(curves: Curves) -> list[Panel]:
    """The panels of a figure, in the order of their first curves."""
    found: dict[str, dict[str, Result]] = {}
    for curve, result in curves:
        found.setdefault(curve.panel, {})[curve.label] = result
    return [Panel(title, results) for title, results in found.items()]


def as_panels(
    name: str,
    out: Path,
    options: Options,
    curves: Curves,
    *,
    title: str = "{name} ({options.runs} runs)",
    **description: str,
) -> list[Path]:
    """`name.png`, `name.csv` (every run) and `name-means.csv` (means and standard errors)."""
    panels, picture = panels_of(curves), out / f"{name}.png"
    tables = write_panels(panels, out, name)
    drawn = [
        replace(panel, results={k: with_bounds(v) for k, v in panel.results.items()})
        for panel in panels
    ]
    smaller = "" if options.size == "paper" else ", smaller than in the paper"
    said = title.format(name=name, options=options) + smaller
    draw_panels(drawn, picture, title=said, **description)
    return [picture, *tables]


_KNOWN: dict[str, Figure] = {}
Listed = Callable[[Options], list[FigureCurve]]


def figure(
    name: str, runs: int, write: Write = as_panels, has: tuple[str, ...] = ()
) -> Callable[[Listed], Listed]:
    """Decorator that registers a function as the curves of a figure."""

    def enter(curves: Listed) -> Listed:
        _KNOWN[name] = Figure(name, runs, curves, write, has)
        return curves

    return enter


@cache
def figures() -> Mapping[str, Figure]:
    """All figures by name."""
    for module in MODULES:
        import_module(f"tacit.papers.figures.{module}")
    return _KNOWN


def lookup(name: str) -> Figure:
    """The figure of a name; an unknown name raises an error that lists all."""
    one_of("figure", name, figures())
    return figures()[name]
