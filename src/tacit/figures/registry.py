"""Every figure that can be drawn, by name, with one call for all: `lookup(name).draw(out)`.

A figure is a function that runs what it shows, and one that writes a picture and its data. Most
show panels of regret over time; `as_panels` writes those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tacit.errors import TacitError, integer
from tacit.simulation.pictures import Panel, draw_panels, write_panels

Axis = Literal["paper", "equal"]
MODULES = ("arms", "lzj22", "zc24")


@dataclass(frozen=True)
class Options:
    """What a user may change about a figure; what is None is as in the paper.

    `size` are further options of the figure's problems, such as fewer actions.
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
        """The options of a simulation whose size in the paper is this."""
        horizon = {} if self.horizon is None else {"horizon": self.horizon}
        names = ("runs", "seed", "progress", "workers")
        asked = {name: getattr(self, name) for name in names}
        return {**paper, **self.size, **horizon, **asked, "whole": True}


Write = Callable[[str, Path, Options, Any], list[Path]]


@dataclass(frozen=True)
class Figure:
    """One figure: how many runs the paper has, what is run, how that is written, and which of
    `axis` and `data` it has.
    """

    name: str
    runs: int
    run: Callable[[Options], Any]
    write: Write
    has: tuple[str, ...] = ()

    def draw(self, out: Path, options: Options | None = None) -> list[Path]:
        """Draws it into a directory; the paths of all files."""
        given = options or Options()
        self.check(given)
        runs = self.runs if given.runs is None else integer("runs", given.runs, at_least=1)
        chosen = replace(given, runs=runs)
        return self.write(self.name, out, chosen, self.run(chosen))

    def check(self, options: Options) -> None:
        """Refuses what this figure does not have: nobody should believe that it was used."""
        for name in ("axis", "data"):
            given = getattr(options, name)
            if given != getattr(Options(), name) and name not in self.has:
                having = [other.name for other in figures().values() if name in other.has]
                raise TacitError(
                    f"{name} is {str(given)!r}, which {self.name} does not have: leave it out, or "
                    f"draw one of {', '.join(having)}"
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
    draw_panels(panels, picture, title=title.format(name=name, options=options), **words)
    return [picture, *tables]


_KNOWN: dict[str, Figure] = {}


def figure(
    name: str, runs: int, write: Write = as_panels, has: tuple[str, ...] = ()
) -> Callable[[Callable[[Options], Any]], Callable[[Options], Any]]:
    """Enters a function that runs what a figure shows under a name."""

    def enter(run: Callable[[Options], Any]) -> Callable[[Options], Any]:
        _KNOWN[name] = Figure(name, runs, run, write, has)
        return run

    return enter


@cache
def figures() -> Mapping[str, Figure]:
    """All of them by name."""
    for module in MODULES:
        import_module(f"tacit.figures.{module}")
    return _KNOWN


def lookup(name: str) -> Figure:
    """The figure of a name, or an error that lists all."""
    if name not in figures():
        raise TacitError(f"figure is {name!r}; known are {', '.join(figures())}")
    return figures()[name]
