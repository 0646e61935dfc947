"""Integer noise distributions that n participants can add in independent shares.

A divisible distribution is the sum of n independent, identically distributed shares. Each
participant adds one share, so no single party has to be trusted with the noise (CZ23, Fact 1 and
Definition 5). Privacy accounting is in `tacit.privacy`.
"""

from tacit.noise.binomial import Binomial
from tacit.noise.distribution import NoiseDistribution
from tacit.noise.gaussian import DiscreteGaussian, sum_divergence
from tacit.noise.laplace import DiscreteLaplace, Polya, PolyaDifference
from tacit.noise.skellam import Skellam
from tacit.noise.table import Table, convolve, modular_pmf
from tacit.noise.wrapping import wrap_probability
from tacit.sampling.coins import Chance

__all__ = [
    "Binomial",
    "Chance",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "NoiseDistribution",
    "Polya",
    "PolyaDifference",
    "Skellam",
    "Table",
    "convolve",
    "modular_pmf",
    "sum_divergence",
    "wrap_probability",
]
