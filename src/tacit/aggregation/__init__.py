"""Secure aggregation protocols as state machines without I/O.

Three trust models hide individual reports from the analyzer:

- `MaskingServer` and `MaskingClient`: one server, which learns only the sum (masking).
- `split`, `Aggregator` and `Collector`: two non-colluding aggregators; verified rounds also drop
  out-of-range reports.
- `wrap`, `Shuffler` and `Analyzer`: a shuffler, which learns only who takes part.

All raise `Rejected`; none releases an aggregate below its round's minimum batch size. The threat
models are in docs/explanation/trust/, the message formats in docs/reference/wire-formats/. Nothing
here carries messages or computes guarantees.

>>> from tacit.aggregation import run_masking
>>> run_masking([3, 5, 9, 1], modulus=100, minimum=4).numbers
(18,)
"""

from tacit.aggregation.aggregator import Aggregator
from tacit.aggregation.aggregator_context import AggregatorContext
from tacit.aggregation.announcements import Binding, SharedNoise, accept, announce
from tacit.aggregation.blame import Blame, Misbehaviour
from tacit.aggregation.collecting import Collector, prepare_collector
from tacit.aggregation.encryption import HpkeSuite, PrivateKey, ServerKeys
from tacit.aggregation.graph import (
    Claim,
    Neighbourhood,
    Security,
    least_minimum,
    neighbourhood,
    security,
)
from tacit.aggregation.in_process import (
    Dropouts,
    MaskingPlan,
    MaskingSession,
    OwnNoise,
    ShufflerSession,
    TwoServerSession,
    run_masking,
    run_shuffler,
    run_two_servers,
    run_verified,
)
from tacit.aggregation.interface import Intermediary, Rejected, Relay, SumView
from tacit.aggregation.masking import MaskingRound
from tacit.aggregation.masking_client import MaskingClient
from tacit.aggregation.masking_server import MaskingServer, masking_outcome, prepare_server
from tacit.aggregation.shuffler import (
    Analyzer,
    ShuffledView,
    Shuffler,
    ShuffleRole,
    ShufflerRound,
    prepare_party,
    shuffler_outcome,
    wrap,
)
from tacit.aggregation.two_servers import (
    ReportSlot,
    RoundOutcome,
    TwoServerRound,
    aborted_by_both,
    split,
)

__all__ = [
    "Aggregator",
    "AggregatorContext",
    "Analyzer",
    "Binding",
    "Blame",
    "Claim",
    "Collector",
    "Dropouts",
    "HpkeSuite",
    "Intermediary",
    "MaskingClient",
    "MaskingPlan",
    "MaskingRound",
    "MaskingServer",
    "MaskingSession",
    "Misbehaviour",
    "Neighbourhood",
    "OwnNoise",
    "PrivateKey",
    "Rejected",
    "Relay",
    "ReportSlot",
    "RoundOutcome",
    "Security",
    "ServerKeys",
    "SharedNoise",
    "ShuffleRole",
    "ShuffledView",
    "Shuffler",
    "ShufflerRound",
    "ShufflerSession",
    "SumView",
    "TwoServerRound",
    "TwoServerSession",
    "aborted_by_both",
    "accept",
    "announce",
    "least_minimum",
    "masking_outcome",
    "neighbourhood",
    "prepare_collector",
    "prepare_party",
    "prepare_server",
    "run_masking",
    "run_shuffler",
    "run_two_servers",
    "run_verified",
    "security",
    "shuffler_outcome",
    "split",
    "wrap",
]
