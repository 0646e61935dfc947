"""The registry of figures: `lookup(name).draw(out)` draws any of them.

A figure consists of a function that runs its simulations and one that writes its plot and data.
`as_panels` writes the most common kind, panels of regret over time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tacit.errors import TacitError, integer
from tacit.papers.bounds import with_bound
from tacit.simulation.pictures import Panel, draw_panels, write_panels

Axis = Literal["paper", "equal"]
MODULES = ("arms", "lzj22", "zc24")


@dataclass(frozen=True)
class Options:
    """Options of a figure; None means as in the paper.

    `size` holds further options of the figure's problems, such as fewer actions.
    """

    runs: int | None = None
    axis: Axis = "paper"
    data: Path | None = None
    progress: bool = False
    workers: int | None = None
    seed: int = 0
    horizon: int | None = None
    size: Mapping[str, Any] = field(default_factory=dict)

    def asked(self, **paper: Any) -> dict[str, Any]:
        """The options of a simulation; `paper` is its size in the paper."""
        horizon = {} if self.horizon is None else {"horizon": self.horizon}
        names = ("runs", "seed", "progress", "workers")
        asked = {name: getattr(self, name) for name in names}
        return {**paper, **self.size, **horizon, **asked, "whole": True}


Write = Callable[[str, Path, Options, Any], list[Path]]


@dataclass(frozen=True)
class Figure:
    """One figure: the paper's number of runs, and the functions that run and write it.

    `has` says which of the options `axis` and `data` the figure supports.
    """

    name: str
    runs: int
    run: Callable[[Options], Any]
    write: Write
    has: tuple[str, ...] = ()

    def draw(self, out: Path, options: Options | None = None) -> list[Path]:
        """Draw the figure into a directory and return the paths of all files."""
        given = options or Options()
        self.check(given)
        runs = self.runs if given.runs is None else integer("runs", given.runs, at_least=1)
        chosen = replace(given, runs=runs)
        return self.write(self.name, out, chosen, self.run(chosen))

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


def as_panels(
    name: str,
    out: Path,
    options: Options,
    panels: list[Panel],
    *,
    title: str = "{name} ({options.runs} runs)",
    **words: str,
) -> list[Path]:
    """`name.png`, `name.csv` (every run) and `name-means.csv` (means and standard errors)."""
    picture = out / f"{name}.png"
    tables = write_panels(panels, out, name)
    drawn = [
        replace(panel, results={k: with_bound(v) for k, v in panel.results.items()})
        for panel in panels
    ]
    draw_panels(drawn, picture, title=title.format(name=name, options=options), **words)
    return [picture, *tables]


_KNOWN: dict[str, Figure] = {}


def figure(
    name: str, runs: int, write: Write = as_panels, has: tuple[str, ...] = ()
) -> Callable[[Callable[[Options], Any]], Callable[[Options], Any]]:
    """Decorator that registers a function as the simulations of a figure."""

    def enter(run: Callable[[Options], Any]) -> Callable[[Options], Any]:
        _KNOWN[name] = Figure(name, runs, run, write, has)
        return run

    return enter


@cache
def figures() -> Mapping[str, Figure]:
    """All figures by name."""
    for module in MODULES:
        import_module(f"tacit.papers.figures.{module}")
    return _KNOWN


def lookup(name: str) -> Figure:
    """The figure of a name; an unknown name raises an error that lists all."""
    if name not in figures():
        raise TacitError(f"figure is {name!r}: must be one of {', '.join(figures())}.")
    return figures()[name]
