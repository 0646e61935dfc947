"""The drawing of who sees what: cards of devices and parties, and arrows with what passed.

It is laid out from the terms of the experiment: any trust model has one or two parties, and the
first of those that devices send to is drawn beside the devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.service.pages.participant import WHICH_BROWSERS, in_browsers
from tacit.terms import Terms
from tacit.terms.models import LEADING
from tacit.terms.visibility import DEVICES, MessageFlow, visibility


@dataclass(frozen=True)
class PartyCard:
    """A party of the drawing."""

    role: str
    address: str
    place: str  # CSS class: the first or the second row
    sees: str
    never: str
    leads: bool


@dataclass(frozen=True)
class PassageArrow:
    """An arrow of the drawing, with the messages that passed in released rounds."""

    place: str  # CSS class: from the devices to a row, or between the rows
    receiver: str
    what: str
    count: int
    size: int


@dataclass(frozen=True)
class PartyDrawing:
    """Devices, parties in the order of their rows, arrows, and whether browsers take part."""

    device: str
    browsers: str
    cards: tuple[PartyCard, ...]
    arrows: tuple[PassageArrow, ...]


def drawing(terms: Terms, passed: Mapping[str, int]) -> PartyDrawing:
    """Draw the parties of these terms; `passed` counts messages and bytes of released rounds."""
    seen = visibility(terms)
    addresses = {party.role: party.address for party in terms.parties}
    sights = sorted(seen.sights, key=lambda one: one.role not in seen.receivers)
    rows = {one.role: row for one, row in zip(sights, ("first", "second"), strict=False)}
    cards = tuple(
        PartyCard(
            one.role, addresses[one.role], rows[one.role], one.sees, one.never, one.role in LEADING
        )
        for one in sights
    )
    arrows = tuple(_arrow(one, rows, passed) for one in seen.passages)
    return PartyDrawing(seen.device, _browsers(terms), cards, arrows)


def _browsers(terms: Terms) -> str:
    """Sentence that names the devices (apps or browsers) of participants."""
    if in_browsers(terms):
        return "People take part in a browser or with an app."
    return f"People take part with an app only. {WHICH_BROWSERS}."


def _arrow(flow: MessageFlow, rows: Mapping[str, str], passed: Mapping[str, int]) -> PassageArrow:
    between = flow.sender != DEVICES
    down = rows[flow.receiver] == "second"
    if between:
        place, count, size = ("down" if down else "up"), passed["sums"], passed["sums_bytes"]
    else:
        bytes_of = "coordinator_bytes" if flow.receiver in LEADING else "helper_bytes"
        place, count, size = rows[flow.receiver], passed["reports"], passed[bytes_of]
    return PassageArrow(place, flow.receiver, flow.one if count == 1 else flow.several, count, size)
