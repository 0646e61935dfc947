"""Where rewards come from: coins, clipped Gaussians, beta variables, recorded data."""

from tacit.environments.contract import Environment, instance_means
from tacit.environments.replay import Replay, read_mslr, read_table
from tacit.environments.synthetic import Bernoulli, Beta, ClippedGaussian

__all__ = [
    "Bernoulli",
    "Beta",
    "ClippedGaussian",
    "Environment",
    "Replay",
    "instance_means",
    "read_mslr",
    "read_table",
]
