"""Integer noise that many hands can add together.

A law in this package can be split into shares: n people each add one share, and the total has the
law. That is what lets a server learn a noisy sum without anyone being trusted to add the noise. See
CZ23, Fact 1 and Definition 5.
"""

from tacit.noise.binomial import Binomial
from tacit.noise.coins import Chance
from tacit.noise.gaussian import DiscreteGaussian, sum_divergence
from tacit.noise.laplace import DiscreteLaplace, Polya, PolyaDifference
from tacit.noise.law import NoiseLaw
from tacit.noise.skellam import Skellam
from tacit.noise.table import Table, convolve, modular_pmf
from tacit.noise.wrapping import wrap_probability

__all__ = [
    "Binomial",
    "Chance",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "NoiseLaw",
    "Polya",
    "PolyaDifference",
    "Skellam",
    "Table",
    "convolve",
    "modular_pmf",
    "sum_divergence",
    "wrap_probability",
]
