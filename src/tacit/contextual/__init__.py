"""The device's part of contextual experiments: features, choice and statistic, without NumPy.

A public feature map turns a context into one integer vector per option. The round's published
policy picks an option by randomness of the device. One statistic of the vector and the reward is
reported. Nothing else leaves the device. `clients/js` can implement the same functions: they use
IEEE doubles in a fixed order of operations, and integers below 2^53.
"""

from tacit.contextual.feature_maps import BoundedNumber, Category, FeatureMap
from tacit.contextual.policies import LinearPolicy, TablePolicy
from tacit.contextual.statistics import MomentReport, ScaledMomentReport, TableReport

__all__ = [
    "BoundedNumber",
    "Category",
    "FeatureMap",
    "LinearPolicy",
    "MomentReport",
    "ScaledMomentReport",
    "TablePolicy",
    "TableReport",
]
