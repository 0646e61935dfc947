"""How a party stands in a round, outside of everything that can be saved and restored.

A party keeps one record per round: first the round's secrets and what it has decided, in the end
the one answer that takes their place. Each change is a compare-and-swap, and only what stands
afterwards is acted on; so a copy of the party that was restored from an older state, or runs beside
another, decides nothing a second time. A party without its record knows nothing and says nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NoReturn, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.checks import TacitError
from tacit.intermediaries.interface import Refusal
from tacit.intermediaries.two_servers import Announced, Outcome
from tacit.intermediaries.wire import Kind, header
from tacit.records import Records
from tacit.signatures import Signed, sign

CONTEXT_SIZE = 32
_UNBOUND = bytes(CONTEXT_SIZE)


class Phase(IntEnum):
    """How far a party is with a round; the number is the first byte of its record."""

    OPEN = 0
    ANSWERED = 1
    REFUSED = 2
    FORGOTTEN = 3


class Entry(NamedTuple):
    """What a record says: the context of the one description that it is tied to, and while the
    round is open its secrets and decisions, then the answer.
    """

    phase: Phase
    context: bytes
    content: bytes = b""

    def encode(self) -> bytes:
        """The bytes of the record."""
        return bytes((self.phase,)) + self.context + self.content

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """What `encode` wrote."""
        return cls(Phase(data[0]), data[1 : 1 + CONTEXT_SIZE], data[1 + CONTEXT_SIZE :])


class Standing:
    """The record of one party in one round."""

    def __init__(self, records: Records, party: bytes, identity: bytes) -> None:
        self._records = records
        self._name = party + b" " + identity

    def prepare(self, secret: bytes) -> bytes:
        """The round's secret: the one given, or the one that was prepared before."""
        first = Entry(Phase.OPEN, _UNBOUND, secret).encode()
        self._records.replace(self._name, None, first)
        found = self.read()
        if found.phase is not Phase.OPEN:
            raise ended(found.phase)
        return found.content

    @classmethod
    def bound(cls, records: Records, party: bytes, announced: Announced) -> Self:
        """A party's record of a round, which is tied to this description, ever: also when it is
        over.
        """
        standing = cls(records, party, announced.identity)
        standing._bind(announced.context)
        return standing

    def _bind(self, context: bytes) -> None:
        entry = self.read()
        if entry.phase is Phase.OPEN and entry.context == _UNBOUND:
            entry = self.move(entry, entry._replace(context=context))
        if entry.context != context:
            raise Refusal(
                "the secrets of this round were made for another description of it; there is one "
                "description per round"
            )

    def read(self) -> Entry:
        """What stands; a `Refusal` if this party knows nothing of the round."""
        found = self.find()
        if found is None:
            raise Refusal("this round is unknown here: there is no record of it")
        return found

    def find(self) -> Entry | None:
        """What stands; None if this party knows nothing of the round."""
        found = self._records.read(self._name)
        return None if found is None else Entry.decode(found)

    def move(self, old: Entry, new: Entry) -> Entry:
        """Puts the new entry in the place of the old one if that still stands; returns what stands
        afterwards.
        """
        stands = self._records.replace(self._name, old.encode(), new.encode())
        if stands is None:
            raise Refusal("this round is unknown here: its record is gone")
        return Entry.decode(stands)

    def refuse(self) -> Entry:
        """Ends an open round without an answer; one that has ended stays as it is."""
        entry = self.read()
        while entry.phase is Phase.OPEN:
            entry = self.move(entry, Entry(Phase.REFUSED, entry.context))
        return entry

    def outcome(self, announced: Announced, role: int, key: Ed25519PrivateKey) -> bytes:
        """What became of a round, for whoever asks: one signed message once it is over. A party
        that has no record of this description of it says so and signs nothing. `role` is its place
        among the terms' parties.
        """
        front = header(Kind.OUTCOME, announced.identity) + bytes((role,))
        entry = self.find()
        if entry is None or entry.context != announced.context:
            return front + bytes((Outcome.UNKNOWN,))
        if entry.phase is Phase.OPEN:
            raise Refusal("this round is not over yet; ask again after its deadline")
        said = Outcome.REFUSED if entry.phase is Phase.REFUSED else Outcome.OPENED
        signed = announced.context + bytes((role, said))
        return front + bytes((said,)) + sign(Signed.OUTCOME, signed, key)


def ended(phase: Phase) -> Refusal:
    """The one answer to whatever is still asked of a round that is over."""
    how = {
        Phase.ANSWERED: "was opened",
        Phase.REFUSED: "was refused and nothing of it was opened",
        Phase.FORGOTTEN: "was handed on and forgotten",
    }[phase]
    return Refusal(f"this round is over: it {how}; it takes no more messages")


def never_copied(self: object, _protocol: object = None) -> NoReturn:
    """For `__reduce_ex__`: pickling and copying would bring secrets back after they were used."""
    raise TacitError(
        f"a {type(self).__name__} is never pickled or copied: a second one would answer a second "
        "time"
    )
