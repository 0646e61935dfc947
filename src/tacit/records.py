"""Durable compare-and-swap records; each round's result is released at most once.

A party keeps here state that must survive a crash but must not be rolled back. Examples are a
round's key until its answer replaces it, and the one successor of the terms that it signed.
`replace` returns the record that is stored afterwards; only that may be sent. Exclude these records
from backups and volume snapshots.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tacit.errors import TacitError, Unavailable

PROBE_SIZE = 1 << 16


class Records(Protocol):
    """A store of named byte records with compare-and-swap."""

    def read(self, name: bytes) -> bytes | None:
        """The record of this name; None if there is none."""

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        """Durably replace a record, if it is still `old`.

        Parameters
        ----------
        name : bytes
            The name of the record.
        old : bytes or None
            The expected record, None for no record. Another record is left as it is.
        new : bytes
            The record to write.

        Returns
        -------
        bytes or None
            The record that is stored afterwards.
        """

    def probe(self) -> None:
        """Raise `Unavailable` if a record could not be written now."""


class MemoryRecords:
    """Records in the memory of one process, for tests and simulations."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def read(self, name: bytes) -> bytes | None:
        """The record of this name; None if there is none."""
        return self._records.get(name)

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        """Compare and swap; return the record that is stored afterwards."""
        with self._lock:
            if self._records.get(name) == old:
                self._records[name] = new
            return self._records.get(name)

    def probe(self) -> None:
        """Memory is always writable."""


class RecordDirectory:
    """One file per record in a directory that all processes of a party share.

    A file is replaced under an exclusive lock: written aside, synced, renamed, directory synced. It
    contains keys, so only its owner may read it.

    The lock file is created with the directory and never again. So a directory without it is not a
    record directory but, for instance, an unmounted volume. `used` states that the directory
    existed before; then none is created.
    """

    def __init__(self, directory: str | os.PathLike[str], *, used: bool = False) -> None:
        self.directory = Path(directory)
        self._lock = self.directory / "lock"
        if used and not self._lock.exists():
            raise TacitError(
                f"records is {self.directory}, which lacks this party's key files: mount its "
                "volume, or correct records. If they are lost, so are all open rounds: confirm "
                f"that with `mkdir -pm 700 {self.directory}; touch {self._lock}`"
            )
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            _sync(self.directory)  # flush the renames of a process that was killed
        except OSError as problem:
            raise TacitError(
                f"records is {self.directory}: it cannot be created ({problem.strerror}). Choose "
                "a directory that this process may write, outside of backups."
            ) from None

    def read(self, name: bytes) -> bytes | None:
        """The record of this name; None if there is none.

        An unavailable directory, such as an unmounted volume, raises `Unavailable` instead.
        """
        with self._usable():
            try:
                return _content(f"{self.directory}/{name.hex()}.record")
            except FileNotFoundError:
                self._lock.stat()
        return None

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        """Compare and swap across processes; on disk before it returns."""
        with self._usable(), self._locked():
            found = self.read(name)
            if found == old:
                path = self.directory / f"{name.hex()}.record"
                aside = path.with_suffix(".new")
                aside.unlink(missing_ok=True)
                put(path, aside, new)
                found = new
            return found

    def probe(self) -> None:
        """Write a file as large as many records, and delete it; raise `Unavailable` on failure."""
        with self._usable():
            self._lock.stat()
            probe_disk(self.directory)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise Unavailable(
                f"the key files in {self.directory} are unavailable ({problem.strerror}); nothing "
                "was changed: mount the volume, free disk space or correct the permissions, then "
                "retry"
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the exclusive lock of the directory."""
        try:
            import fcntl  # not on every platform
        except ImportError:
            raise TacitError(
                "the system has no file locks: key files need them. Use Linux."
            ) from None
        handle = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def put(path: Path, aside: Path, content: bytes) -> None:
    """Atomically replace a file, readable by its owner only: write aside, sync and rename."""
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    _sync(path.parent)


def probe_disk(directory: Path) -> None:
    """Durably write a file of `PROBE_SIZE` bytes and delete it; raise `OSError` on failure."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix="probe-") as file:
        file.write(bytes(PROBE_SIZE))
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    """Flush a directory's entries to disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _content(path: str) -> bytes:
    """Read a whole file in few system calls, because every incoming report reads one."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size  # files are replaced, never changed in place
        content = os.read(handle, size)
        while len(content) < size and (part := os.read(handle, size - len(content))):
            content += part
        return content
    finally:
        os.close(handle)
