"""Simulated rewards: Bernoulli, clipped Gaussian and beta rewards, recorded data, functions."""

from tacit.environments.callables import FromFunction
from tacit.environments.context_logs import ContextLog, read_context_log
from tacit.environments.contextual import ContextFunction, ContextualWorld, SegmentContexts
from tacit.environments.contract import Environment, instance_means
from tacit.environments.guarded import TwoMetrics
from tacit.environments.recorded import OutOfData, Recorded, RecordedRun, check_horizon
from tacit.environments.replay import Replay, read_mslr
from tacit.environments.silos import OwnSilos
from tacit.environments.synthetic import Bernoulli, Beta, ClippedGaussian
from tacit.environments.tables import from_frame, read_table

__all__ = [
    "Bernoulli",
    "Beta",
    "ClippedGaussian",
    "ContextFunction",
    "ContextLog",
    "ContextualWorld",
    "Environment",
    "FromFunction",
    "OutOfData",
    "OwnSilos",
    "Recorded",
    "RecordedRun",
    "Replay",
    "SegmentContexts",
    "TwoMetrics",
    "check_horizon",
    "from_frame",
    "instance_means",
    "read_context_log",
    "read_mslr",
    "read_table",
]
