"""Options that several commands share, and whether anyone is watching."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class SettingChoice(StrEnum):
    """Whose constants."""

    tight = "tight"
    paper = "paper"


class RewardChoice(StrEnum):
    """What rewards look like."""

    bernoulli = "bernoulli"
    gaussian = "gaussian"
    beta = "beta"


class TrustChoice(StrEnum):
    """Who is trusted, for private-klucb."""

    secagg = "secagg"
    shuffle = "shuffle"
    central = "central"
    local = "local"


class IndexChoice(StrEnum):
    """The index of private-klucb."""

    chernoff = "chernoff"
    variance = "variance"


class AxisChoice(StrEnum):
    """What an epsilon in a figure means."""

    paper = "paper"
    equal = "equal"


Epsilon = Annotated[float, typer.Option(help="Epsilon of the guarantee.")]
Delta = Annotated[float | None, typer.Option(help="Delta of the guarantee; none for a pure one.")]
Arms = Annotated[int, typer.Option(help="Number of arms of a random instance.")]
Instance = Annotated[
    str, typer.Option(help="Random instance: easy (means in [0.25, 0.75]) or hard ([0.45, 0.55]).")
]
Means = Annotated[
    str | None,
    typer.Option(help="Means of the arms, comma-separated, instead of a random instance."),
]
Rewards = Annotated[RewardChoice, typer.Option(help="Law of the rewards.")]
Horizon = Annotated[float, typer.Option(help="Number of users.")]
Growth = Annotated[float, typer.Option(help="Growth of batches in successive elimination.")]
Runs = Annotated[int, typer.Option(help="Number of runs.")]
Seed = Annotated[int, typer.Option(help="First seed; run r has seed + r.")]
SettingOption = Annotated[
    SettingChoice,
    typer.Option(help="tight: exact calibration and radii; paper: printed constants."),
]
TrustOption = Annotated[TrustChoice, typer.Option(help="private-klucb: who is trusted.")]
IndexOption = Annotated[
    IndexChoice,
    typer.Option(
        help="private-klucb: rigorous bound, or a tighter one that is Gaussian in its tails."
    ),
]
Dropout = Annotated[
    float,
    typer.Option(
        help="Fraction of users who may drop out of a batch; shares are made so that the "
        "guarantee holds."
    ),
]
Out = Annotated[Path | None, typer.Option(help="Directory for a tidy CSV of every run.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def interactive() -> bool:
    """Whether progress bars have someone to look at them."""
    return sys.stderr.isatty()
