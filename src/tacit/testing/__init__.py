"""Contract suites: whether a law, a protocol, a learner or an algorithm keeps what its kind
promises.

Each function takes the thing itself and raises an AssertionError that says what does not hold. They
need no test framework and no registration; our own tests call them on everything that they
discover. Statistical checks have a stated false-alarm rate, seeded where the thing can be.
"""

from tacit.testing.algorithms import check_algorithm
from tacit.testing.laws import check_law
from tacit.testing.learners import check_learner
from tacit.testing.protocols import check_protocol

__all__ = ["check_algorithm", "check_law", "check_learner", "check_protocol"]
