"""The log of runs over seeds: one JSON record per line; the first line may be a header.

The header holds the identity of the task (`tacit.simulation.seeds`).
"""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.version import __version__

Record = dict[str, Any]
REMEDIES = {
    errno.EEXIST: "a file is in the way: move it or choose another directory",
    errno.ENOTDIR: "a file is in the way: move it or choose another directory",
    errno.EISDIR: "it is a directory: choose another name",
    errno.EACCES: "no permission: choose a directory that you may write to",
    errno.EPERM: "no permission: choose a directory that you may write to",
    errno.EROFS: "no permission: choose a directory that you may write to",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
}


def unwritable(path: Path, error: OSError) -> TacitError:
    """The error for a path that is not writable, with its remedy."""
    reason = REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return TacitError(f"cannot write to {path}: {reason}")


def start(path: Path, resume: bool, identity: Record) -> tuple[dict[int, Record], int]:
    """The records of a log by seed, and its length in bytes; both empty unless `resume`.

    Writes nothing, but rejects a path that is not writable before any work is done.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        return _read(path, identity) if resume else ({}, 0)
    except OSError as error:
        raise unwritable(path, error) from error


def _read(path: Path, identity: Record) -> tuple[dict[int, Record], int]:
    """The records of a log by seed, and the number of complete bytes.

    An incomplete last line is ignored. A log with another identity is rejected.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    records = [_parsed(line) for line in lines]
    if records and not records[-1]:
        del records[-1], lines[-1]
    for number, record in enumerate(records, start=1):
        if "seed" not in record and (number > 1 or "task" not in record):
            raise TacitError(
                f"line {number} of {path} is not a record of a sweep: choose another file, or "
                "replace this one by not resuming"
            )
    if records:
        _compare(path, records[0].get("identity", {}), identity)
    kept = {record["seed"]: record for record in records if "seed" in record}
    return kept, sum(map(len, lines))


def append(path: Path, length: int, identity: Record, record: Record) -> int:
    """Write a record after the first `length` bytes of a log, truncate the rest, return the new
    length.
    """
    lines = [record] if length or not identity else [_header(identity), record]
    with path.open("ab") as file:
        file.truncate(length)
        return length + file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


def _header(identity: Record) -> Record:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return {"task": digest, "version": __version__, "identity": identity}


def _parsed(line: bytes) -> Record:
    """The record of a complete line; empty if the line is incomplete or invalid."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if line.endswith(b"\n") and isinstance(record, dict) else {}


def _compare(path: Path, found: Record, asked: Record) -> None:
    differing = [
        f"{key} (there {found.get(key)!r}, here {asked.get(key)!r})"
        for key in found | asked
        if found.get(key) != asked.get(key)
    ]
    if differing:
        raise TacitError(
            f"{path} holds runs of something else, by {', '.join(differing)}: choose another "
            "file, or replace this one by not resuming"
        )
