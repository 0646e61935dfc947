"""Encodings of commitment lists, proofs and shares: malformed ones are rejected."""

from __future__ import annotations

import pytest

from tacit.aggregation import Rejected
from tacit.aggregation.share_commitments import (
    SHARE_ENTRY,
    Proof,
    ShareCommitments,
    encode_commitments,
    pack_shares,
    read_shares,
)

LISTED = encode_commitments(bytes(32), {holder: (bytes(32),) * 3 for holder in (1, 2, 3)})
SHARE = bytes(SHARE_ENTRY.size - 4)
TWICE = LISTED.replace((2).to_bytes(4, "big"), (1).to_bytes(4, "big"), 1)


def test_a_list_of_commitments_has_one_entry_for_each_neighbour() -> None:
    assert ShareCommitments.decode(LISTED, 3).holders == (1, 2, 3)
    for data in (LISTED[:-1], LISTED + b"\x00", LISTED[:-100], b""):
        with pytest.raises(Rejected, match="list of commitments is"):
            ShareCommitments.decode(data, 3)
    with pytest.raises(Rejected, match="number of holders of commitments"):
        ShareCommitments.decode(TWICE, 3)


def test_a_proof_has_shares_of_as_many_holders_as_the_threshold() -> None:
    listed = ShareCommitments.decode(LISTED, 3)
    proof = Proof(7, listed, {1: SHARE, 2: SHARE})
    assert Proof.decode(proof.encode(), 3, 2) == proof
    front = proof.encode()[: -2 * SHARE_ENTRY.size]
    for shares in (b"", SHARE_ENTRY.pack(1, SHARE), 2 * SHARE_ENTRY.pack(1, SHARE)):
        with pytest.raises(Rejected, match="number of holders of a proof"):
            Proof.decode(front + shares, 3, 2)


def test_revealed_shares_keep_the_requested_order() -> None:
    data = pack_shares({4: SHARE, 5: SHARE})
    assert read_shares(data, [4, 5], "it") == {4: SHARE, 5: SHARE}
    for asked in ([4], [4, 5, 6]):
        with pytest.raises(Rejected, match="bytes long"):
            read_shares(data, asked, "it")
    for asked in ([5, 4], [4, 6]):
        with pytest.raises(Rejected, match="names other clients"):
            read_shares(data, asked, "it")
    with pytest.raises(Rejected, match="bytes long"):
        read_shares(data[:-1], [4, 5], "it")
    with pytest.raises(Rejected, match="names other clients"):
        read_shares(2 * SHARE_ENTRY.pack(4, SHARE), [4, 4], "it")
