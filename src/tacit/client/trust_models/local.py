"""A device's part in the local model: it adds all of the noise to its numbers before sending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from tacit.aggregation.local import ROLE, LocalRound, encrypt_report
from tacit.client.entries import Running
from tacit.client.trust_models.contract import Reporter
from tacit.sampling.draws import draw_laplace, flip_response
from tacit.terms import Pinned
from tacit.terms.parts import RANDOMIZED_RESPONSE


class LocalReporter(Reporter):
    """Flips bits by randomized response, or adds discrete Laplace noise to levels; exactly.

    The ledger stores the encrypted report before anything is sent, so noise is drawn once per
    participation: a resend has the same bytes.
    """

    description = LocalRound

    def encode(self, running: Running) -> Mapping[int, bytes]:
        """The encrypted noisy numbers, for the only server."""
        assert running.levels is not None
        pinned = running.pinned
        announced = self.announced(pinned, running.announcement)
        assert isinstance(announced, LocalRound)
        draw = _response if pinned.terms.noise.distribution == RANDOMIZED_RESPONSE else _laplace
        noise = [draw(announced.noise.total) for _ in running.levels]  # before levels are read
        numbers = [add(level) for add, level in zip(noise, running.levels, strict=True)]
        return {ROLE: encrypt_report(pinned, running.announcement, running.slot, numbers)}

    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:  # noqa: ARG002
        """Nothing: a report is private by itself, and only one server could say so."""
        return False


def _response(parameter: Fraction) -> Callable[[int], int]:
    """Randomized response on one bit, at ε = 1/parameter."""
    flip = flip_response(1 / parameter)
    return lambda level: level ^ flip


def _laplace(scale: Fraction) -> Callable[[int], int]:
    """Discrete Laplace noise of this scale."""
    noise = draw_laplace(scale.numerator, scale.denominator)
    return lambda level: level + noise
