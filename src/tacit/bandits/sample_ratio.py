"""The sample-ratio check: do reports come back from every option alike?

Of the participants of rounds held side by side some never report. If that has nothing to do with
the option, the reports of one are drawn from all who were asked, without replacement: given how
many came, their number is hypergeometric, and e^{δr} is at most its expectation under a binomial
law on average (Hoeffding 1963, Theorem 4). So

    e^{δr} / (1 - s + s e^δ)^R

(r of R reports, a share s of those who were asked) is worth at most 1 on average, as is its product
over rounds and the mixture over fixed δ and options. It ever reaches 1/p with probability p at most
(Ville's inequality), whenever somebody looks.
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
    """How surprising the shares of reports are that came back: `p` holds at all rounds at once.

    A mismatch means that options make people drop out, or that something counts wrongly; the
    estimates are then of those who stayed.
    """

    p: float

    @property
    def mismatch(self) -> bool:
        """Whether the shares are off beyond what chance does once in a thousand experiments."""
        return self.p < ALARM


class Ratios:
    """The evidence of one experiment, option by option."""

    def __init__(self) -> None:
        self._exponents: dict[int, Floats] = {}
        self._largest = 0.0

    def add(self, held: Sequence[tuple[int, int, int]], first: int) -> None:
        """Rounds that were held side by side as (option, asked, came); `first` options were there
        at the start. Where everybody came there is nothing to test.
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
        """ln of the mixture: options of the start share one half, later ones a part of the rest."""
        terms, left = [], 1.0
        for option, exponents in self._exponents.items():
            late = option - first + 1
            part = 1 / (2 * first) if late <= 0 else 1 / (2 * late * (late + 1))
            terms.append(math.log(part / len(TILTS)) + np.logaddexp.reduce(exponents))
            left -= part
        return float(np.logaddexp.reduce([*terms, math.log(left)]))

    def result(self) -> SampleRatio:
        """What is known so far."""
        return SampleRatio(math.exp(-self._largest))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        exponents = [[key, value.tolist()] for key, value in self._exponents.items()]
        return {"exponents": exponents, "largest": self._largest}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ratios:
        """The reverse."""
        ratios = cls()
        ratios._exponents = {key: np.array(value) for key, value in data["exponents"]}
        ratios._largest = data["largest"]
        return ratios
