"""Key files: round trips with the right passphrase, and rejection of any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import keyfiles
from tacit.errors import Rejected, TacitError
from tacit.keyfiles import (
    KeyFile,
    Lock,
    Passphrase,
    load_signing_key,
    load_signing_keys,
    read_key,
    rotate_signing_key,
    save_signing_key,
)
from tacit.signatures import public_key

PHRASE = Passphrase("correct horse battery staple")


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyfiles, "_COST", 1 << 4)


def locks(folder: Path) -> list[Lock]:
    (folder / "lock").write_bytes(bytes(range(40)))
    return [PHRASE, KeyFile(folder / "lock")]


def test_key_files_round_trip(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    for lock in locks(tmp_path):
        save_signing_key(tmp_path / "key", key, lock)
        assert public_key(load_signing_key(tmp_path / "key", lock)) == public_key(key)


def test_a_signing_key_round_trips_and_rotation_keeps_the_old_one(tmp_path: Path) -> None:
    path, key = tmp_path / "signing", Ed25519PrivateKey.generate()
    save_signing_key(path, key, PHRASE)
    fresh = rotate_signing_key(path, PHRASE)
    assert public_key(load_signing_key(path, PHRASE)) == public_key(fresh) != public_key(key)
    (aside,) = (other for other in tmp_path.iterdir() if other != path)
    assert public_key(load_signing_key(aside, PHRASE)) == public_key(key)


def test_a_key_finds_its_predecessors_under_any_file_name(tmp_path: Path) -> None:
    """And no other's: names may hold what would match several."""
    for name in ("key", "k*y", "key[1]", "?ey"):
        old = Ed25519PrivateKey.generate()
        save_signing_key(tmp_path / name, old, PHRASE)
        fresh = rotate_signing_key(tmp_path / name, PHRASE)
        kept = load_signing_keys(tmp_path / name, PHRASE)
        assert [public_key(key) for key in kept] == [public_key(fresh), public_key(old)]


def test_wrong_locks_and_altered_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    save_signing_key(path, Ed25519PrivateKey.generate(), PHRASE)
    good = path.read_bytes()
    (tmp_path / "other").write_bytes(bytes(40))
    for lock in (Passphrase("correct horse battery stable"), KeyFile(tmp_path / "other")):
        with pytest.raises(Rejected, match="cannot be decrypted"):
            load_signing_key(path, lock)
    for place in (*range(len(good)),):
        path.write_bytes(good[:place] + bytes((good[place] ^ 1,)) + good[place + 1 :])
        with pytest.raises(Rejected):
            load_signing_key(path, PHRASE)
    for cut in (0, 10, 56, 57, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(Rejected):
            load_signing_key(path, PHRASE)
    path.write_bytes(good)
    with pytest.raises(Rejected, match="not a key file of kind"):
        read_key(path, b"another kind", PHRASE)
    assert load_signing_key(path, PHRASE)


def test_a_key_file_is_encrypted_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    save_signing_key(tmp_path / "keys", key, PHRASE)
    data = (tmp_path / "keys").read_bytes()
    assert key.private_bytes_raw() not in data
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert "horse" not in repr(PHRASE)
    save_signing_key(tmp_path / "again", key, PHRASE)
    assert (tmp_path / "again").read_bytes() != data


def test_unusable_paths_are_reported_and_leave_no_files(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "short").write_bytes(bytes(31))
    bad: list[tuple[Lock, str]] = [
        (Passphrase("short"), "at least 8"),
        (KeyFile(tmp_path / "short"), "at least 32"),
        (KeyFile(tmp_path / "nowhere"), "cannot be read"),
    ]
    for lock, reason in bad:
        with pytest.raises(TacitError, match=reason):
            save_signing_key(tmp_path / "keys", key, lock)
    with pytest.raises(TacitError, match="cannot be written"):
        save_signing_key(tmp_path / "no" / "keys", key, PHRASE)
    with pytest.raises(TacitError, match="cannot be read"):
        load_signing_key(tmp_path / "keys", PHRASE)
    assert [path.name for path in tmp_path.iterdir()] == ["short"]


def test_locks_of_the_minimum_length_are_accepted_and_shorter_ones_rejected(tmp_path: Path) -> None:
    assert Passphrase("eight by").material() == b"eight by"
    (tmp_path / "key").write_bytes(bytes(32))
    assert KeyFile(tmp_path / "key").material() == bytes(32)
    (tmp_path / "key").write_bytes(bytes(31))
    for lock in (Passphrase("seven b"), KeyFile(tmp_path / "key")):
        with pytest.raises(TacitError, match="must have at least"):
            lock.material()
