"""Contract test suites for noise distributions, protocols, learners and algorithms.

Each function takes an object and raises an AssertionError that states the violated property. They
need no test framework and no registration; tacit's own tests call them on everything they discover.
Statistical checks state their false positive rate, and are seeded where the object can be.
"""

from tacit.testing.algorithms import check_algorithm
from tacit.testing.distributions import check_distribution
from tacit.testing.learners import check_learner
from tacit.testing.protocols import check_protocol

__all__ = ["check_algorithm", "check_distribution", "check_learner", "check_protocol"]
