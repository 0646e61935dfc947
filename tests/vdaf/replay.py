"""Replay of vectors in the layout of the VDAF draft, one operation after another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.errors import Rejected
from tacit.vdaf import (
    HistogramVerifying,
    Prio3,
    Prio3Histogram,
    Verifying,
    prio3_count,
    prio3_histogram,
    prio3_sum,
)
from tacit.vdaf.field import FIELD128


def replay_of(name: str, vector: dict[str, Any]) -> Replay | HistogramReplay | None:
    """The replay of a file's vector; None if it is about no function of ours."""
    if name.startswith("Prio3Histogram_"):
        prio3 = prio3_histogram(vector["length"], vector["chunk_length"])
        return HistogramReplay(vector, prio3=prio3)
    kind = kind_of(name, vector)
    return None if kind is None else Replay(vector, prio3=kind)


def kind_of(name: str, vector: dict[str, Any]) -> Prio3 | None:
    """The kind of report that a file is about; None if it is none of ours."""
    if name.startswith("Prio3Count_"):
        return prio3_count()
    if name.startswith("Prio3Sum_"):
        return prio3_sum(vector["max_measurement"])
    return None


@dataclass
class Steps:
    """The operations of a vector, one after another."""

    vector: dict[str, Any]

    @property
    def context(self) -> bytes:
        return bytes.fromhex(self.vector["ctx"])

    def run(self) -> list[str]:
        """The operations that were rejected as the vector states."""
        rejected = []
        for step in self.vector["operations"]:
            try:
                getattr(self, step["operation"])(step)
                done = True
            except Rejected:
                done = False
            assert done == step["success"], step
            if not done:
                rejected.append(step["operation"])
        return rejected

    def report(self, step: dict[str, Any]) -> Any:
        return self.vector["reports"][step["report_index"]]


@dataclass
class Replay(Steps):
    """Both aggregators and the collector of a vector, compared with its bytes at every step."""

    prio3: Prio3 = field(kw_only=True)
    verifying: dict[tuple[int, int], Verifying] = field(default_factory=dict)
    outputs: dict[int, list[int]] = field(default_factory=lambda: {0: [], 1: []})

    def shard(self, step: dict[str, Any]) -> None:
        report = self.report(step)
        nonce, drawn = bytes.fromhex(report["nonce"]), bytes.fromhex(report["rand"])
        shares = self.prio3.shard(self.context, report["measurement"], nonce, drawn)
        assert [share.hex() for share in shares] == report["input_shares"]
        assert report["public_share"] == ""

    def verify_init(self, step: dict[str, Any]) -> None:
        report, role = self.report(step), step["aggregator_id"]
        key, nonce = bytes.fromhex(self.vector["verify_key"]), bytes.fromhex(report["nonce"])
        asked = self.prio3.question(key, self.context, nonce)
        share = bytes.fromhex(report["input_shares"][role])
        made = self.prio3.verify_init(asked, self.context, role, share)
        assert made.share.hex() == report["verifier_shares"][0][role]
        self.verifying[step["report_index"], role] = made

    def verifier_shares_to_message(self, step: dict[str, Any]) -> None:
        report = self.report(step)
        first, second = (bytes.fromhex(share) for share in report["verifier_shares"][0])
        message = self.prio3.verifier_shares_to_message(first, second)
        assert message.hex() == report["verifier_messages"][0]

    def verify_next(self, step: dict[str, Any]) -> None:
        report, role = self.report(step), step["aggregator_id"]
        message = bytes.fromhex(report["verifier_messages"][0])
        output = self.prio3.verify_next(self.verifying[step["report_index"], role], message)
        assert output.to_bytes(8, "little").hex() == report["out_shares"][role]
        self.outputs[role].append(output)

    def aggregate(self, step: dict[str, Any]) -> None:
        role = step["aggregator_id"]
        share = self.prio3.aggregate(self.outputs[role])
        assert share.to_bytes(8, "little").hex() == self.vector["agg_shares"][role]

    def unshard(self, step: dict[str, Any]) -> None:
        assert step["operation"] == "unshard"
        shares = [bytes.fromhex(share) for share in self.vector["agg_shares"]]
        first, second = (int.from_bytes(share, "little") for share in shares)
        assert self.prio3.unshard(first, second) == self.vector["agg_result"]


@dataclass
class HistogramReplay(Steps):
    """As `Replay`, for Prio3Histogram: with a public share and joint randomness."""

    prio3: Prio3Histogram = field(kw_only=True)
    verifying: dict[tuple[int, int], HistogramVerifying] = field(default_factory=dict)
    outputs: dict[int, list[list[int]]] = field(default_factory=lambda: {0: [], 1: []})

    def shard(self, step: dict[str, Any]) -> None:
        report = self.report(step)
        nonce, drawn = bytes.fromhex(report["nonce"]), bytes.fromhex(report["rand"])
        public, shares = self.prio3.shard(self.context, report["measurement"], nonce, drawn)
        assert public.hex() == report["public_share"]
        assert [share.hex() for share in shares] == report["input_shares"]

    def verify_init(self, step: dict[str, Any]) -> None:
        report, role = self.report(step), step["aggregator_id"]
        key, nonce = bytes.fromhex(self.vector["verify_key"]), bytes.fromhex(report["nonce"])
        asked = self.prio3.question(key, self.context, nonce)
        public, share = (
            bytes.fromhex(data) for data in (report["public_share"], report["input_shares"][role])
        )
        made = self.prio3.verify_init(asked, self.context, nonce, role, public, share)
        assert made.share.hex() == report["verifier_shares"][0][role]
        self.verifying[step["report_index"], role] = made

    def verifier_shares_to_message(self, step: dict[str, Any]) -> None:
        report = self.report(step)
        first, second = (bytes.fromhex(share) for share in report["verifier_shares"][0])
        message = self.prio3.verifier_shares_to_message(self.context, first, second)
        assert message.hex() == report["verifier_messages"][0]

    def verify_next(self, step: dict[str, Any]) -> None:
        report, role = self.report(step), step["aggregator_id"]
        message = bytes.fromhex(report["verifier_messages"][0])
        output = self.prio3.verify_next(self.verifying[step["report_index"], role], message)
        assert FIELD128.pack(output).hex() == report["out_shares"][role]
        self.outputs[role].append(output)

    def aggregate(self, step: dict[str, Any]) -> None:
        role = step["aggregator_id"]
        share = self.prio3.aggregate(self.outputs[role])
        assert FIELD128.pack(share).hex() == self.vector["agg_shares"][role]

    def unshard(self, step: dict[str, Any]) -> None:
        assert step["operation"] == "unshard"
        length = self.prio3.circuit.length
        first, second = (
            FIELD128.unpack(bytes.fromhex(share), length, "an aggregate share")
            for share in self.vector["agg_shares"]
        )
        assert self.prio3.unshard(first, second) == self.vector["agg_result"]
