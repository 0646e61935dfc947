"""Every named algorithm: where it comes from, whom it trusts, what it promises.

A paper's module registers its algorithms here; the command line lists them and looks them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tacit.checks import TacitError

Family = Literal["arms", "linear", "federated"]


@dataclass(frozen=True)
class Entry:
    """One named algorithm."""

    name: str
    family: Family
    paper: str
    trust: str
    promise: str


CATALOGUE: dict[str, Entry] = {}


def register(*entries: Entry) -> None:
    """Adds algorithms; a name is taken once."""
    for entry in entries:
        if entry.name in CATALOGUE:
            raise TacitError(f"the name {entry.name} is taken")
        CATALOGUE[entry.name] = entry


def lookup(name: str) -> Entry:
    """The entry of a name, or an error that lists the names."""
    if name not in CATALOGUE:
        raise TacitError(
            f"algorithm is {name!r}; known are {', '.join(sorted(CATALOGUE))} (see: tacit "
            "algorithms)"
        )
    return CATALOGUE[name]
