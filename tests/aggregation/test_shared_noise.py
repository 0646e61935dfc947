"""Announced noise shares in round descriptions: limits, also for bytes of a malicious server."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tacit.aggregation import wire
from tacit.aggregation.announcements import SharedNoise
from tacit.errors import TacitError

LARGE = 1 << 1000
REJECTED: list[tuple[Any, Any, str]] = [
    (0, Fraction(1), "divisor is 0: must be"),
    (-1, Fraction(1), "divisor is -1: must be"),
    (1.5, Fraction(1), r"divisor is 1\.5: must be"),
    (1 << 32, Fraction(1), "share divisor is 4294967296: must be below"),
    (1, Fraction(0), "total noise is 0: must be above 0"),
    (1, Fraction(-1, 2), "total noise is -1/2: must be above 0"),
    (1, Fraction(LARGE), "total noise is .*: must be above 0 and below"),
    (1, Fraction(1, LARGE), "total noise is .*: must be .* with such a denominator"),
]


@pytest.mark.parametrize(("divisor", "total", "words"), REJECTED)
def test_noise_parameters_out_of_range_are_rejected(divisor: Any, total: Any, words: str) -> None:
    with pytest.raises(TacitError, match=words):
        SharedNoise(divisor, total)


@pytest.mark.parametrize("divisor", [1, (1 << 32) - 1])
@pytest.mark.parametrize("total", [Fraction(1, LARGE - 1), Fraction(5, 2), Fraction(LARGE - 1)])
def test_noise_parameters_in_range_round_trip(divisor: int, total: Fraction) -> None:
    noise = SharedNoise(divisor, total)
    assert SharedNoise.first(noise.encode() + b"rest") == (noise, b"rest")


def test_encoded_noise_out_of_range_is_rejected_on_decoding() -> None:
    four = bytes(3) + b"\1"
    assert SharedNoise.first(four + wire.pack_fraction(Fraction(2))) == (
        SharedNoise(1, Fraction(2)),
        b"",
    )
    for divisor, total in ((bytes(4), Fraction(2)), (four, Fraction(LARGE))):
        with pytest.raises(TacitError, match=r"(divisor|total noise) is"):
            SharedNoise.first(divisor + wire.pack_fraction(total))
