"""Whole rounds in one process, through the same bytes that a live service would carry.

These functions play every role of a round over a list of reports and return the view. They are for tests and simulations: in
life each role runs on its own machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tacit.intermediaries.graph import Neighbourhood
from tacit.intermediaries.interface import Refusal, SumView
from tacit.intermediaries.masking import MaskingRound
from tacit.intermediaries.masking_client import MaskingClient
from tacit.intermediaries.masking_server import MaskingServer

Report = int | Sequence[int]


@dataclass(frozen=True)
class Dropouts:
    """Who falls silent before which stage of masking, by position in the list of reports."""

    join: Collection[int] = ()
    share: Collection[int] = ()
    mask: Collection[int] = ()
    reveal: Collection[int] = ()


def run_masking(
    reports: Sequence[Report],
    modulus: int,
    minimum: int,
    among: Neighbourhood | None = None,
    dropouts: Dropouts | None = None,
) -> SumView:
    """The sum of all reports of those who did not drop out before sending their masked numbers.

    >>> run_masking([3, 5, 9], modulus=10, minimum=3)
    SumView(numbers=(7,), reports=3)
    """
    gone = dropouts or Dropouts()
    values = _lists(reports)
    length = len(values[0])
    server = MaskingServer.open(len(values), minimum, modulus, length, among)
    announced = MaskingRound.decode(server.round.encode())
    clients = {place: MaskingClient(announced) for place in range(len(values)) if place not in gone.join}
    for client in clients.values():
        server.take(client.join())
    setups = server.close()
    for place, client in _staying(clients, gone.share):
        server.take(client.share(setups[client.address]))
    inboxes = server.close()
    for place, client in _staying(clients, gone.mask, inboxes):
        try:
            masked = client.mask(inboxes[client.address], values[place])
        except Refusal:
            continue  # too few of its neighbours shared: it leaves the round by itself
        server.take(masked)
    requests = server.close()
    for _, client in _staying(clients, gone.reveal, requests):
        try:
            revealed = client.reveal(requests[client.address])
        except Refusal:
            continue
        server.take(revealed)
    server.close()
    return server.view()


def _staying(
    clients: Mapping[int, MaskingClient], gone: Collection[int], addressed: Mapping[bytes, bytes] | None = None
) -> list[tuple[int, MaskingClient]]:
    return [
        (place, client)
        for place, client in clients.items()
        if place not in gone and (addressed is None or client.address in addressed)
    ]


def _lists(reports: Sequence[Report]) -> list[list[int]]:
    return [[report] if isinstance(report, int) else list(report) for report in reports]
