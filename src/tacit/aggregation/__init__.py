"""Secure aggregation protocols as state machines without I/O.

Three trust models hide individual reports from the analyzer:

- `MaskingServer` and `MaskingClient`: one server, which learns only the sum (masking).
- `split`, `HalfServer` and `Collector`: two non-colluding aggregators; verified rounds also drop
  out-of-range reports.
- `wrap`, `Shuffler` and `Analyzer`: a shuffler, which learns only who takes part.

All raise `Refusal`, and none releases an aggregate below its round's minimum batch size. The threat
models are in docs/security.md, the message formats in docs/wire-formats.md. Nothing here carries
messages or computes guarantees.

>>> from tacit.aggregation import run_masking
>>> run_masking([3, 5, 9, 1], modulus=100, minimum=4).numbers
(18,)
"""

from tacit.aggregation.aggregator import HalfServer
from tacit.aggregation.aggregator_context import Seat
from tacit.aggregation.announcements import Binding, SharedNoise, accept, announce
from tacit.aggregation.blame import Blame, Lie
from tacit.aggregation.collecting import Collector, prepare_collector
from tacit.aggregation.encryption import PrivateKey, Sealing, ServerKeys
from tacit.aggregation.graph import Claim, Neighbourhood, Security, neighbourhood, security
from tacit.aggregation.in_process import (
    Dropouts,
    MaskingPlan,
    MaskingSession,
    MixingSession,
    OwnNoise,
    TwoServerSession,
    run_masking,
    run_mixing,
    run_two_servers,
    run_verified,
)
from tacit.aggregation.interface import Intermediary, Refusal, Relay, SumView
from tacit.aggregation.masking import MaskingRound
from tacit.aggregation.masking_client import MaskingClient
from tacit.aggregation.masking_server import MaskingServer, masking_outcome, prepare_server
from tacit.aggregation.shuffler import (
    Analyzer,
    MixingRound,
    MixView,
    Shuffler,
    ShuffleRole,
    mixing_outcome,
    prepare_party,
    wrap,
)
from tacit.aggregation.two_servers import (
    Place,
    RoundOutcome,
    TwoServerRound,
    refused_by_both,
    split,
)

__all__ = [
    "Analyzer",
    "Binding",
    "Blame",
    "Claim",
    "Collector",
    "Dropouts",
    "HalfServer",
    "Intermediary",
    "Lie",
    "MaskingClient",
    "MaskingPlan",
    "MaskingRound",
    "MaskingServer",
    "MaskingSession",
    "MixView",
    "MixingRound",
    "MixingSession",
    "Neighbourhood",
    "OwnNoise",
    "Place",
    "PrivateKey",
    "Refusal",
    "Relay",
    "RoundOutcome",
    "Sealing",
    "Seat",
    "Security",
    "ServerKeys",
    "SharedNoise",
    "ShuffleRole",
    "Shuffler",
    "SumView",
    "TwoServerRound",
    "TwoServerSession",
    "accept",
    "announce",
    "masking_outcome",
    "mixing_outcome",
    "neighbourhood",
    "prepare_collector",
    "prepare_party",
    "prepare_server",
    "refused_by_both",
    "run_masking",
    "run_mixing",
    "run_two_servers",
    "run_verified",
    "security",
    "split",
    "wrap",
]
