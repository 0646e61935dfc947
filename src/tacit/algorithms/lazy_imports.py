"""Lazy imports of the packages that algorithms are composed from: listing names needs no NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.names import Lazy

if TYPE_CHECKING:
    from tacit import bandits as bandits
    from tacit import experiment as experiment
    from tacit import privacy as privacy
    from tacit.algorithms import zc24_noise as zc24_noise
    from tacit.bandits.contextual import corner_learner as corner_learner
    from tacit.bandits.contextual import federated as federated
    from tacit.bandits.contextual import moments as moments
    from tacit.bandits.contextual import policy_learners as policy_learners
    from tacit.bandits.contextual import private as centred
    from tacit.bandits.linear import fitted as fitted
    from tacit.bandits.linear import options as linear_options
    from tacit.bandits.linear import phased as phased
    from tacit.environments import population as population
    from tacit.protocols import factories as factories
    from tacit.protocols import mechanism as mechanism
    from tacit.protocols import slice_mechanism as slice_mechanism
    from tacit.protocols import split_and_mix as split_and_mix
    from tacit.protocols import statistic_sums as statistic_sums
    from tacit.protocols import statistics as statistics
    from tacit.protocols import sums as sums
    from tacit.protocols import vector_noise as vector_noise

    __all__ = ["centred", "linear_options"]
else:
    bandits, experiment, privacy = map(Lazy, ("tacit.bandits", "tacit.experiment", "tacit.privacy"))
    zc24_noise = Lazy("tacit.algorithms.zc24_noise")
    corner_learner = Lazy("tacit.bandits.contextual.corner_learner")
    federated = Lazy("tacit.bandits.contextual.federated")
    moments = Lazy("tacit.bandits.contextual.moments")
    policy_learners = Lazy("tacit.bandits.contextual.policy_learners")
    centred = Lazy("tacit.bandits.contextual.private")
    fitted = Lazy("tacit.bandits.linear.fitted")
    linear_options = Lazy("tacit.bandits.linear.options")
    phased = Lazy("tacit.bandits.linear.phased")
    population = Lazy("tacit.environments.population")
    factories = Lazy("tacit.protocols.factories")
    mechanism = Lazy("tacit.protocols.mechanism")
    slice_mechanism = Lazy("tacit.protocols.slice_mechanism")
    split_and_mix = Lazy("tacit.protocols.split_and_mix")
    sums = Lazy("tacit.protocols.sums")
    statistic_sums = Lazy("tacit.protocols.statistic_sums")
    statistics = Lazy("tacit.protocols.statistics")
    vector_noise = Lazy("tacit.protocols.vector_noise")
