"""Guarantees, exact privacy loss, calibration, composition, amplification by shuffling, auditing.

Everything is computed from the probabilities of the noise that is added; rounding errors count
against the guarantee. The papers' closed forms are available by name, for comparison only.
"""

from tacit.privacy.accounting import (
    Target,
    achieved_guarantee,
    best_order,
    checked_target,
    in_distinct_rounds,
    state_drawn_arithmetic,
)
from tacit.privacy.analysis import privacy_of
from tacit.privacy.audit import Audit, audit
from tacit.privacy.calibration import Calibration, NoiseBits, calibrate
from tacit.privacy.composition import (
    BudgetExceeded,
    ComposedLoss,
    ComposedParticipations,
    Odometer,
    advanced_composition,
    compose_losses,
    compose_participations,
    dominating_loss,
)
from tacit.privacy.divergences import concentrated_of, renyi_of
from tacit.privacy.gaussian import Gaussian, GaussianLoss
from tacit.privacy.guarantees import (
    ApproximateDP,
    Arithmetic,
    ConcentratedDP,
    Guarantee,
    Neighbours,
    PureDP,
    RenyiDP,
    View,
)
from tacit.privacy.joint_guarantees import compose, repeat, weakest, weakest_divergence
from tacit.privacy.loss import PrivacyLoss, privacy_loss, renyi_divergence
from tacit.privacy.renyi import ORDERS
from tacit.privacy.shuffling import Clones, RandomizedResponse
from tacit.privacy.silos import SilosDP
from tacit.privacy.status import Guaranteed, KnownPerRound, NonPrivate, PrivacyStatus, status_of
from tacit.privacy.threat_model import ONE_CURIOUS, ThreatModel, dropout_loss, guaranteed_reports
from tacit.privacy.vectors import VectorGuarantee, l2_guarantee, linf_loss, skellam_renyi

__all__ = [
    "ONE_CURIOUS",
    "ORDERS",
    "ApproximateDP",
    "Arithmetic",
    "Audit",
    "BudgetExceeded",
    "Calibration",
    "Clones",
    "ComposedLoss",
    "ComposedParticipations",
    "ConcentratedDP",
    "Gaussian",
    "GaussianLoss",
    "Guarantee",
    "Guaranteed",
    "KnownPerRound",
    "Neighbours",
    "NoiseBits",
    "NonPrivate",
    "Odometer",
    "PrivacyLoss",
    "PrivacyStatus",
    "PureDP",
    "RandomizedResponse",
    "RenyiDP",
    "SilosDP",
    "Target",
    "ThreatModel",
    "VectorGuarantee",
    "View",
    "achieved_guarantee",
    "advanced_composition",
    "audit",
    "best_order",
    "calibrate",
    "checked_target",
    "compose",
    "compose_losses",
    "compose_participations",
    "concentrated_of",
    "dominating_loss",
    "dropout_loss",
    "guaranteed_reports",
    "in_distinct_rounds",
    "l2_guarantee",
    "linf_loss",
    "privacy_loss",
    "privacy_of",
    "renyi_divergence",
    "renyi_of",
    "repeat",
    "skellam_renyi",
    "state_drawn_arithmetic",
    "status_of",
    "weakest",
    "weakest_divergence",
]
