"""Replay of recorded rewards, sampled with replacement from one list per option.

`Replay` takes any rewards in [0, 1]. It simulates fresh participants with the recorded rewards'
distribution and gives the recorded participants no guarantee; `recorded.py` uses each row once.
`read_mslr` builds one from the MSLR-WEB10K learning-to-rank data (CZ23 Section 7): query-document
pairs are clustered by their features, a cluster is an arm, relevance labels 0 to 4 are rewards. The
data set is Microsoft's; `docs/reference/data.md` says where to get it.
"""

from __future__ import annotations

import array
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.assumptions import ParticipantsFrom, Source
from tacit.environments.contract import Environment
from tacit.errors import TacitError, integer
from tacit.types import Floats, Levels

FEATURES = 136
FEATURE_NUMBERS = range(1, FEATURES + 1)
LARGEST_LABEL = 4


def option_names(count: int) -> tuple[str, ...]:
    """Default names of options.

    >>> option_names(2)
    ('option 1', 'option 2')
    """
    return tuple(f"option {number}" for number in range(1, count + 1))


@dataclass(frozen=True, eq=False)
class Replay(Environment):
    """Rewards sampled with replacement from each arm's recorded ones.

    Parameters
    ----------
    values : tuple of arrays
        The values that each arm's reward takes.
    weights : tuple of arrays
        Their probabilities.
    clipped : int
        The number of rewards that were clipped to [0, 1].
    names : tuple of str
        The options' names.
    rows : int
        The number of recorded rewards of all options.

    Examples
    --------
    >>> replay = Replay.of([[0, 1, 1, 1], [0.5, 0.5]])
    >>> replay.means, replay.binary
    (array([0.75, 0.5 ]), False)
    """

    values: tuple[Floats, ...]
    weights: tuple[Floats, ...]
    clipped: int = 0
    names: tuple[str, ...] = ()
    rows: int = 0  # recorded outcomes of all options

    horizon: ClassVar[int | None] = None  # unlimited
    participations: ClassVar[int | None] = None  # unlimited
    remark: ClassVar[ParticipantsFrom] = ParticipantsFrom(Source.RESAMPLED, 0)

    @cached_property
    def means(self) -> Floats:
        """The recorded means."""
        return np.array([float(v @ w) for v, w in zip(self.values, self.weights, strict=True)])

    @cached_property
    def binary(self) -> bool:  # type: ignore[override]
        """Whether every recorded reward is 0 or 1."""
        return all(np.all((v == 0) | (v == 1)) for v in self.values)

    @classmethod
    def of(
        cls, columns: Sequence[npt.ArrayLike], *, clip: bool = False, names: Sequence[str] = ()
    ) -> Replay:
        """An environment from one list of rewards per arm, with default names unless given.

        With `clip`, rewards outside [0, 1] are clipped and counted; otherwise they are rejected.

        Parameters
        ----------
        columns : sequence of arrays
            The rewards of each arm.
        clip : bool
            Whether to clip and count rewards outside [0, 1] instead of rejecting them.
        names : sequence of str
            The options' names; by default option 1, option 2, ….

        Returns
        -------
        Replay
            The environment.
        """
        if len(columns) < 2:
            raise TacitError(
                f"the table has {len(columns)} arm(s): must have two or more. Add a column of "
                "rewards for each."
            )
        arrays = [np.asarray(column, dtype=float) for column in columns]
        outside = 0
        for arm, column in enumerate(arrays):
            if column.ndim != 1 or not len(column) or not np.all(np.isfinite(column)):
                raise TacitError(f"rewards of arm {arm} must be a non-empty list of numbers")
            wrong = (column < 0) | (column > 1)
            if wrong.any() and not clip:
                raise TacitError(
                    f"arm {arm} has {int(wrong.sum())} reward(s) outside [0, 1], such as "
                    f"{column[wrong][0]:g}. Rescale them, or clip them (clip)."
                )
            outside += int(wrong.sum())
        tables = [np.unique(np.clip(column, 0.0, 1.0), return_counts=True) for column in arrays]
        return cls(
            tuple(values for values, _ in tables),
            tuple(counts / counts.sum() for _, counts in tables),
            outside,
            tuple(names) or option_names(len(columns)),
            sum(len(column) for column in arrays),
        )

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """Recorded rewards, sampled with replacement."""
        return rng.choice(self.values[arm], size=users, p=self.weights[arm])

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """One multinomial sample over distinct rewards, then one binomial each for the rounding."""
        counts = rng.multinomial(users, self.weights[arm])
        scaled = self.values[arm] * precision
        lower = np.floor(scaled).astype(np.int64)
        up = rng.binomial(counts, scaled - lower)
        return Levels(
            np.concatenate([lower, np.minimum(lower + 1, precision)]),
            np.concatenate([counts - up, up]),
        )


def read_mslr_rows(path: Path) -> Iterator[tuple[int, int, Floats]]:
    """(label, query, features) of each line of an official fold file: `rel qid:… 1:… … 136:…`."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            text = line.split("#", 1)[0].split()
            if not text:
                continue
            try:
                label = int(text[0])
                prefix, query = text[1].split(":")
                features = np.zeros(FEATURES)
                for item in text[2:]:
                    index, value = item.split(":")
                    features[FEATURE_NUMBERS.index(int(index))] = float(value)
                if prefix != "qid" or not np.all(np.isfinite(features)):
                    raise ValueError(line)
                number_of_query = int(query)
            except (ValueError, IndexError) as error:
                raise TacitError(
                    f"{path.name} line {number} is not of the form 'rel qid:… 1:… … {FEATURES}:…'. "
                    "Give a fold file of MSLR-WEB10K."
                ) from error
            if not 0 <= label <= LARGEST_LABEL:
                raise TacitError(
                    f"{path.name} line {number} has relevance {label}: must be 0 to "
                    f"{LARGEST_LABEL}. Give a fold file of MSLR-WEB10K."
                )
            yield label, number_of_query, features


def check_fold(path: Path) -> None:
    """Reject a path at which there is no file."""
    if not path.exists():
        raise TacitError(
            f"{path} does not exist. Download MSLR-WEB10K (see docs/reference/data.md) and give "
            "a fold file, such as Fold1/train.txt."
        )


def check_enough(path: Path, count: int, what: str, wanted: int, parts: str) -> None:
    """Reject a fold file with too few rows, documents or queries."""
    if count < wanted:
        raise TacitError(
            f"{path.name} has {count} {what}, fewer than {wanted} {parts}. Use fewer {parts}, or a "
            "larger file."
        )


def read_mslr(path: Path, arms: int = 50, seed: int = 0) -> Replay:
    """MSLR-WEB10K as a bandit: K-means clusters of features are arms, labels / 4 are rewards.

    Parameters
    ----------
    path : Path
        A file of the data set in LETOR format.
    arms : int
        The number of clusters.
    seed : int
        The seed of the clustering.

    Returns
    -------
    Replay
        One arm per cluster that is not empty.
    """
    from scipy.cluster.vq import kmeans2  # slow to import

    check_fold(path)
    count = integer("arms", arms, at_least=2)
    # a fold has 700,000 rows: use one buffer in single precision
    relevance, flat = array.array("d"), array.array("f")
    for label, _, row in read_mslr_rows(path):
        relevance.append(label / LARGEST_LABEL)
        flat.extend(row.tolist())
    check_enough(path, len(relevance), "rows", count, "arms")
    labels = np.array(relevance)
    features = np.frombuffer(flat, dtype=np.float32).reshape(-1, FEATURES)
    distinct = len({hash(row.tobytes()) for row in features})
    check_enough(path, distinct, "different documents", count, "arms")
    spread = features.std(axis=0, dtype=float)
    scaled = (
        (features - features.mean(axis=0, dtype=float)) / np.where(spread > 0, spread, 1.0)
    ).astype(np.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")  # dropped below
        _, cluster = kmeans2(
            scaled, count, iter=20, minit="++", seed=np.random.default_rng(seed), missing="warn"
        )
    columns = [labels[cluster == arm] for arm in range(count)]
    return Replay.of([column for column in columns if len(column)])
