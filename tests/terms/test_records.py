"""Records: replaced whole, never back, one winner."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tacit.checks import TacitError
from tacit.records import MemoryRecords, RecordDirectory, Records


@pytest.fixture(params=["memory", "directory"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    return MemoryRecords() if request.param == "memory" else RecordDirectory(tmp_path / "keys")


def test_a_record_is_replaced_only_if_it_is_what_was_said(records: Records) -> None:
    assert records.read(b"a") is None
    assert records.replace(b"a", b"x", b"y") is None
    assert records.replace(b"a", None, b"one") == b"one"
    assert records.replace(b"a", None, b"two") == b"one"
    assert records.replace(b"a", b"one", b"two") == b"two"
    assert records.read(b"a") == b"two"
    assert records.read(b"b") is None


def test_of_many_who_replace_at_once_one_wins_and_all_see_it(records: Records) -> None:
    seen: list[bytes | None] = []
    threads = [
        threading.Thread(target=lambda n=n: seen.append(records.replace(b"r", None, bytes([n]))))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 16
    assert set(seen) == {records.read(b"r")}


def test_key_files_are_for_their_owner_and_leave_nothing_beside(tmp_path: Path) -> None:
    directory = RecordDirectory(tmp_path / "keys")
    directory.replace(b"a", None, b"secret")
    (directory.directory / "61.new").write_bytes(b"what a crash left")
    directory.replace(b"a", b"secret", b"answer")
    files = {file.name: file.stat().st_mode & 0o777 for file in directory.directory.iterdir()}
    assert files == {"61.record": 0o600, "lock": 0o600}
    assert not any(b"secret" in file.read_bytes() for file in directory.directory.iterdir())
    assert RecordDirectory(tmp_path / "keys").read(b"a") == b"answer"


def test_a_directory_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TacitError, match="outside of backups"):
        RecordDirectory(tmp_path / "file" / "keys")
