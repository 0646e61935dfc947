"""The secure middle: who stands between people and the one who learns, as working cryptography.

Three intermediaries, each a set of state machines without input or output. `MaskingServer` and
`MaskingClient`: one server, which learns only a sum. `split`, `HalfServer` and `Collector`:
two servers, which must not collude, and in verified rounds drop what is not in range. `wrap`,
`Shuffler` and `Analyzer`: a shuffler, which learns nothing but who was there. All refuse with
`Refusal`, and none opens anything for fewer reports than its round's minimum. What each promises
against whom is in docs/security.md, the bytes are in docs/wire-formats.md.

>>> from tacit.intermediaries import run_masking
>>> run_masking([3, 5, 9, 1], modulus=100, minimum=4).numbers
(18,)
"""

from tacit.intermediaries.announcements import Binding, SharedNoise, accept, announce
from tacit.intermediaries.blame import Blame, Lie
from tacit.intermediaries.collecting import Collector, prepare_collector
from tacit.intermediaries.graph import Claim, Neighbourhood, Security, neighbourhood, security
from tacit.intermediaries.half_server import HalfServer
from tacit.intermediaries.in_process import (
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
from tacit.intermediaries.interface import Intermediary, Refusal, Relay, SumView
from tacit.intermediaries.masking import MaskingRound
from tacit.intermediaries.masking_client import MaskingClient
from tacit.intermediaries.masking_server import MaskingServer, masking_outcome, prepare_server
from tacit.intermediaries.mixing import (
    Analyzer,
    MixingRound,
    MixView,
    Role,
    Shuffler,
    mixing_outcome,
    prepare_party,
    wrap,
)
from tacit.intermediaries.sealing import PrivateKey, Sealing, ServerKeys
from tacit.intermediaries.seats import Seat
from tacit.intermediaries.two_servers import Outcome, Place, TwoServerRound, refused_by_both, split

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
    "Outcome",
    "OwnNoise",
    "Place",
    "PrivateKey",
    "Refusal",
    "Relay",
    "Role",
    "Sealing",
    "Seat",
    "Security",
    "ServerKeys",
    "SharedNoise",
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
