"""A protocol's round from the first report to the estimate, every role in one process.

In life each role runs on its own machine, with the same codecs and the same bytes between them. The
intermediary is opened for the protocol's participants and its minimum, so that neither opens what
the other would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tacit.aggregation import (
    MixView,
    SumView,
    run_masking,
    run_mixing,
    run_two_servers,
    run_verified,
)
from tacit.protocols.contract import Protocol
from tacit.protocols.vectors import SeparateSums
from tacit.rounds.codecs import codec, opened
from tacit.types import Estimate, Opened

RUNS: dict[str, Callable[..., Any]] = {
    "masking": run_masking,
    "two-servers": run_two_servers,
    "mixing": run_mixing,
    "verified": run_verified,
}
FEWEST = {"masking": 2}  # masks come in pairs


def minimum(protocol: Protocol, through: str) -> int:
    """The fewest reports that the intermediary opens: the protocol's, or what it needs itself."""
    return max(protocol.minimum, FEWEST.get(through, 1))


def carry(protocol: Protocol, messages: Sequence[Any], through: str, **how: Any) -> Opened:
    """What is opened of these messages, through real cryptography.

    Participants beyond the messages never came. `how` is handed to the intermediary: who drops out
    (by position in `messages`), neighbourhoods, the suite.

    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> from tacit.protocols.sums import SecureSum
    >>> protocol = SecureSum(3, 1, DiscreteLaplace(1), PureDP(1.0), modulus=100)
    >>> carry(protocol, [50, 60, 70], "two-servers")
    Opened(values=(80,), reports=3, wrapped=False)
    """
    if isinstance(protocol, SeparateSums):
        return _carry_each(protocol, messages, through, **how)
    return opened(protocol, seen(protocol, messages, through, **how), through)


def seen(
    protocol: Protocol, messages: Sequence[Any], through: str, **how: Any
) -> SumView | MixView:
    """What the intermediary shows of these messages, as by `carry`: with it comes who is blamed in
    masking, how many reports did not verify, and how many messages of mixing were spoilt.
    """
    way = codec(protocol, through)
    if not messages or len(messages) > protocol.participants:
        protocol.check_reports(len(messages))  # which refuses them
    view: SumView | MixView = RUNS[through](
        [way.payload(message) for message in messages],
        minimum=minimum(protocol, through),
        participants=protocol.participants,
        **way.settings,
        **how,
    )
    return view


def _carry_each(
    protocol: SeparateSums, messages: Sequence[Any], through: str, **how: Any
) -> Opened:
    """Every option's sum in a round of its own; positions in `how` count within each."""
    pairs = zip(protocol.parts, protocol.by_option(messages), strict=True)
    sums = [carry(part, mine, through, **how) for part, mine in pairs]
    return Opened(tuple(sums), len(messages))


def open_through(protocol: Protocol, reports: Sequence[Any], through: str, **how: Any) -> Estimate:
    """The estimate of a round: every device randomizes its report, the intermediary opens, the
    server analyzes.

    `experiment.observe(round_, open_through(experiment.open(round_), reports, "masking"))` is one
    round of a live experiment.
    """
    messages = [protocol.report(report, place) for place, report in enumerate(reports)]
    return protocol.analyze(carry(protocol, messages, through, **how))
