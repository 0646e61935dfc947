"""Records: compare-and-swap, atomic files, no rollback."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tacit.errors import TacitError, Unavailable
from tacit.records import MemoryRecords, RecordDirectory, Records


@pytest.fixture(params=["memory", "directory"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    return MemoryRecords() if request.param == "memory" else RecordDirectory(tmp_path / "keys")


def test_a_record_is_replaced_by_compare_and_swap(records: Records) -> None:
    assert records.read(b"a") is None
    assert records.replace(b"a", b"x", b"y") is None
    assert records.replace(b"a", None, b"one") == b"one"
    assert records.replace(b"a", None, b"two") == b"one"
    assert records.replace(b"a", b"one", b"two") == b"two"
    assert records.read(b"a") == b"two"
    assert records.read(b"b") is None


def test_one_of_many_concurrent_replacements_wins(records: Records) -> None:
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


def test_key_files_are_readable_by_their_owner_and_leave_no_temporary_files(tmp_path: Path) -> None:
    directory = RecordDirectory(tmp_path / "keys")
    directory.replace(b"a", None, b"secret")
    (directory.directory / "61.new").write_bytes(b"what a crash left")
    directory.replace(b"a", b"secret", b"answer")
    files = {file.name: file.stat().st_mode & 0o777 for file in directory.directory.iterdir()}
    assert files == {"61.record": 0o600, "lock": 0o600}
    assert not any(b"secret" in file.read_bytes() for file in directory.directory.iterdir())
    assert RecordDirectory(tmp_path / "keys").read(b"a") == b"answer"


def test_a_missing_directory_is_unavailable_not_empty(tmp_path: Path) -> None:
    directory = RecordDirectory(tmp_path / "keys")
    directory.replace(b"a", None, b"kept")
    away = directory.directory.rename(tmp_path / "away")
    for name in (b"a", b"b"):
        with pytest.raises(Unavailable, match="are unavailable"):
            directory.read(name)
    away.rename(directory.directory)
    assert (directory.read(b"a"), directory.read(b"b")) == (b"kept", None)


def test_an_unmounted_volume_is_unavailable_not_empty(
    tmp_path: Path,
) -> None:
    directory = RecordDirectory(tmp_path / "keys")
    directory.replace(b"a", None, b"kept")
    away = directory.directory.rename(tmp_path / "away")
    directory.directory.mkdir()
    for name in (b"a", b"b"):
        with pytest.raises(Unavailable, match="mount the volume"):
            directory.read(name)
        with pytest.raises(Unavailable, match="nothing was changed"):
            directory.replace(name, None, b"new")
    with pytest.raises(TacitError, match="mount its volume"):
        RecordDirectory(tmp_path / "keys", used=True)
    assert not list(directory.directory.iterdir())
    directory.directory.rmdir()
    with pytest.raises(TacitError, match="mount its volume"):
        RecordDirectory(tmp_path / "keys", used=True)
    away.rename(directory.directory)
    again = RecordDirectory(tmp_path / "keys", used=True)
    assert (again.read(b"a"), again.read(b"b")) == (b"kept", None)


WRITER = """
import sys
from tacit.records import RecordDirectory
records = RecordDirectory(sys.argv[1])
held = records.read(b"r")
number = int.from_bytes(held[:8], "big") if held else 0
while True:
    new = (number + 1).to_bytes(8, "big") * 20_000
    assert records.replace(b"r", held, new) == new
    held, number = new, number + 1
    print(number, flush=True)
"""


def test_a_killed_process_leaves_whole_records_and_reverts_none(
    tmp_path: Path,
) -> None:
    """Killed without warning, again and again: what was reported is there, and nothing is torn."""
    records = RecordDirectory(tmp_path)
    for count in (3, 20, 41, 7):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(count)]
            writer.kill()
            said += [int(line) for line in writer.stdout if line.endswith("\n")]
        held = records.read(b"r") or b""
        number = int.from_bytes(held[:8], "big")
        assert held == number.to_bytes(8, "big") * 20_000
        assert number in (said[-1], said[-1] + 1)
        records.replace(b"r", held, held)


def test_a_record_renamed_by_a_killed_process_is_synced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed before it synced the directory: what is read then and handed on would
    be taken back if the machine failed next.
    """
    held = RecordDirectory(tmp_path).replace(b"r", None, b"answer")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    started = RecordDirectory(tmp_path)
    assert synced == [tmp_path.stat().st_ino]
    assert started.read(b"r") == held


def test_unusable_files_give_an_error_message(tmp_path: Path) -> None:
    records = RecordDirectory(tmp_path / "keys")
    (tmp_path / "keys" / "61.record").mkdir()
    with pytest.raises(TacitError, match="are unavailable"):
        records.read(b"a")
    with pytest.raises(TacitError, match="nothing was changed"):
        records.replace(b"a", None, b"x")


def test_a_directory_that_cannot_be_created_gives_an_error_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TacitError, match="outside of backups"):
        RecordDirectory(tmp_path / "file" / "keys")
