"""Shared by all tests: hypothesis settings, the devices' randomness, the summary of tests not run.

Three classes of tests, by marker: unmarked ones are `make test`, `extended` ones are added by CI
and `make test-extended`, `slow` ones only by `make test-all`. CONTRIBUTING.md says which is which.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

# One thread of linear algebra for each process, set before NumPy is loaded: the tests' own
# processes fill the cores, and threads that wait for each other double the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Temporary files in memory, where there is room: databases and key files are written durably, and
# a test loses no power.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"

# In CI every run is the same: a sound change is not rejected by chance. Elsewhere searches go on,
# and draws are the operating system's, at the false-alarm rates stated.
JUDGED = bool(os.environ.get("CI"))

# No deadline: a busy machine is not a bug.
settings.register_profile(
    "tacit",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=JUDGED,
)
settings.load_profile("tacit")


@pytest.fixture(autouse=True)
def same_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where changes are judged, the operating system's randomness is a function of the test."""
    if not JUDGED:
        yield
        return
    from tests.source import repeated  # loads NumPy

    with repeated(request.node.nodeid):
        yield


@pytest.fixture(autouse=True, scope="session")
def stretched_once() -> Iterator[None]:
    """A passphrase or key file is stretched once for each salt: that takes 0.2 s on purpose."""
    from tacit import keyfiles

    stretch, found = keyfiles._derived_key, dict[tuple[bytes, bytes, int], bytes]()

    def stretched(lock: keyfiles.Lock, salt: bytes) -> bytes:
        asked = (lock.material(), salt, keyfiles._COST)
        if asked not in found:
            found[asked] = stretch(lock, salt)
        return found[asked]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keyfiles, "_derived_key", stretched)
        yield


@pytest.fixture(autouse=True, scope="session")
def tables_described_once() -> Iterator[None]:
    """New SQLite databases get their tables by the statements of the first migration here."""
    command = sys.modules.get("alembic.command")
    if command is None:  # no test collected needs a database
        yield
        return
    upgrade, statements = command.upgrade, list[str]()

    def upgraded(config: Any, revision: str) -> None:
        connection = config.attributes["connection"]
        if connection.dialect.name != "sqlite" or connection.exec_driver_sql(TABLES).first():
            upgrade(config, revision)
        elif statements:
            for statement in statements:
                connection.exec_driver_sql(statement)
        else:
            upgrade(config, revision)
            statements.extend(row[0] for row in connection.exec_driver_sql(TABLES))
            number = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            statements.append(f"INSERT INTO alembic_version VALUES ('{number}')")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command, "upgrade", upgraded)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No doctests below this directory: looking for them imports and searches every file."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_sessionstart() -> None:
    """Collect garbage rarely: modules and test items stay until the end."""
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish() -> None:
    """Leave everything that collection made out of later garbage collections."""
    gc.collect()
    gc.freeze()


# the marker of tests that a run may leave out, and the command that runs them
COMMANDS = {"extended": "make test-extended", "slow": "make test-all"}
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        marked = [marker for marker in COMMANDS if item.get_closest_marker(marker)]
        item.config.stash[LEFT_OUT].update(marked[-1:])  # slow, where a test is both


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of a process of pytest-xdist
    counted = session.config.stash[LEFT_OUT]
    if output is not None:
        output["left_out"] = dict(counted)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: many tests of the service wait for timers and sockets."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker of pytest-xdist leaves out the same tests: those of the last one count."""
    found = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash[LEFT_OUT] = Counter(found) or node.config.stash[LEFT_OUT]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line for each class of tests that was left out, and for each reason of skipped ones."""
    left_out = {} if config.option.keyword else config.stash[LEFT_OUT]  # -k is a choice of tests
    for marker, count in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {count} {marker} tests; run: {COMMANDS[marker]}")
    skipped = {
        report.nodeid: report.longrepr for report in terminalreporter.stats.get("skipped", ())
    }
    reasons = Counter(
        where[2].removeprefix("Skipped: ") for where in skipped.values() if len(where) == 3
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped: {count}: {reason}")
