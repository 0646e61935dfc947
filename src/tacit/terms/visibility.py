"""Views under each trust model: parties, the messages between them, and their content.

The sentences follow from the trust model, the range proofs and the party that adds the noise. Pages
draw them, `tacit experiment check` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tacit.terms.context import CornerTerms, FittedTerms, MomentTerms
from tacit.terms.document import Terms
from tacit.trust import TrustModel

DEVICES = "devices"
"""The sender of reports: not a party of the terms."""


@dataclass(frozen=True)
class PartyView:
    """View of one party: the data of participants that it sees, and never sees."""

    role: str
    sees: str
    never: str


@dataclass(frozen=True)
class MessageFlow:
    """Messages from the devices, or from a party, to a party: one of them, and several."""

    sender: str
    receiver: str
    one: str
    several: str


@dataclass(frozen=True)
class Visibility:
    """Steps of a device, views of the parties in the order of the terms, and messages."""

    device: str
    sights: tuple[PartyView, ...]
    passages: tuple[MessageFlow, ...]

    @property
    def receivers(self) -> tuple[str, ...]:
        """The roles to which devices send."""
        return tuple(one.receiver for one in self.passages if one.sender == DEVICES)


_FIXED = "at a time that was fixed before the answer"
_MODELS = {
    TrustModel.TWO_SERVERS: Visibility(
        f"Each splits its answer in two, encrypts the shares, and sends them {_FIXED}.",
        (
            PartyView(
                "coordinator",
                "how many got which option, one share of each answer, sums with the noise of both "
                "servers",
                "anybody's answer",
            ),
            PartyView("helper", "the other shares, its own noise", "anybody's answer, or the sum"),
        ),
        (
            MessageFlow(DEVICES, "coordinator", "encrypted share", "encrypted shares"),
            MessageFlow(DEVICES, "helper", "encrypted share", "encrypted shares"),
            MessageFlow("helper", "coordinator", "noisy sum", "noisy sums"),
        ),
    ),
    TrustModel.SHUFFLER: Visibility(
        f"Each adds its share of the noise to its answer, encrypts it for the analyzer and once "
        f"more for the shuffler, and sends it {_FIXED}.",
        (
            PartyView("shuffler", "who reports in which round, and when", "what a report says"),
            PartyView(
                "analyzer",
                "how many got which option, and reports with their noise, in random order",
                "whose report is which",
            ),
        ),
        (
            MessageFlow(DEVICES, "shuffler", "encrypted report", "encrypted reports"),
            MessageFlow("shuffler", "analyzer", "shuffled round", "shuffled rounds"),
        ),
    ),
    TrustModel.SECURE_AGGREGATION: Visibility(
        "Each adds its share of the noise to its answer, and hides the result under masks that "
        "cancel out in the sum of a round.",
        (
            PartyView(
                "coordinator",
                "how many got which option, masked reports, sums with the noise of all devices",
                "a single report without its mask",
            ),
        ),
        (MessageFlow(DEVICES, "coordinator", "masked report", "masked reports"),),
    ),
    TrustModel.LOCAL: Visibility(
        f"Each adds all of the noise to its answer itself, and sends the result {_FIXED}.",
        (
            PartyView(
                "coordinator",
                "how many got which option, and each answer with its noise",
                "an answer without noise",
            ),
        ),
        (MessageFlow(DEVICES, "coordinator", "noisy answer", "noisy answers"),),
    ),
}


def visibility(terms: Terms) -> Visibility:
    """Views of all parties under these terms.

    Where devices share the noise, two servers see sums with that noise; range proofs tell both
    servers which reports are out of range.
    """
    found = _MODELS[terms.trust]
    if terms.trust is TrustModel.TWO_SERVERS and terms.noise.by == DEVICES:
        own, other = found.sights
        sees = "how many got which option, one share of each answer, sums with the noise of devices"
        both = (replace(own, sees=sees), replace(other, sees="the other shares"))
        found = replace(found, device=_NOISY, sights=both)
    if terms.context is not None:
        found = _chosen(found, terms)
    if terms.proofs:
        sights = tuple(
            replace(one, sees=f"{one.sees}; whether a report is in range") for one in found.sights
        )
        device = _PROVEN if terms.context is None else found.device
        found = replace(found, device=device, sights=sights)
    return found


def _chosen(visibility: Visibility, terms: Terms) -> Visibility:
    """The views of parties where devices choose their options."""
    fitted = isinstance(terms.context, FittedTerms)
    summed = "numbers" if fitted or isinstance(terms.context, MomentTerms) else "cells"
    never = "what anybody's device knows, chose or answered"
    if fitted:
        never = "what anybody answered, or the parameter of anybody"
    devices = terms.noise.by == DEVICES
    own, *others = visibility.sights
    sees = f"masked reports, sums of all {summed} with the noise of all devices"
    if not devices:
        sees = f"one share of each report, sums of all {summed} with the noise of both servers"
    sights = (
        replace(own, sees=sees, never=never),
        *(replace(other, never=f"{never}, or the sums") for other in others),
    )
    if terms.trust is TrustModel.SHUFFLER:
        shuffler, analyzer = visibility.sights
        analyzer = replace(analyzer, sees=_SHUFFLED, never=f"{never}, or whose bit is which")
        device = f"{_CHOSEN} {_CELL}, {_BITS}"
        return replace(visibility, device=device, sights=(shuffler, analyzer))
    if terms.trust is TrustModel.LOCAL:
        device = f"{_CHOSEN} {_CELL}, {_RANDOMIZED}"
        return replace(visibility, device=device, sights=(replace(own, sees=_ALONE, never=never),))
    written = _MOMENTS if isinstance(terms.context, MomentTerms) else _CELL
    if isinstance(terms.context, CornerTerms):
        written = _CORNER
    sent = _MASKED if devices else _SPLIT
    if terms.proofs:
        sent = _SPLIT.replace(" in two,", " in two with a proof that it is one cell,")
    first = f"{_TRIED} fits a parameter to all answers" if fitted else f"{_CHOSEN} {written}"
    return replace(visibility, device=f"{first}, {sent}", sights=sights)


_NOISY = (
    "Each adds its share of the noise to its answer, splits the result in two, encrypts the "
    f"shares, and sends them {_FIXED}."
)
_CHOSEN = "Each chooses an option by what it knows and by chance,"
_TRIED = "Each shows several options one after the other,"
_CELL = "writes context, option and answer as one cell of a table"
_CORNER = "rounds its features at random, writes them and the answer as one cell of a table"
_MOMENTS = "writes products of its features and of features and answer as numbers"
_SPLIT = f"splits all of it in two, encrypts the shares, and sends them {_FIXED}."
_MASKED = (
    "adds its share of the noise to each number, and hides the result under masks that cancel out "
    "in the sum of a round."
)
_RANDOMIZED = f"randomizes every cell, encrypts them, and sends them {_FIXED}."
_BITS = (
    "adds noise bits to each cell, encrypts every bit for the analyzer and all of them once more "
    f"for the shuffler, and sends them {_FIXED}."
)
_SHUFFLED = "the bits of all cells with their noise, in random order"
_ALONE = "each report with all of its cells randomized"
_PROVEN = (
    "Each splits its answer in two, with a proof that it is a possible one, encrypts the shares, "
    f"and sends them {_FIXED}."
)
