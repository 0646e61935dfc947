"""Lazy imports of the packages that algorithms are composed from: listing names needs no NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.names import Lazy

if TYPE_CHECKING:
    from tacit import bandits, experiment, privacy
    from tacit.algorithms import zc24_noise
    from tacit.bandits.contextual import federated, moments
    from tacit.bandits.contextual import private as centred
    from tacit.bandits.linear import phased
    from tacit.environments import population
    from tacit.protocols import (
        factories,
        mechanism,
        pure_shuffle,
        split_and_mix,
        vector_noise,
        vectors,
    )
else:
    bandits, privacy = Lazy("tacit.bandits"), Lazy("tacit.privacy")
    experiment, zc24_noise = Lazy("tacit.experiment"), Lazy("tacit.algorithms.zc24_noise")
    federated, phased = (
        Lazy("tacit.bandits.contextual.federated"),
        Lazy("tacit.bandits.linear.phased"),
    )
    centred = Lazy("tacit.bandits.contextual.private")
    moments = Lazy("tacit.bandits.contextual.moments")
    population = Lazy("tacit.environments.population")
    mechanism, pure_shuffle = (
        Lazy("tacit.protocols.mechanism"),
        Lazy("tacit.protocols.pure_shuffle"),
    )
    factories, split_and_mix = (
        Lazy("tacit.protocols.factories"),
        Lazy("tacit.protocols.split_and_mix"),
    )
    vector_noise = Lazy("tacit.protocols.vector_noise")
    vectors = Lazy("tacit.protocols.vectors")

__all__ = [
    "bandits",
    "centred",
    "experiment",
    "factories",
    "federated",
    "mechanism",
    "moments",
    "phased",
    "population",
    "privacy",
    "pure_shuffle",
    "split_and_mix",
    "vector_noise",
    "vectors",
    "zc24_noise",
]
