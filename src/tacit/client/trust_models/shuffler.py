"""A device's part with a shuffler: noisy bits or split shares, encrypted twice.

Each message is encrypted to the analyzer, and all messages of a report together to the shuffler.
Noise is drawn exactly, from the operating system's randomness (`tacit.sampling`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.aggregation.announcements import accept
from tacit.aggregation.shuffler import BIT, ShufflerRound, wrap
from tacit.aggregation.two_servers import aborted_by_both
from tacit.aggregation.wire import number_size
from tacit.client.choices import numbers_of
from tacit.client.entries import OpenParticipation
from tacit.client.trust_models.contract import Reporter
from tacit.errors import Rejected, require
from tacit.sampling.certificates import PureShuffleParameters, lookup
from tacit.sampling.coins import additive_shares
from tacit.sampling.draws import draw_certified_ones, draw_laplace_share, ones
from tacit.terms import Pinned
from tacit.terms.parts import CERTIFIED_POLYA
from tacit.trust import View


class ShufflerReporter(Reporter):
    """Draws a share of the noise and sends separate messages through the shuffler."""

    description, view = ShufflerRound, View.SHUFFLED

    def announced(self, pinned: Pinned, announcement: bytes) -> ShufflerRound:
        """Parse a signed round; its messages must be as wide as their numbers, no wider."""
        found = accept(ShufflerRound, pinned, announcement)
        size = number_size(found.metrics * found.modulus)
        require(found.size == size, "size of a message", found.size, f"{size} bytes", Rejected)
        return found

    def encode(self, participation: OpenParticipation) -> Mapping[int, bytes]:
        """The slot, and all messages encrypted to the shuffler."""
        assert participation.levels is not None
        announced = self.announced(participation.pinned, participation.announcement)
        terms, proven = participation.pinned.terms, None
        if terms.noise.distribution == CERTIFIED_POLYA:
            proven = lookup(
                announced.noise.divisor, terms.per_metric_target[0]
            ).certificate.parameters
        numbers = [
            label * announced.modulus + number
            for label, level in enumerate(
                numbers_of(terms, announced.binding, participation.levels)
            )
            for number in randomized(announced, level, proven)
        ]
        messages = [number.to_bytes(announced.size, "big") for number in numbers]
        helper = terms.helper
        assert helper is not None
        report = wrap(participation.pinned, participation.announcement, messages)
        return {helper: participation.slot.encode() + report}

    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:
        """Both parties signed that they aborted."""
        return aborted_by_both(pinned, announcement, outcomes, self.description)


def randomized(
    announced: ShufflerRound, level: int, proven: PureShuffleParameters | None = None
) -> list[int]:
    """The numbers of one metric: ones and zeros, or additive shares of the noisy level.

    `proven` are the parameters of certified shares, where the terms state such noise.
    """
    parts = announced.messages // announced.metrics
    divisor, total = announced.noise.divisor, announced.noise.total
    if proven is not None:
        count = draw_certified_ones(proven)(level)
        return [1] * count + [0] * (parts - count)
    if announced.modulus == BIT:
        count = level + ones(parts - announced.binding.levels, total).draw()
        return [1] * count + [0] * (parts - count)
    noisy = level + draw_laplace_share(total, divisor)
    return additive_shares(noisy, parts, announced.modulus)
