"""Long-term keys: saved encrypted, loaded the same, never overwritten, rotated by successors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.terms.examples import KEYS, parties, pinned, terms

from tacit import key_files
from tacit.checks import TacitError
from tacit.records import MemoryRecords
from tacit.signatures import fingerprint, public_key
from tacit.terms import approve_successor, cosign

PHRASE, FILE = "correct horse battery", os.urandom(48)


@pytest.mark.parametrize("secret", [PHRASE, FILE])
def test_a_key_is_loaded_as_it_was_saved(tmp_path: Path, secret: str | bytes) -> None:
    key = key_files.create(tmp_path / "key", secret)
    again = key_files.load(tmp_path / "key", secret)
    assert again.private_bytes_raw() == key.private_bytes_raw()
    assert key_files.fingerprint_of(tmp_path / "key") == fingerprint(public_key(key))
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    held = (tmp_path / "key").read_text()
    assert key.private_bytes_raw().hex() not in held


def test_another_secret_or_an_altered_file_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key_files.save(path, KEYS[0], PHRASE)
    for secret in (PHRASE + "!", PHRASE.encode() * 2, FILE):
        with pytest.raises(TacitError, match="does not open"):
            key_files.load(path, secret)
    content = json.loads(path.read_text())
    other = public_key(KEYS[1]).hex()
    sealed = content["sealed"]
    for change in ({"public": other}, {"sealed": sealed[:-2] + "00"}, {"sealed": sealed[:20]}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(TacitError, match="does not open"):
            key_files.load(path, PHRASE)
    for text in ("", "{}", "[]", "null", json.dumps(content | {"kind": "x"}), "\x00"):
        path.write_text(text)
        with pytest.raises(TacitError, match="no key of tacit"):
            key_files.load(path, PHRASE)


def test_a_key_is_never_overwritten_nor_left_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key_files.create(path, PHRASE)
    before = path.read_bytes()
    with pytest.raises(TacitError, match="never overwritten"):
        key_files.create(path, PHRASE)
    assert path.read_bytes() == before
    path.chmod(0o644)
    with pytest.raises(TacitError, match="chmod 600"):
        key_files.load(path, PHRASE)
    with pytest.raises(TacitError, match="there is no key"):
        key_files.load(tmp_path / "none", PHRASE)
    with pytest.raises(TacitError, match="no key can be written"):
        key_files.create(tmp_path / "none" / "key", PHRASE)


@pytest.mark.parametrize("secret", ["", "short", b"", bytes(31)])
def test_weak_secrets_are_refused_before_anything_is_written(
    tmp_path: Path, secret: str | bytes
) -> None:
    with pytest.raises(TacitError, match="at least"):
        key_files.create(tmp_path / "key", secret)
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_rotated_by_successor_terms_that_the_old_one_approves(tmp_path: Path) -> None:
    """A helper with a new key: devices follow because both old keys signed the successor."""
    key_files.save(tmp_path / "old", KEYS[1], PHRASE)
    new = key_files.create(tmp_path / "new", PHRASE)
    before = pinned()
    after = terms(parties=parties(KEYS[0], new), predecessor=before.terms.digest)
    old = key_files.load(tmp_path / "old", PHRASE)
    approvals = [
        approve_successor(before.terms, after, key, MemoryRecords()) for key in (KEYS[0], old)
    ]
    signatures = (cosign(after, KEYS[0]), cosign(after, key_files.load(tmp_path / "new", PHRASE)))
    assert before.succeeded_by(after, signatures, approvals).keys[1] == public_key(new)
