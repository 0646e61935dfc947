"""Terms of an experiment and their successors as the servers publish them.

Terms are checked against the keys pinned by the app, and successors against their predecessors.
Nothing is stored unless all checks pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.client.budget import decoded
from tacit.client.entries import KnownTerms
from tacit.client.exchange import Conversation, Request, document, text_of, unhex
from tacit.client.ledger import Ledger
from tacit.client.pins import Pins
from tacit.client.trust_models import reporter
from tacit.errors import Rejected, require
from tacit.terms import Pinned, Terms, check_live, check_successor

REFRESH = 3600.0  # seconds until terms are refetched
_MOST_SUCCESSORS = 16
_Successor = tuple[Terms, tuple[bytes, ...], tuple[bytes, ...]]  # signatures, approvals


@dataclass(frozen=True)
class _Copy:
    """One server's copy of terms."""

    terms: Terms
    signatures: tuple[bytes, ...]
    state: str
    successor: _Successor | None


class PublishedTerms:
    """The latest terms of experiments; those that a device verified are kept in its ledger."""

    def __init__(self, ledger: Ledger, pins: Pins, clock: Callable[[], float]) -> None:
        self._ledger, self._pins, self._clock = ledger, pins, clock

    def up_to_date(self, digest: bytes, known: KnownTerms | None) -> Conversation[KnownTerms]:
        """Latest terms of the line, refetched after `REFRESH` seconds or if the pinned keys
        changed.
        """
        if (
            known is None
            or known.named.keys != self._pins.ordered(known.named)
            or not 0 <= self._clock() - known.checked < REFRESH
        ):
            known = yield from self.fetch(digest)
        return known

    def fetch(self, named: bytes) -> Conversation[KnownTerms]:
        """Fetch terms and all their successors; store them only if all checks pass."""
        line: list[tuple[Pinned, str]] = []
        copy = yield from self._copy("the coordinator", self._pins.address, named)
        pinned = self._pinned(copy)
        while True:
            successor = yield from self._compared(pinned, copy)
            line.append((pinned, copy.state))
            if successor is None:
                break
            rule = f"at most {_MOST_SUCCESSORS}. Name later terms"
            count = len(line)
            require(count <= _MOST_SUCCESSORS, "number of successors", count, rule, Rejected)
            pinned = pinned.succeeded_by(*successor)
            where, digest = coordinator_of(pinned.terms), pinned.terms.digest
            copy = yield from self._copy("the coordinator", where, digest)
        now = self._clock()
        with self._ledger.together():
            for index, (shown, state) in enumerate(line):
                self._ledger.remember(shown, state, now, approved=index > 0)
            known = self._ledger.known(named)
        assert known is not None
        return known

    def _pinned(self, copy: _Copy) -> Pinned:
        """Check terms named by the app against the keys that it pinned."""
        pinned = Pinned(copy.terms, copy.signatures, self._pins.ordered(copy.terms))
        predecessor = copy.terms.predecessor
        before = self._ledger.known(predecessor) if predecessor else None
        if before is not None:
            check_successor(before.named, copy.terms)
        return pinned

    def _compared(self, pinned: Pinned, copy: _Copy) -> Conversation[_Successor | None]:
        """The successor of the terms, if the copy of the helper, where there is one, agrees."""
        terms = pinned.terms
        if terms.helper is None:
            return copy.successor
        address = terms.parties[terms.helper].address
        other = yield from self._copy("the helper", address, terms.digest)
        if copy.successor and other.successor and copy.successor[0] != other.successor[0]:
            raise Rejected("coordinator and helper name different successors: must be the same")
        return copy.successor or other.successor

    def _copy(self, party: str, address: str, digest: bytes) -> Conversation[_Copy]:
        """Fetch and check the terms that one party publishes."""
        url = f"{address.rstrip('/')}/experiments/{digest.hex()}/terms"
        found = document((yield Request("GET", url)), party)
        terms = _terms(found, party)
        asked, got = digest.hex(), terms.digest.hex()
        require(got == asked, f"digest of the terms of {party}", got, f"{asked} as named", Rejected)
        check_live(terms)
        reporter(terms).check_terms(terms)
        successor = found.get("successor")
        holds = successor is None or isinstance(successor, dict)
        require(holds, f"successor of {party}", repr(successor), "a JSON object", Rejected)
        return _Copy(
            terms,
            _signatures(found, "signatures", party),
            text_of(found, "state", party),
            None
            if successor is None
            else (
                _terms(successor, party),
                _signatures(successor, "signatures", party),
                _signatures(successor, "approvals", party),
            ),
        )


def coordinator_of(terms: Terms) -> str:
    """The address of the party that runs the experiment."""
    return terms.parties[terms.leader].address


def _terms(reply: dict[str, object], party: str) -> Terms:
    return decoded(text_of(reply, "terms", party).encode("utf-8", "replace"))


def _signatures(reply: dict[str, object], name: str, party: str) -> tuple[bytes, ...]:
    listed = reply.get(name)
    if not isinstance(listed, list) or len(listed) > 2:
        raise Rejected(f"{name} of {party} are {listed!r}: must be a list of at most two")
    return tuple(unhex(entry, f"a signature of {party}") for entry in listed)
