"""Files written whole or not at all, and errors that name the path and a remedy."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tacit.errors import TacitError

_IN_THE_WAY = "a file is in the way. Move it, or choose another directory."
_NO_PERMISSION = "no permission. Choose a directory that you may write to."
REMEDIES = {
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EISDIR: "it is a directory. Choose another name.",
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: _NO_PERMISSION,
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one.",
}


def unwritable(path: Path, error: OSError) -> TacitError:
    """The error for a path that is not writable, with its remedy."""
    reason = REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return TacitError(f"cannot write to {path}: {reason}")


def probe(out: Path) -> None:
    """Reject a directory that is not writable, before any work is done; leaves no files behind."""
    missing: list[Path] = []
    try:
        missing = [path for path in (out, *out.parents) if not path.exists()]
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Atomic write: yield a temporary path, then sync it and move it into place.

    On an error the temporary file is removed and an existing file stays as it was.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a tidy CSV table atomically, with one column for every name in any row."""
    listed = list(rows)
    if not listed:
        raise TacitError(f"no rows for {path}: a table needs at least one run")
    names = list(dict.fromkeys(name for row in listed for name in row))
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names)
        writer.writeheader()
        writer.writerows(
            {
                key: json.dumps(v) if isinstance(v, (list, tuple, dict)) else v
                for key, v in row.items()
            }
            for row in listed
        )
