"""Small records that are replaced whole and never go back: what decides that nothing is said twice.

A party keeps here what must survive a crash and must not come back with a backup: the key of a
round until its answer takes the place, the one successor that it signed. `replace` is a
compare-and-swap that returns what is there afterwards, and only that may be handed on. Keep these
records out of backups and volume snapshots.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tacit.errors import TacitError, Unavailable


class Records(Protocol):
    """Named records of bytes."""

    def read(self, name: bytes) -> bytes | None:
        """The record of this name; None if there is none."""

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        """Puts `new` in the place of `old`, None for none, and keeps it there whatever happens; if
        something else is there, that stays. Returns what is there afterwards.
        """


class MemoryRecords:
    """Records of one process, for tests and simulations."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def read(self, name: bytes) -> bytes | None:
        """The record of this name; None if there is none."""
        return self._records.get(name)

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        """Compare and swap."""
        with self._lock:
            if self._records.get(name) == old:
                self._records[name] = new
            return self._records.get(name)


class RecordDirectory:
    """A file per record in one directory, shared by the processes of a party.

    A file is replaced under an exclusive lock: written aside, synced, renamed, the directory
    synced. It holds keys, so nobody but its owner may read it.

    What is locked is a file that is made with the directory and never again. So a directory without
    it is none of ours: it is what is left where a volume is not mounted. `used` says that there was
    one before; then none is made.
    """

    def __init__(self, directory: str | os.PathLike[str], *, used: bool = False) -> None:
        self.directory = Path(directory)
        self._lock = self.directory / "lock"
        if used and not self._lock.exists():
            raise TacitError(
                f"{self.directory} is not the directory that the key files of this party were in: "
                "mount its volume, or name it as records. If they are lost for good, all open "
                f"rounds are: say so with `mkdir -pm 700 {self.directory}; touch {self._lock}`"
            )
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            _sync(self.directory)  # what a killed process had renamed
        except OSError as problem:
            raise TacitError(
                f"the directory for key files {self.directory} cannot be made ({problem.strerror}):"
                " name one that this process may write to, outside of backups"
            ) from None

    def read(self, name: bytes) -> bytes | None:
        """The record of this name; None if there is none. A directory that is away, as a volume may
        be for a while, has lost nothing: nothing is known of its records.
        """
        with self._usable():
            try:
                return _content(f"{self.directory}/{name.hex()}.record")
            except FileNotFoundError:
                self._lock.stat()
        return None

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        """Compare and swap, across processes; on disk before it returns."""
        with self._usable(), self._locked():
            found = self.read(name)
            if found == old:
                self._write(self._path(name), new)
                found = new
            return found

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise Unavailable(
                f"the key files in {self.directory} cannot be used ({problem.strerror}); nothing "
                "was changed: mount the volume, free the disk or mend the permissions, and try "
                "again"
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all processes that use the directory."""
        try:
            import fcntl  # not everywhere, and needed by nobody else
        except ImportError:
            raise TacitError("key files need a system with file locks, such as Linux") from None
        handle = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _path(self, name: bytes) -> Path:
        return self.directory / f"{name.hex()}.record"

    def _write(self, path: Path, content: bytes) -> None:
        aside = path.with_suffix(".new")
        with suppress(FileNotFoundError):
            aside.unlink()
        put(path, aside, content)


def put(path: Path, aside: Path, content: bytes) -> None:
    """Puts a file that only its owner may read in the place of what is there: written aside,
    synced, renamed, the directory synced.
    """
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Which files there are in a directory is on disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _content(path: str) -> bytes:
    """All bytes of a file, in as few calls as there can be: every report that comes reads one."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size  # a file is replaced, never written to
        content = os.read(handle, size)
        while len(content) < size and (part := os.read(handle, size - len(content))):
            content += part
        return content
    finally:
        os.close(handle)
