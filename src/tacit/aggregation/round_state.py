"""Round state of a party, kept outside snapshots to prevent rollback.

A party keeps one record per round: first the round's secrets and decisions, finally the answer that
replaces them. Each change is a compare-and-swap, and the party acts only on the record that stands
afterwards. So a copy restored from an older state, or running in parallel, decides nothing twice. A
party without its record does not answer for the round.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NoReturn, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.announcements import RoundDescription
from tacit.aggregation.interface import Rejected, UnknownRound
from tacit.aggregation.two_servers import RoundOutcome
from tacit.aggregation.wire import Kind, header
from tacit.errors import TacitError
from tacit.records import Records
from tacit.signatures import Signed, sign

CONTEXT_SIZE = 32
_UNBOUND = bytes(CONTEXT_SIZE)


class RoundPhase(IntEnum):
    """A party's progress in a round; the value is the first byte of its record."""

    OPEN = 0
    ANSWERED = 1
    ABORTED = 2
    FORGOTTEN = 3


class RoundEntry(NamedTuple):
    """The content of a record, bound to the context of one description.

    While the round is open it holds secrets and decisions, afterwards the answer.
    """

    phase: RoundPhase
    context: bytes
    content: bytes = b""

    @property
    def bound(self) -> bool:
        """Whether a description of the round was signed."""
        return self.context != _UNBOUND

    def encode(self) -> bytes:
        """Serialize the record."""
        return bytes((self.phase,)) + self.context + self.content

    @classmethod
    def decode(cls, data: bytes) -> RoundEntry:
        """Parse a record."""
        return cls(RoundPhase(data[0]), data[1 : 1 + CONTEXT_SIZE], data[1 + CONTEXT_SIZE :])


class PartyRoundState:
    """The record of one party in one round."""

    def __init__(self, records: Records, party: bytes, identity: bytes) -> None:
        self._records = records
        self._name = party + b" " + identity

    def prepare(self, secret: bytes) -> bytes:
        """Store the round's secret, unless one was stored before; return the stored one."""
        first = RoundEntry(RoundPhase.OPEN, _UNBOUND, secret).encode()
        self._records.replace(self._name, None, first)
        found = self.read()
        if found.phase is not RoundPhase.OPEN:
            raise round_over(found.phase)
        return found.content

    @classmethod
    def bound(cls, records: Records, party: bytes, announced: RoundDescription) -> Self:
        """The record of a party, permanently bound to this description of the round."""
        state = cls(records, party, announced.identity)
        state._bind(announced.context)
        return state

    def _bind(self, context: bytes) -> None:
        entry = self.read()
        if entry.phase is RoundPhase.OPEN and entry.context == _UNBOUND:
            entry = self.move(entry, entry._replace(context=context))
        if entry.context != context:
            raise Rejected("description differs from the earlier one: a round has one description")

    def read(self) -> RoundEntry:
        """The current entry; raises `Rejected` if there is no record of the round."""
        found = self.find()
        if found is None:
            raise Rejected("round is unknown: there is no record of it")
        return found

    def find(self) -> RoundEntry | None:
        """The current entry; None if there is no record of the round."""
        found = self._records.read(self._name)
        return None if found is None else RoundEntry.decode(found)

    def entry_of(self, announced: RoundDescription) -> RoundEntry:
        """The entry for this description of the round; raises `UnknownRound` without one."""
        found = self.find()
        if found is None or found.context != announced.context:
            raise UnknownRound("party has no record of this round: it makes no statement about it")
        return found

    def move(self, old: RoundEntry, new: RoundEntry) -> RoundEntry:
        """Compare-and-swap the entry; return the one that stands afterwards."""
        stands = self._records.replace(self._name, old.encode(), new.encode())
        if stands is None:
            raise Rejected("round is unknown: its record is missing")
        return RoundEntry.decode(stands)

    def abort(self) -> RoundEntry:
        """Abort an open round; one that has ended stays as it is."""
        entry = self.read()
        while entry.phase is RoundPhase.OPEN:
            entry = self.move(entry, RoundEntry(RoundPhase.ABORTED, entry.context))
        return entry

    def outcome(self, announced: RoundDescription, role: int, key: Ed25519PrivateKey) -> bytes:
        """The signed outcome of a round that is over.

        A party without a record of this description states UNKNOWN, unsigned. `role` is its index
        among the terms' parties.
        """
        front = header(Kind.OUTCOME, announced.identity) + bytes((role,))
        entry = self.find()
        if entry is None or entry.context != announced.context:
            return front + bytes((RoundOutcome.UNKNOWN,))
        if entry.phase is RoundPhase.OPEN:
            raise Rejected("round is not over yet. Ask again after its deadline")
        said = RoundOutcome.ABORTED if entry.phase is RoundPhase.ABORTED else RoundOutcome.RELEASED
        signed = announced.context + bytes((role, said))
        return front + bytes((said,)) + sign(Signed.OUTCOME, signed, key)


def keep_outcome(records: Records, role: int, identity: bytes, outcome: bytes) -> bytes:
    """Keep the signed outcome of a round under the role of this process; return the kept one."""
    return records.replace(_outcome_name(role, identity), None, outcome) or outcome


def kept_outcome(records: Records, role: int, identity: bytes) -> bytes:
    """The kept outcome of a round; empty until it is over."""
    return records.read(_outcome_name(role, identity)) or b""


def _outcome_name(role: int, identity: bytes) -> bytes:
    return b"outcome of " + bytes((role,)) + identity


def round_over(phase: RoundPhase) -> Rejected:
    """The error for any request about a round that is over."""
    how = {
        RoundPhase.ANSWERED: "released",
        RoundPhase.ABORTED: "aborted",
        RoundPhase.FORGOTTEN: "forwarded and deleted",
    }[phase]
    return Rejected(f"round is over ({how}): it accepts no more messages")


def forbid_copying(self: object, _protocol: object = None) -> NoReturn:
    """For `__reduce_ex__`: pickling or copying would bring used secrets back."""
    raise TacitError(
        f"{type(self).__name__} cannot be pickled or copied: a copy would answer a second time"
    )
