"""A device's part with a shuffler: noisy bits or split shares, encrypted twice.

Each message is encrypted to the analyzer, and all messages of a report together to the shuffler.
Noise is drawn exactly, from the operating system's randomness (`tacit.sampling`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tacit.aggregation.announcements import accept
from tacit.aggregation.shuffler import BIT, ShufflerRound, wrap
from tacit.aggregation.two_servers import RoundOutcome, read_outcome
from tacit.aggregation.wire import number_size
from tacit.client.entries import Running
from tacit.client.trust_models.contract import Reporter
from tacit.errors import Refusal, require
from tacit.sampling.coins import below
from tacit.sampling.draws import draw_laplace_share, ones
from tacit.terms import Pinned, Terms
from tacit.trust import View


class ShufflerReporter(Reporter):
    """Draws a share of the noise and sends separate messages through the shuffler."""

    description = ShufflerRound

    def announced(self, pinned: Pinned, announcement: bytes) -> ShufflerRound:
        """Parse a signed round; its messages must be as wide as their numbers, no wider."""
        found = accept(ShufflerRound, pinned, announcement)
        size = number_size(found.metrics * found.modulus)
        require(found.size == size, "size of a message", found.size, f"{size} bytes", Refusal)
        return found

    def check_terms(self, terms: Terms) -> None:
        """The guarantee must be about shuffled messages."""
        rule = f"{View.SHUFFLED.value} with a shuffler"
        require(terms.view is View.SHUFFLED, "view", terms.view.value, rule, Refusal)

    def least_cost(self, terms: Terms) -> Fraction:
        """An equal part of ε."""
        return terms.cost

    def encode(self, running: Running) -> Mapping[int, bytes]:
        """The slot, and all messages encrypted to the shuffler."""
        assert running.levels is not None
        announced = self.announced(running.pinned, running.announcement)
        numbers = [
            label * announced.modulus + number
            for label, level in enumerate(running.levels)
            for number in randomized(announced, level)
        ]
        messages = [number.to_bytes(announced.size, "big") for number in numbers]
        helper = running.pinned.terms.helper
        assert helper is not None
        report = wrap(running.pinned, running.announcement, messages)
        return {helper: running.slot.encode() + report}

    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:
        """Both parties signed that they aborted."""
        announced = accept(ShufflerRound, pinned, announcement)
        said = {read_outcome(pinned, announced, message) for message in outcomes}
        return {(0, RoundOutcome.ABORTED), (1, RoundOutcome.ABORTED)} <= said


def randomized(announced: ShufflerRound, level: int) -> list[int]:
    """The numbers of one metric: ones and zeros, or additive shares of the noisy level."""
    parts = announced.messages // announced.metrics
    divisor, total = announced.noise.divisor, announced.noise.total
    if announced.modulus == BIT:
        count = level + ones(parts - announced.binding.levels, total).draw()
        return [1] * count + [0] * (parts - count)
    modulus = announced.modulus
    shares = [below(modulus) for _ in range(parts - 1)]
    noisy = level + draw_laplace_share(total, divisor)
    return [*shares, (noisy - sum(shares)) % modulus]
