"""A device's part in the local model: it adds all of the noise to its numbers before sending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from tacit.aggregation.local import ROLE, LocalRound, encrypt_report
from tacit.client.choices import numbers_of
from tacit.client.entries import OpenParticipation
from tacit.client.trust_models.contract import Reporter
from tacit.sampling.draws import HALF, draw_laplace, flip_response
from tacit.terms import Pinned
from tacit.terms.parts import DISCRETE_LAPLACE, RANDOMIZED_RESPONSE, UNARY_ENCODING


class LocalReporter(Reporter):
    """Adds discrete Laplace noise to levels, or randomizes a bit or the cells of a table; exactly.

    The ledger stores the encrypted report before anything is sent, so noise is drawn once per
    participation: a resend has the same bytes.
    """

    description = LocalRound

    def encode(self, participation: OpenParticipation) -> Mapping[int, bytes]:
        """The encrypted noisy numbers, for the only server."""
        assert participation.levels is not None
        pinned = participation.pinned
        announced = self.announced(pinned, participation.announcement)
        assert isinstance(announced, LocalRound)
        draw = _DRAWS[pinned.terms.distribution(announced.binding.chosen)]
        noise = [draw(announced.noise.total) for _ in range(announced.length)]  # before any level
        exact = numbers_of(pinned.terms, announced.binding, participation.levels)
        numbers = [add(number) for add, number in zip(noise, exact, strict=True)]
        return {
            ROLE: encrypt_report(pinned, participation.announcement, participation.slot, numbers)
        }

    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:  # noqa: ARG002
        """False: an aborted round refunds nothing, because one server could lie about it."""
        return False


def _response(parameter: Fraction) -> Callable[[int], int]:
    """Randomized response on one bit, at ε = 1/parameter."""
    flip = flip_response(1 / parameter)
    return lambda level: level ^ flip


def _unary(parameter: Fraction) -> Callable[[int], int]:
    """Optimized unary encoding of one cell of a table, at ε = 2/parameter.

    The participant's cell is a fair coin, every other one is 1 with probability 1 / (1 + e^ε).
    """
    other, own = int(flip_response(2 / parameter)), int(HALF.flip())
    return lambda cell: own if cell else other


def _laplace(scale: Fraction) -> Callable[[int], int]:
    """Discrete Laplace noise of this scale."""
    noise = draw_laplace(scale.numerator, scale.denominator)
    return lambda level: level + noise


_DRAWS = {
    RANDOMIZED_RESPONSE: _response,
    UNARY_ENCODING: _unary,
    DISCRETE_LAPLACE: _laplace,
}
