"""Collector of aggregation with two servers: adds one partial sum of each server, once per round.

The collector's key for the round stays on record until both servers have answered; then the sum or
the abort replaces it. A server's first answer stands: repetitions are accepted, a different answer
is rejected.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping

from tacit.aggregation.aggregator import partial_head, partial_info
from tacit.aggregation.aggregator_context import SECRET_SIZE
from tacit.aggregation.agreement import derive
from tacit.aggregation.announcements import accept
from tacit.aggregation.encryption import HpkeSuite, PrivateKey, suite_numbered
from tacit.aggregation.interface import SYSTEM, Rejected, Source, SumView, UnknownRound, expect
from tacit.aggregation.two_servers import RoundOutcome, TwoServerRound, read_outcome
from tacit.aggregation.wire import (
    Kind,
    body,
    leading_bytes,
    leading_fields,
    pack_numbers,
    unpack_numbers,
)
from tacit.records import Records
from tacit.signatures import SIGNATURE_SIZE, Signed, verify
from tacit.terms import Pinned

_MADE, _RELEASED, _ABORTED = b"\x01", b"\x02", b"\x03"


def prepare_collector(
    records: Records, identity: bytes, suite: HpkeSuite, source: Source = SYSTEM
) -> bytes:
    """Make the collector's public key for a new round; its secret is on record before this returns.

    Repeated calls return the same key. `source` is for test vectors only.
    """
    fresh = _MADE + bytes((suite,)) + source(SECRET_SIZE)
    made = records.replace(_key_name(identity), None, fresh) or fresh
    if made[:2] != _MADE + bytes((suite,)):
        raise Rejected("round is over, or was prepared for another suite. Prepare a new round")
    return _key(made, identity).public()


class Collector:
    """The party that learns the sum: it takes each server's answer and adds the two partial sums.

    Its whole state is in `records`: it can be recreated at any time, and several may share them.
    """

    def __init__(self, pinned: Pinned, announcement: bytes, records: Records) -> None:
        self.round = accept(TwoServerRound, pinned, announcement)
        self._pinned = pinned
        self._records = records
        held = records.read(_key_name(self.round.identity))
        if held is None or (
            held[:1] == _MADE and _key(held, self.round.identity).public() != self.round.collector
        ):
            raise UnknownRound("collector has no record with the key of this round")

    def __repr__(self) -> str:
        return f"Collector(round={self.round.identity.hex()})"

    @property
    def over(self) -> bool:
        """Whether the sum or the abort is on record."""
        held = self._records.read(_key_name(self.round.identity))
        return held is not None and held[:1] != _MADE

    def take(self, message: bytes) -> None:
        """Accept a server's partial sum or its signed abort; a repetition changes nothing."""
        kind = message[3] if isinstance(message, bytes) and len(message) > 3 else None
        known = Kind.OUTCOME if kind == Kind.OUTCOME else Kind.PARTIAL
        role = leading_bytes(body(message, known, self.round.identity), 1, "answer")[0]
        expect(role in (0, 1), "role of the server", role, "0 or 1")
        name = _answer_name(role, self.round.identity)
        kept = self._records.read(name)
        if kept is None:
            self._content(role, message)
            kept = self._records.replace(name, None, message)
        if kept != message:
            raise Rejected(f"server {role} gave another answer before: must be the same")

    def close(self) -> Mapping[bytes, bytes]:
        """Add the two partial sums, if they cover the same reports.

        Raises `Rejected` until both servers have answered or one has aborted; does nothing
        afterwards.
        """
        name = _key_name(self.round.identity)
        held = self._records.read(name)
        if held is not None and held[:1] == _MADE:
            answers = [self._records.read(_answer_name(role, name[1:])) for role in (0, 1)]
            said = {n: self._content(n, one) for n, one in enumerate(answers) if one is not None}
            if len(said) < 2 and None not in said.values():
                raise Rejected(f"number of answers is {len(said)}: must be 2. The round stays open")
            self._records.replace(name, held, self._result(said))
        return {}

    def view(self) -> SumView:
        """The sum of the reports that both servers hold, with the noise of both."""
        held = self._records.read(_key_name(self.round.identity))
        if held is None or held[:1] == _MADE:
            raise Rejected("round is not released: there is no sum")
        if held[:1] == _ABORTED:
            raise Rejected(held[1:].decode("utf-8", "replace"))
        counted = struct.Struct(">II" if self.round.proofs else ">I")
        counts, rest = leading_fields(counted, held[1:], "sum")
        numbers = unpack_numbers(rest, self.round.modulus, self.round.length, "sum")
        return SumView(tuple(numbers), *counts)

    def _result(self, answers: Mapping[int, bytes | None]) -> bytes:
        """The record that replaces the key: the sum, or the reason for the abort."""
        first, second = answers.get(0), answers.get(1)
        if first is None or second is None:
            who = " and ".join(str(n) for n, content in answers.items() if content is None)
            return _abort(
                f"server {who} aborted the round, whose minimum batch size is {self.round.minimum}"
            )
        size = partial_head(self.round).size
        about, other = (content[:size] for content in (first, second))
        if about != other:
            return _abort("servers added up different reports. Nothing was released")
        reports, _, *rejected = partial_head(self.round).unpack(about)
        if not self.round.minimum <= reports <= self.round.slots:
            return _abort(f"number of reports is {reports}: must be {self.round.minimum} or more")
        m, length = self.round.modulus, self.round.length
        sums = (
            unpack_numbers(content[size:], m, length, "partial sum") for content in (first, second)
        )
        numbers = [sum(pair) % m for pair in zip(*sums, strict=True)]
        counts = struct.pack(f">{1 + len(rejected)}I", reports, *rejected)
        return _RELEASED + counts + pack_numbers(numbers, m)

    def _content(self, role: int, message: bytes) -> bytes | None:
        """The content that a server signed: the partial sum, or None for an abort."""
        if message[3] == Kind.OUTCOME:
            _, said = read_outcome(self._pinned, self.round, message)
            aborted = said is RoundOutcome.ABORTED
            expect(aborted, f"outcome of server {role}", said.name, "ABORTED, or a partial sum")
            return None
        held = self._records.read(_key_name(self.round.identity))
        if held is None or held[:1] != _MADE:
            raise Rejected("round is over: it accepts no more answers")
        about = self.round.context + bytes((role,))
        encrypted = body(message, Kind.PARTIAL, self.round.identity)[1:]
        content = _key(held, self.round.identity).decrypt(encrypted, partial_info(about))
        signed, signature = content[:-SIGNATURE_SIZE], content[-SIGNATURE_SIZE:]
        key = self._pinned.terms.keys[role]
        verify(Signed.PARTIAL, about + signed, signature, key, f"server {role}")
        about_sum = leading_bytes(signed, partial_head(self.round).size, "partial sum")
        rest = signed[len(about_sum) :]
        unpack_numbers(rest, self.round.modulus, self.round.length, "partial sum")
        return signed


def _abort(reason: str) -> bytes:
    return _ABORTED + reason.encode()


def _key_name(identity: bytes) -> bytes:
    return b"c" + identity


def _answer_name(role: int, identity: bytes) -> bytes:
    return b"a" + bytes((role,)) + identity


def _key(made: bytes, identity: bytes) -> PrivateKey:
    if len(made) != 2 + SECRET_SIZE:
        raise Rejected("record of the round is damaged")
    material = io.BytesIO(derive(made[2:], identity, b"tacit collector key v2", 128))
    return PrivateKey.new(suite_numbered(made[1]), material.read)
