"""Ends of a sweep by kill, interrupt, error or worker crash: no process remains, and finished runs
are resumed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.naps import Dies, Elsewhere, Nap, strange

from tacit.errors import TacitError
from tacit.simulation import over_seeds, progress
from tacit.simulation import seeds as seeding
from tacit.simulation.engines import Failure, run_locally
from tacit.simulation.log import RunLog, header

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sweep uses workers after its first run."""
    monkeypatch.setattr(seeding, "WORTH_A_POOL", 0.0)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> float:
    """How long it took until something was so."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "never happened"
        time.sleep(0.02)
    return time.monotonic() - start


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def heeding() -> None:
    """A process started in the background may be told to ignore interrupts; these are not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def napping(folder: Path, seconds: float, processes: int = 3) -> Iterator[subprocess.Popen[str]]:
    """A script under way: so many processes, itself among them, have begun a run."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/simulation/naps.py"), str(folder), str(seconds)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heeding,
    )
    try:
        until(lambda: len(pids(folder)) == processes)
        yield process
    finally:
        process.kill()
        process.communicate()


def pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def lines(path: Path) -> list[dict[str, Any]]:
    """The records of a log, without its header."""
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


@posix
@pytest.mark.extended
def test_a_killed_sweep_leaves_no_process_behind(tmp_path: Path) -> None:
    with napping(tmp_path, 600.0) as process:
        process.kill()
        process.wait()
        assert until(lambda: not any(map(is_alive, pids(tmp_path))), 5.0) < 5.0


@pytest.mark.extended
@posix
@pytest.mark.parametrize("whole_group", [True, False])
def test_one_interrupt_stops_at_once_and_keeps_finished_runs(
    tmp_path: Path, whole_group: bool
) -> None:
    """A terminal sends ^C to the whole group, `kill -INT` to one process."""
    with napping(tmp_path, 0.3) as process:
        log = tmp_path / "log.jsonl"
        until(lambda: len(lines(log)) >= 3)
        start = time.monotonic()
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=10)
        assert time.monotonic() - start < 2.0
        said = out.splitlines()
        assert said[0] == "started"
        assert said[1:] == [f"True {len(lines(log))} 40"], "a worker ran the script again"
        assert err == ""
        assert process.returncode == 0
        assert not any(map(is_alive, pids(tmp_path)))


@pytest.mark.extended
@posix
def test_an_interrupt_during_worker_start_reaches_the_main_process(tmp_path: Path) -> None:
    with napping(tmp_path, 600.0, processes=1) as process:
        log = tmp_path / "log.jsonl"
        until(lambda: bool(lines(log)))
        time.sleep(0.15)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=5) == ("started\nTrue 1 40\n", "")


def test_a_resumed_sweep_gives_the_same_records(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    task, identity = Nap(0.0), {"name": "nap", "means": (0.1, 0.2)}
    whole = over_seeds(task, range(9), workers=1)
    over_seeds(task, range(4), workers=1, path=path, identity=identity)
    before = path.read_bytes()
    ran: list[int] = []

    def noted(seed: int) -> dict[str, Any]:
        ran.append(seed)
        return task(seed)

    again = over_seeds(noted, range(9), path=path, resume=True, identity=identity)
    assert ran == [4, 5, 6, 7, 8]
    assert again.records == whole.records
    assert path.read_bytes().startswith(before)
    assert lines(path) == whole.records
    header = json.loads(path.read_text().splitlines()[0])
    assert set(header) == {"format", "name", "command", "versions", "study"}
    assert header["study"] == {"name": "nap", "means": [0.1, 0.2]}
    assert again.asked == 9
    assert not again.interrupted
    assert over_seeds(noted, range(2, 4), path=path, resume=True, identity=identity).asked == 2
    assert len(ran) == 5


@pytest.mark.parametrize("torn", [b'{"seed": 3, "val', b'{"seed": 3}', b"\x00\x00\xff\n"])
def test_an_unfinished_line_is_overwritten(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "runs.jsonl"
    whole = over_seeds(Nap(0.0), range(5), workers=1)
    over_seeds(Nap(0.0), range(3), workers=1, path=path)
    path.write_bytes(path.read_bytes() + torn)
    assert (
        over_seeds(Nap(0.0), range(5), workers=1, path=path, resume=True).records == whole.records
    )
    assert lines(path) == whole.records


def test_another_task_is_rejected_with_the_differing_keys(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    over_seeds(Nap(0.0), range(2), path=path, identity={"epsilon": 1.0, "arms": 3})
    before = path.read_bytes()
    other = {"epsilon": 2.0, "arms": 3, "trust": "local"}
    with pytest.raises(TacitError, match=r"epsilon \(there 1.0, here 2.0\), trust .*here 'local'"):
        over_seeds(Nap(0.0), range(2), path=path, resume=True, identity=other)
    with pytest.raises(TacitError, match="arms"):
        over_seeds(Nap(0.0), range(2), path=path, resume=True)
    assert path.read_bytes() == before
    over_seeds(Nap(0.0), range(1), path=path, identity=other)
    assert [line["seed"] for line in lines(path)] == [0]


@pytest.mark.parametrize(
    "content",
    [
        "hello\nyou\n",
        "hello",
        '{"seed": 1}\n{"seed": 2}\n',
        '{"task": "00", "version": "0.1", "identity": {}}\n{"seed": 1}\n',  # format 1
        '{"format": 3}\n',
        "[1]\n[2]\n",
    ],
)
def test_a_file_that_is_no_log_of_this_format_is_not_resumed(tmp_path: Path, content: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    with pytest.raises(TacitError, match=r"runs.jsonl is not a log of format 2.*another --out"):
        over_seeds(Nap(0.0), range(2), path=path, resume=True)
    assert path.read_text() == content


def test_a_damaged_line_is_skipped_and_its_run_repeated(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    whole = over_seeds(Nap(0.0), range(4), workers=1, path=path)
    head, *records = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, records[0], records[1][:9] + "\n", *records[2:]]))
    again = over_seeds(Nap(0.0), range(4), workers=1, path=path, resume=True)
    assert again.records == whole.records
    path.write_text(head[:-9])  # killed while the header was written
    assert over_seeds(Nap(0.0), range(1), workers=1, path=path, resume=True).asked == 1
    assert lines(path) == whole.records[:1]


def test_two_processes_do_not_share_a_log(tmp_path: Path) -> None:
    path, head = tmp_path / "runs.jsonl", header("nap", {})
    with (
        RunLog(path, head, "seed"),
        pytest.raises(TacitError, match=r"another process writes to .*choose another --out"),
    ):
        RunLog(path, head, "seed")
    with RunLog(path, head, "seed") as log:
        assert log.rows == {}


def test_an_old_log_is_kept_until_a_run_finishes(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    over_seeds(Nap(0.0), range(3), workers=1, path=path)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        over_seeds(Dies(0, ZeroDivisionError()), range(3), workers=1, path=path)
    assert path.read_bytes() == before
    over_seeds(Dies(-1), range(1), workers=1, path=path)
    assert lines(path) == [{"seed": 0}]


def test_an_unwritable_log_is_rejected_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for bad, reason in (
        (tmp_path / "file" / "log", "a file is in the way"),
        (tmp_path, "it is a directory"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        for resume in (True, False):
            with pytest.raises(TacitError, match=rf"cannot write to .*: .*{reason}"):
                over_seeds(Dies(0), range(1), path=bad, resume=resume)


@pytest.mark.extended
@pytest.mark.usefixtures("pool")
def test_tasks_that_cannot_be_pickled_run_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"seed": 0}
    tasks: list[Any] = [
        lambda seed: made | {"seed": seed, "process": os.getpid()},
        Elsewhere(),
        type("Own", (Elsewhere,), {"__module__": "__main__"})(),
    ]
    monkeypatch.setattr(sys.modules["__main__"], "Own", type(tasks[2]), raising=False)
    for task in tasks:
        records = over_seeds(task, range(4), workers=2).records
        assert [record["seed"] for record in records] == [0, 1, 2, 3]
        assert {record["process"] for record in records} == {os.getpid()}


@pytest.mark.extended
@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TacitError("too few"), TacitError),
        (ZeroDivisionError("by zero"), ZeroDivisionError),
    ],
)
def test_an_error_names_its_seed_and_finished_runs_are_kept(
    tmp_path: Path, workers: int, error: Exception, kind: type[Exception]
) -> None:
    path = tmp_path / "runs.jsonl"
    with pytest.raises(kind) as caught:
        over_seeds(Dies(3, error), range(4), workers=workers, path=path)
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "in the run of seed 3" in told
    assert str(error) in told
    stayed = {record["seed"] for record in lines(path)}
    assert stayed <= {0, 1, 2}
    assert len(stayed) >= 2  # one of two workers may still be at its first seed


@pytest.mark.extended
@pytest.mark.usefixtures("pool")
def test_an_error_that_cannot_be_pickled_is_reported() -> None:
    with pytest.raises(RuntimeError, match="StrangeError: 3") as caught:
        over_seeds(strange, range(3), workers=2)
    assert "in the run of seed 2" in caught.value.__notes__


@pytest.mark.extended
@pytest.mark.usefixtures("pool")
def test_a_crashed_worker_is_reported_with_its_seed() -> None:
    with pytest.raises(TacitError, match=r"exit code 7.*fewer workers.*seed 2"):
        over_seeds(Dies(2), range(3), workers=2)


@pytest.mark.extended
def test_a_crashed_workers_other_runs_are_repeated() -> None:
    answers = list(run_locally(Dies(700), range(1500), 2))
    assert sorted(number for number, _ in answers) == list(range(1500))
    assert [number for number, answer in answers if isinstance(answer, Failure)] == [700]


def test_a_progress_bar_is_shown_on_a_terminal_in_long_runs_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    over_seeds(Nap(0.0), range(3), workers=1, progress=True, label="short")
    assert "short" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "WORTH_A_BAR", 0.05)
    over_seeds(Nap(0.2), range(3), workers=1, progress=True, label="long")
    shown = capsys.readouterr().err
    assert "long" in shown
    assert "/3" in shown
    over_seeds(Nap(0.2), range(2), workers=1, label="quiet")
    assert capsys.readouterr().err == ""
