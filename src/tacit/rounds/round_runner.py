"""Run a protocol's round from the reports to the estimate, every role in one process.

A live service runs each role on its own machine, with the same codecs and the same bytes. The
aggregation is set up for the protocol's participants and minimum batch size. Hence neither releases
an aggregate that the other would reject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tacit.aggregation import (
    ShuffledView,
    SumView,
    least_minimum,
    run_masking,
    run_shuffler,
    run_two_servers,
    run_verified,
)
from tacit.protocols.contract import Protocol
from tacit.protocols.vectors import SeparateSums
from tacit.rounds.codecs import codec, released
from tacit.types import Aggregate, Estimate

RUNS: dict[str, Callable[..., Any]] = {
    "masking": run_masking,
    "two-servers": run_two_servers,
    "mixing": run_shuffler,
    "verified": run_verified,
}


def minimum(protocol: Protocol, aggregation: str) -> int:
    """The minimum batch size: the protocol's, or that of the aggregation if larger.

    Messages that are private on their own need no minimum; masking then has its usual one.
    """
    if aggregation == "masking":
        return least_minimum(protocol.participants, protocol.minimum)
    return protocol.minimum


def aggregate(
    protocol: Protocol, messages: Sequence[Any], aggregation: str, **arguments: Any
) -> Aggregate:
    """Aggregate messages through the real cryptography.

    Parameters
    ----------
    protocol : Protocol
        The protocol of the round. Its participants beyond the messages drop out before joining.
    messages : sequence
        One randomized message per participant.
    aggregation : str
        The aggregation: ``"masking"``, ``"two-servers"``, ``"mixing"`` or ``"verified"``.
    **arguments
        Arguments of the aggregation, such as dropouts (by index in `messages`), neighbourhoods
        and the HPKE suite.

    Returns
    -------
    Aggregate
        The released aggregate and its number of reports.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> from tacit.protocols.sums import SecureSum
    >>> protocol = SecureSum(3, 1, DiscreteLaplace(1), PureDP(1.0), modulus=100)
    >>> aggregate(protocol, [50, 60, 70], "two-servers")
    Aggregate(values=(80,), reports=3, wrapped=False)
    """
    if isinstance(protocol, SeparateSums):
        return _aggregate_each(protocol, messages, aggregation, **arguments)
    return released(
        protocol, aggregation_view(protocol, messages, aggregation, **arguments), aggregation
    )


def aggregation_view(
    protocol: Protocol, messages: Sequence[Any], aggregation: str, **arguments: Any
) -> SumView | ShuffledView:
    """The aggregation's view of the messages; parameters as in `aggregate`.

    The view also holds the clients blamed in masking, the number of reports that failed
    verification, and the number of invalid messages dropped by the analyzer.
    """
    way = codec(protocol, aggregation)
    if not messages or len(messages) > protocol.participants:
        protocol.check_reports(len(messages))  # raises
    view: SumView | ShuffledView = RUNS[aggregation](
        [way.payload(message) for message in messages],
        minimum=minimum(protocol, aggregation),
        participants=protocol.participants,
        **way.settings,
        **arguments,
    )
    return view


def _aggregate_each(
    protocol: SeparateSums, messages: Sequence[Any], aggregation: str, **arguments: Any
) -> Aggregate:
    """Aggregate each option's sum in a separate round; indices in `arguments` count within each."""
    pairs = zip(protocol.parts, protocol.by_option(messages), strict=True)
    sums = [aggregate(part, mine, aggregation, **arguments) for part, mine in pairs]
    return Aggregate(tuple(sums), len(messages))


def run_round(
    protocol: Protocol, reports: Sequence[Any], aggregation: str, **arguments: Any
) -> Estimate:
    """Run a round: devices randomize their reports, the aggregation sums them, the server analyzes.

    Parameters
    ----------
    protocol : Protocol
        The protocol of the round.
    reports : sequence
        One report per participant, before randomization.
    aggregation : str
        The aggregation: ``"masking"``, ``"two-servers"``, ``"mixing"`` or ``"verified"``.
    **arguments
        Arguments of the aggregation, as in `aggregate`.

    Returns
    -------
    Estimate
        The estimate of the round.

    Notes
    -----
    One round of a live experiment is
    ``experiment.observe(round_, run_round(experiment.open(round_), reports, "masking"))``.
    """
    messages = [protocol.report(report, slot) for slot, report in enumerate(reports)]
    return protocol.analyze(aggregate(protocol, messages, aggregation, **arguments))
