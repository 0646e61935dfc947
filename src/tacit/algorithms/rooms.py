"""The rooms that algorithms are composed from, each loaded when something of it is first used, so
that names can be listed without NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.names import Lazy

if TYPE_CHECKING:
    from tacit import bandits, experiment, privacy
    from tacit.algorithms import zc24_noise
    from tacit.bandits import federated, phased, statistics
    from tacit.environments import population
    from tacit.protocols import mechanism, pure, recipes, splitting, vectors
else:
    bandits, privacy = Lazy("tacit.bandits"), Lazy("tacit.privacy")
    experiment, zc24_noise = Lazy("tacit.experiment"), Lazy("tacit.algorithms.zc24_noise")
    federated, phased = Lazy("tacit.bandits.federated"), Lazy("tacit.bandits.phased")
    statistics = Lazy("tacit.bandits.statistics")
    population = Lazy("tacit.environments.population")
    mechanism, pure = Lazy("tacit.protocols.mechanism"), Lazy("tacit.protocols.pure")
    recipes, splitting = Lazy("tacit.protocols.recipes"), Lazy("tacit.protocols.splitting")
    vectors = Lazy("tacit.protocols.vectors")

__all__ = [
    "bandits",
    "experiment",
    "federated",
    "mechanism",
    "phased",
    "population",
    "privacy",
    "pure",
    "recipes",
    "splitting",
    "statistics",
    "vectors",
    "zc24_noise",
]
