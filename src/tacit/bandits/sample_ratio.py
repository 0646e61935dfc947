"""Sample ratio mismatch (SRM) test: whether all options have the same response rate.

Some participants of concurrent rounds never report. If that is independent of the option, one
option's reports are a sample without replacement from all participants who were asked. Given the
total number of reports, their number r is hypergeometric. The expectation of e^{δr} is then at most
that under a binomial distribution (Hoeffding 1963, Theorem 4). So

    e^{δr} / (1 - s + s e^δ)^R

(r of R reports, s the option's share of those who were asked) has expectation at most 1. The same
holds for its product over rounds and for the mixture over fixed δ and options. The mixture ever
reaches 1/p with probability at most p (Ville's inequality): the test is anytime-valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.types import Floats

TILTS = np.array([sign * size for size in (0.01, 0.03, 0.1, 0.3, 1.0) for sign in (1, -1)])
ALARM = 1e-3


@dataclass(frozen=True)
class SampleRatio:
    """Result of the SRM test; `p` is an anytime-valid p-value.

    A mismatch means that options cause drop-out, or that a component counts wrongly. Estimates then
    describe only the participants who stayed.
    """

    p: float

    @property
    def mismatch(self) -> bool:
        """Whether p is below 1/1000, the test's false positive rate per experiment."""
        return self.p < ALARM


class ResponseRates:
    """The accumulated SRM evidence of one experiment, per option."""

    def __init__(self) -> None:
        self._exponents: dict[int, Floats] = {}
        self._largest = 0.0

    def add(self, held: Sequence[tuple[int, int, int]], first: int) -> None:
        """Add concurrent rounds as (option, asked, reported).

        `first` is the number of initial options. Rounds in which every participant reported carry
        no information.
        """
        asked, came = (sum(entry[place] for entry in held) for place in (1, 2))
        if not 0 < came < asked:
            return
        for option in {entry[0] for entry in held}:
            own = [entry for entry in held if entry[0] == option]
            share = sum(entry[1] for entry in own) / asked
            arrived = sum(entry[2] for entry in own)
            if share < 1:
                grown = came * np.log1p(share * np.expm1(TILTS))
                before = self._exponents.get(option, np.zeros(len(TILTS)))
                self._exponents[option] = before + TILTS * arrived - grown
        self._largest = max(self._largest, self._evidence(first))

    def _evidence(self, first: int) -> float:
        """ln of the mixture: initial options share one half, later ones divide the rest."""
        terms, left = [], 1.0
        for option, exponents in self._exponents.items():
            late = option - first + 1
            part = 1 / (2 * first) if late <= 0 else 1 / (2 * late * (late + 1))
            terms.append(math.log(part / len(TILTS)) + np.logaddexp.reduce(exponents))
            left -= part
        return float(np.logaddexp.reduce([*terms, math.log(left)]))

    def result(self) -> SampleRatio:
        """The test's current result."""
        return SampleRatio(math.exp(-self._largest))

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        exponents = [[key, value.tolist()] for key, value in self._exponents.items()]
        return {"exponents": exponents, "largest": self._largest}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ResponseRates:
        """The state that `to_dict` serialised."""
        ratios = cls()
        ratios._exponents = {key: np.array(value) for key, value in data["exponents"]}
        ratios._largest = data["largest"]
        return ratios
