"""Codecs from a protocol's messages to an aggregation's inputs, and from its view to the aggregate.

Sums modulo m travel as residues, through secure aggregation (masking) or two servers. The two
servers add their own noise where the protocol requires it. Verified reports travel as levels and
are summed in the field of their proofs (`tacit.vdaf`).

Shuffled shares and bits travel as separate numbers of equal width. A label precedes each where
there are several coordinates, groups or metrics. The codec regroups a shuffler's view into messages
in any consistent way, and the protocol combines them. The aggregate is the same for every such
grouping.

`FITS` lists which protocol fits which aggregation. A new protocol needs an entry there or in
`UNCARRIED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.aggregation import OwnNoise, Rejected, ShuffledView, SumView
from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace
from tacit.noise.parameters import stated_parameter
from tacit.protocols.continuous import CentralLaplace, Exact
from tacit.protocols.contract import Protocol
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.joint import JointSums
from tacit.protocols.l2_sums import CentralBall, LocalBall, SecureBall, ShuffledBall
from tacit.protocols.prefix_messages import MODULUS_BITS, Shares
from tacit.protocols.prefix_sums import CentralPrefixRound, PrefixRound, ShuffledPrefixRound
from tacit.protocols.pure_shuffle import GroupMessage, PureShuffle
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.statistic_sums import (
    CentralStatistic,
    ExactStatistic,
    SecureStatistic,
    ShuffledStatistic,
    ShuffledTable,
    TwoServerStatistic,
    UnaryStatistic,
)
from tacit.protocols.sums import Central, Local, SecureSum, TwoServers, Verified
from tacit.protocols.vectors import CentralVectors as CentralVector
from tacit.protocols.vectors import LocalVectors as LocalVector
from tacit.protocols.vectors import Plain, SeparateSums
from tacit.types import Aggregate, Estimate
from tacit.vdaf import MODULUS, MODULUS128

SUMS, SHUFFLE, VERIFIED = ("masking", "two-servers"), ("mixing",), ("verified",)


@dataclass(frozen=True)
class Residues:
    """One residue modulo m per coordinate; only their sums are visible.

    The view of a verified round is modulo the prime of its field, where the upper half represents
    negative sums.
    """

    protocol: Protocol
    modulus: int
    noise: OwnNoise | None = None
    verified: bool = False

    @property
    def field(self) -> int:
        """The prime of a verified round: that of proofs of tables, or of levels."""
        return MODULUS128 if isinstance(self.protocol, TwoServerStatistic) else MODULUS

    @property
    def settings(self) -> Mapping[str, Any]:
        """Arguments of the aggregation, without the counts of participants."""
        own = {} if self.noise is None else {"noise": self.noise}
        return own if self.verified else {"modulus": self.modulus, **own}

    def payload(self, message: Any) -> list[int]:
        """The residues of a report."""
        numbers = [int(part) for part in np.ravel(np.array(message, dtype=object))]
        if len(numbers) != self.protocol.coordinates:
            raise TacitError(
                f"the message has {len(numbers)} numbers: {type(self.protocol).__name__} sends "
                f"{self.protocol.coordinates}"
            )
        return numbers

    def released(self, view: SumView) -> Aggregate:
        """The sums; too few or too many reports are rejected."""
        self.protocol.check_reports(view.reports)
        if not self.verified:
            return Aggregate(view.numbers, view.reports)
        prime = self.field
        signed = [number - prime * (number > prime // 2) for number in view.numbers]
        return Aggregate(tuple(number % self.modulus for number in signed), view.reports)


@dataclass(frozen=True)
class Mixed:
    """`count` numbers below `bound` per report, each a separate message to the shuffler.

    `flatten` turns a message into numbers. `gather` regroups the numbers of a given count of
    reports into messages.
    """

    protocol: Protocol
    count: int
    bound: int
    flatten: Callable[[Any], Iterable[int]]
    gather: Callable[[list[int], int], Sequence[Any]]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Empty: a shuffler needs to know message sizes only."""
        return {}

    @property
    def size(self) -> int:
        """Fixed number of bytes of a number."""
        return ((self.bound - 1).bit_length() + 7) // 8

    def payload(self, message: Any) -> list[bytes]:
        """The numbers of a report, equal in count and width for all reports."""
        numbers = [int(number).to_bytes(self.size, "big") for number in self.flatten(message)]
        if len(numbers) != self.count:
            raise TacitError(
                f"the message has {len(numbers)} numbers: {type(self.protocol).__name__} sends "
                f"{self.count}"
            )
        return numbers

    def released(self, view: ShuffledView) -> Aggregate:
        """The protocol's aggregate of all numbers; numbers out of range are dropped."""
        numbers = [int.from_bytes(message, "big") for message in view.messages]
        known = [number for number in numbers if number < self.bound]
        return self.protocol.combine(self.gather(known, view.reports))


Codec = Residues | Mixed


def _residues(
    protocol: SecureSum | Local | RandomizedBits | SecureVector | SecureBall | SecureStatistic,
) -> Residues:
    return Residues(protocol, protocol.modulus)


def _split(protocol: TwoServers) -> Residues:
    """Exact levels; the servers draw the noise."""
    scale = Fraction(protocol.distribution.scale)
    noise = OwnNoise(protocol.precision, scale, lambda wide: int(DiscreteLaplace(wide).draw()))
    return Residues(protocol, protocol.modulus, noise)


def _counted(protocol: TwoServerStatistic) -> Residues:
    """A statistic's exact integers; the servers draw noise of one scale for all of them."""
    kinds = dict.fromkeys(protocol.own)
    if len(kinds) > 1:
        raise TacitError(
            f"{type(protocol.statistic).__name__} has noise of several widths: must have one. Use "
            "tables, or scaled moments"
        )
    (kind,) = kinds
    _, scale = stated_parameter(kind)
    own = OwnNoise(protocol.statistic.precision, scale, lambda _scale: int(kind.draw()))
    return Residues(protocol, protocol.modulus, own)


def _modular_codec(protocol: PrefixRound) -> Residues:
    _check_integral(protocol)
    return Residues(protocol, 1 << MODULUS_BITS)


def _check_integral(protocol: PrefixRound) -> None:
    if not protocol.sums.integral:
        raise TacitError(
            f"noise of the prefix sums is {protocol.sums.noise!r}: aggregation needs integers. Use "
            "discrete-gaussian or skellam for masking or two-servers, binomial for mixing."
        )


def _shares(protocol: Protocol, count: int, modulus: int) -> Mixed:
    """Additive shares of one number; all are needed."""

    def gather(shares: list[int], reports: int) -> list[list[int]]:
        _check_all(len(shares), reports * count, "shares")
        return _rows(shares, count)

    return Mixed(protocol, count, modulus, list, gather)


def _check_all(arrived: int, expected: int, name: str) -> None:
    """Reject a view with an invalid message."""
    if arrived != expected:
        raise Rejected(
            f"{arrived} of {expected} {name} arrived, so the round is aborted and nothing is "
            "released: open a new round"
        )


def _bits(protocol: Protocol, count: int) -> Mixed:
    """Separate bits of one number."""

    def gather(bits: list[int], reports: int) -> list[list[int]]:
        return _rows(_pad_bits(bits, reports * count), count)

    return Mixed(protocol, count, 2, list, gather)


def _labelled(protocol: Protocol, part: Mixed) -> Mixed:
    """Several coordinates or metrics, each encoded by `part` and labelled with its index."""
    labels = protocol.coordinates

    def flatten(message: Sequence[Any]) -> list[int]:
        return [
            label * part.bound + int(number)
            for label, one in enumerate(message)
            for number in part.flatten(one)
        ]

    def gather(numbers: list[int], reports: int) -> list[tuple[Any, ...]]:
        columns = [part.gather(pile, reports) for pile in _by_label(numbers, labels, part.bound)]
        return list(zip(*columns, strict=True))

    return Mixed(protocol, labels * part.count, labels * part.bound, flatten, gather)


def _prefix_parts(protocol: ShuffledPrefixRound) -> Mixed:
    _check_integral(protocol)
    form = protocol.sums.form(protocol.step)
    if isinstance(form, Shares):
        return _labelled(protocol, _shares(protocol, form.count, 1 << MODULUS_BITS))
    return _labelled(protocol, _bits(protocol, form.bits))


def _own_bits(protocol: ShuffledBits | ShuffledVector) -> Mixed:
    return _bits(protocol, protocol.precision + protocol.noise_bits)


def _own_shares(protocol: SplitAndMix | ShuffledBall) -> Mixed:
    """Additive shares, as many as the protocol makes."""
    return _shares(protocol, protocol.shares, protocol.modulus)


def _bits_by_group(protocol: PureShuffle) -> Mixed:
    """Bits labelled by group; each message carries the same number of bits."""
    count, labels = int(protocol.bits_per_participant), protocol.groups

    def flatten(message: GroupMessage) -> list[int]:
        return [2 * message.group + bit for bit in message.bits]

    def gather(numbers: list[int], reports: int) -> list[GroupMessage]:
        _check_all(len(numbers), reports * count, "bits")
        return [
            GroupMessage(group, tuple(row))
            for group, bits in enumerate(_by_label(numbers, labels, 2))
            for row in _rows(bits, count)
        ]

    return Mixed(protocol, count, 2 * labels, flatten, gather)


def _joined(protocol: JointSums) -> Codec:
    """Every metric encoded by its part: residues side by side, or numbers labelled by metric."""
    part = FITS[_known(protocol.part)][1](protocol.part)
    if isinstance(part, Residues):
        return Residues(protocol, part.modulus, part.noise)
    return _labelled(protocol, part)


def _rows(items: list[int], width: int) -> list[list[int]]:
    return [items[start : start + width] for start in range(0, len(items), width)]


def _by_label(numbers: Iterable[int], labels: int, bound: int) -> list[list[int]]:
    """The numbers by their label."""
    piles: list[list[int]] = [[] for _ in range(labels)]
    for number in numbers:
        piles[number // bound].append(number % bound)
    return piles


def _pad_bits(bits: list[int], expected: int) -> list[int]:
    """Pad or truncate bits to the expected count, which poisoning can change.

    Missing bits count as 0. Of excess bits zeros are dropped first, so up to `expected` ones count.
    """
    ones = min(sum(bits), expected)
    return [1] * ones + [0] * (expected - ones)


FITS: dict[type[Protocol], tuple[tuple[str, ...], Callable[[Any], Codec]]] = {
    SecureSum: (SUMS, _residues),
    TwoServers: (("two-servers", *VERIFIED), _split),
    Verified: (VERIFIED, _split),
    TwoServerStatistic: (("two-servers",), _counted),
    SecureStatistic: (("masking",), _residues),
    Local: (SUMS, _residues),
    RandomizedBits: (SUMS, _residues),
    SecureVector: (SUMS, _residues),
    SecureBall: (SUMS, _residues),
    PrefixRound: (SUMS, _modular_codec),
    ShuffledPrefixRound: (SHUFFLE, _prefix_parts),
    SplitAndMix: (SHUFFLE, _own_shares),
    ShuffledBits: (SHUFFLE, _own_bits),
    ShuffledVector: (SHUFFLE, lambda protocol: _labelled(protocol, _own_bits(protocol))),
    ShuffledBall: (SHUFFLE, lambda protocol: _labelled(protocol, _own_shares(protocol))),
    ShuffledTable: (
        SHUFFLE,
        lambda protocol: _labelled(protocol, _bits(protocol, 1 + protocol.noise_bits)),
    ),
    PureShuffle: (SHUFFLE, _bits_by_group),
    JointSums: (SUMS + SHUFFLE + VERIFIED, _joined),  # where its part fits
}

_TRUSTED = "its server is trusted to see every report"
_STATISTIC = "its contextual statistics are simulated only in this version"
UNCARRIED: dict[type[Protocol], str] = {
    Exact: _TRUSTED,
    Plain: _TRUSTED,
    Central: _TRUSTED,
    CentralLaplace: _TRUSTED,
    CentralVector: _TRUSTED,
    CentralBall: _TRUSTED,
    CentralPrefixRound: _TRUSTED,
    LocalVector: "its messages are private real numbers: send them directly",
    LocalBall: "its messages are private on their own: send them directly",
    ExactStatistic: _TRUSTED,
    CentralStatistic: _TRUSTED,
    ShuffledStatistic: _STATISTIC,
    UnaryStatistic: "its messages are private on their own: send them directly",
    SeparateSums: "its sums are released separately: use `aggregate`, or the codec of a part",
}


def codec(protocol: Protocol, aggregation: str) -> Codec:
    """Select the codec of a protocol for an aggregation.

    Parameters
    ----------
    protocol : Protocol
        The protocol of the round.
    aggregation : str
        The aggregation: ``"masking"``, ``"two-servers"``, ``"mixing"`` or ``"verified"``.

    Returns
    -------
    Residues or Mixed
        The codec of the protocol's messages.

    Raises
    ------
    TacitError
        If the aggregation is unknown or does not fit the protocol.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> codec(SecureSum(40, 1, DiscreteLaplace(1), PureDP(1.0)), "two-servers").payload(7)
    [7]
    """
    fitting = [kind.__name__ for kind, (ways, _) in FITS.items() if aggregation in ways]
    if not fitting:
        raise TacitError(
            f"aggregation is {aggregation!r}: must be one of {', '.join(SUMS + SHUFFLE + VERIFIED)}"
        )
    one = protocol.part if isinstance(protocol, JointSums) else protocol
    name, kind, takes = type(one).__name__, _known(one), f"{aggregation} takes {', '.join(fitting)}"
    if kind is Protocol:
        raise TacitError(f"{name} has no codec: add it to FITS. {takes}")
    if kind in UNCARRIED:
        raise TacitError(f"{name} does not fit {aggregation}: {UNCARRIED[kind]}. {takes}")
    ways, _ = FITS[kind]
    if aggregation not in ways:
        raise TacitError(
            f"{name} does not fit {aggregation}: it fits {' and '.join(ways)}. {takes}"
        )
    found: Codec = FITS[_known(protocol)][1](protocol)
    if aggregation in VERIFIED and isinstance(found, Residues):
        return replace(found, verified=True)
    return found


def _known(protocol: Protocol) -> type[Protocol]:
    """The class under which the tables list a protocol; `Protocol` if they do not."""
    kinds = (kind for kind in type(protocol).__mro__ if kind in FITS or kind in UNCARRIED)
    return next(kinds, Protocol)


def payload(protocol: Protocol, message: Any, aggregation: str) -> list[int] | list[bytes]:
    """Encode a device's message for the aggregation."""
    return codec(protocol, aggregation).payload(message)


def released(protocol: Protocol, view: SumView | ShuffledView, aggregation: str) -> Aggregate:
    """Decode the aggregation's view into the protocol's aggregate."""
    return codec(protocol, aggregation).released(view)  # type: ignore[arg-type]


def analyzed(codec_: Codec, view: SumView | ShuffledView) -> Estimate:
    """The estimate from an aggregation's view, through the codec of its round."""
    return codec_.protocol.analyze(codec_.released(view))  # type: ignore[arg-type]
