"""Options with public features whose mean rewards are linear in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.environments.synthetic import Bernoulli
from tacit.errors import TacitError
from tacit.types import Floats

LINEAR = "linear"  # the name of its random instance
DIMENSIONS = 5  # features of a random instance
LOWEST, HIGHEST = 0.25, 0.75  # means of a random instance, as of the instance "easy"


@dataclass(frozen=True, eq=False)
class FeaturedOptions(Bernoulli):
    """Bernoulli rewards of options with features, one row of `features` per option.

    >>> FeaturedOptions((0.2, 0.4, 0.6), np.array([[1.0], [2.0], [3.0]])).features.shape
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


def linear_options(arms: int, seed: int) -> FeaturedOptions:
    """A random instance: features uniform on the sphere, means linear in them.

    >>> world = linear_options(200, seed=0)
    >>> world.features.shape, round(float(world.means.max()), 9)
    ((200, 5), 0.75)
    """
    rng = np.random.default_rng([seed, 0x11EA2])
    features = rng.standard_normal((arms, DIMENSIONS))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return linear_means(features, LOWEST, HIGHEST, rng)


def linear_means(
    features: npt.ArrayLike, low: float, high: float, rng: np.random.Generator | None = None
) -> FeaturedOptions:
    """Options with these features, with means from `low` to `high` along a random direction.

    >>> linear_means([[1.0], [2.0], [3.0]], 0.2, 0.4).means.round(9).tolist() in (
    ...     [0.2, 0.3, 0.4], [0.4, 0.3, 0.2])
    True
    """
    table = np.asarray(features, dtype=float)
    spread = np.ptp(table, axis=0)
    scaled = table / np.where(spread > 0, spread, 1.0)
    drawn = (rng or np.random.default_rng(0)).standard_normal(table.shape[1])
    values = scaled @ drawn
    means = low + (high - low) * (values - values.min()) / np.ptp(values)
    return FeaturedOptions(tuple(np.clip(means, 0.0, 1.0).tolist()), table)
