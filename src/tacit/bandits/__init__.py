"""Learners: which option to try next, given what private estimates have shown."""

from tacit.bandits.chernoff import Evidence
from tacit.bandits.contract import Learner
from tacit.bandits.doubling import Doubling
from tacit.bandits.dpse import DPSE
from tacit.bandits.elimination import CumulativeElimination, ForgettingElimination
from tacit.bandits.klucb import PrivateKLUCB
from tacit.bandits.references import KLUCB, UCB1, SuccessiveElimination, Thompson

__all__ = [
    "DPSE",
    "KLUCB",
    "UCB1",
    "CumulativeElimination",
    "Doubling",
    "Evidence",
    "ForgettingElimination",
    "Learner",
    "PrivateKLUCB",
    "SuccessiveElimination",
    "Thompson",
]
