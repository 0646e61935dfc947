"""Learners: which option to try next, given the private estimates so far."""

from tacit.bandits.arms.chernoff import ArmEvidence
from tacit.bandits.arms.dpse import DPSE
from tacit.bandits.arms.elimination import CumulativeElimination, ForgettingElimination, NoiseTail
from tacit.bandits.arms.klucb import PrivateKLUCB
from tacit.bandits.arms.managed import Managed
from tacit.bandits.arms.med import PrivateMED
from tacit.bandits.arms.nonprivate_baselines import KLUCB, UCB1, SuccessiveElimination, Thompson
from tacit.bandits.arms.private_baselines import AdaPKLUCB, LazyDPTS
from tacit.bandits.arms.restarts import Restarts
from tacit.bandits.contract import Learner

__all__ = [
    "DPSE",
    "KLUCB",
    "UCB1",
    "AdaPKLUCB",
    "ArmEvidence",
    "CumulativeElimination",
    "ForgettingElimination",
    "LazyDPTS",
    "Learner",
    "Managed",
    "NoiseTail",
    "PrivateKLUCB",
    "PrivateMED",
    "Restarts",
    "SuccessiveElimination",
    "Thompson",
]
