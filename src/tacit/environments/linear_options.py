"""Options with public features whose mean rewards are linear in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.environments.synthetic import Bernoulli
from tacit.errors import TacitError
from tacit.types import Floats

LINEAR = "linear"  # the name of its random instance
DIMENSIONS = 5  # features of a random instance
LOWEST, HIGHEST = 0.25, 0.75  # means of a random instance, as of the instance "easy"


@dataclass(frozen=True, eq=False)
class LinearOptions(Bernoulli):
    """Bernoulli rewards of options with features, one row of `features` per option.

    >>> LinearOptions((0.2, 0.4, 0.6), np.array([[1.0], [2.0], [3.0]])).features.shape
    (3, 1)
    """

    features: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.features) != len(self.probabilities):
            raise TacitError(
                f"features have {len(self.features)} rows: must have {len(self.probabilities)}, "
                "one for each option"
            )


def linear_options(arms: int, seed: int) -> LinearOptions:
    """A random instance: features uniform on the sphere, means linear in them.

    >>> world = linear_options(200, seed=0)
    >>> world.features.shape, round(float(world.means.max()), 9)
    ((200, 5), 0.75)
    """
    rng = np.random.default_rng([seed, 0x11EA2])
    features = rng.standard_normal((arms, DIMENSIONS))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    values = features @ rng.standard_normal(DIMENSIONS)
    means = LOWEST + (HIGHEST - LOWEST) * (values - values.min()) / np.ptp(values)
    return LinearOptions(tuple(means.tolist()), features)
