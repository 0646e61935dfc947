"""Exact draws use the operating system's randomness only and are independent of each other."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from tests.noise.distributions import DRAWABLE
from tests.source import stream

EACH = pytest.mark.parametrize("name", DRAWABLE)
COUNT = 2000


@EACH
def test_draws_use_operating_system_randomness_only(name: str) -> None:
    distribution, made = DRAWABLE[name], []
    for seed, source in ((1, "one"), (2, "one"), (1, "other")):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global state that a device must not use
        with stream(source):
            made.append(
                [[distribution.draw() for _ in range(200)], distribution.draw(200).tolist()]
            )
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]
    assert made[0][1] != made[2][1]


@EACH
def test_draws_are_independent_of_earlier_ones(name: str) -> None:
    distribution, made = DRAWABLE[name], []
    for before in ("these", "those"):
        with stream(before):
            distribution.draw()
            distribution.draw(50)
        with stream("now"):
            made.append((distribution.draw(), distribution.draw(50).tolist()))
    assert made[0] == made[1]


@EACH
def test_neighbouring_draws_are_not_correlated(name: str) -> None:
    """One by one and in bulk, at lags 1 to 3; 7 standard errors, false-alarm rate below 1e-9 for
    distributions near normal. Distributions that are almost always zero are drawn from more often.
    """
    distribution = DRAWABLE[name]
    rare = 1 - float(distribution.pmf(np.array([round(distribution.mean)]))[0])
    for values in (
        [distribution.draw() for _ in range(COUNT)],
        distribution.draw(math.ceil(COUNT / rare)),
    ):
        centred = np.asarray(values, dtype=float) - float(distribution.mean)
        for lag in (1, 2, 3):
            found = float(centred[lag:] @ centred[:-lag]) / float(centred @ centred)
            assert abs(found) < 7 / math.sqrt(rare * len(centred))
