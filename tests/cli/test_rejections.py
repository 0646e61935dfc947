"""Invalid command lines: exit code 2, one line with value and remedy, nothing written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Command, Ended, program, rejected, result
from tests.tables import each_row

from tacit.simulation import Trial, files

FILES: dict[str, str | bytes] = {
    "good.csv": "old,new\n" + "0,1\n1,1\n" * 30,
    "binary.csv": b"\x89PNG\r\n\x1a\n\0\0",
    "latin.csv": "A,B\n1,0\né,1\n".encode("latin-1"),
    "empty.csv": "",
    "headers.csv": "A,B\n",
    "twice.csv": "A,A\n1,0\n",
    "mixed.csv": "A,0.5\n1,0\n",
    "counted.csv": "1,2,3\n1,0,1\n",
    "ragged.csv": "A,B\n1,0\n1,0,1\n",
    "holes.csv": "A,B\n1,0\n,1\n1,0\n",
    "text.csv": "A,B\n1,0\n1,high\n",
    "outside.csv": "A,B\n1,0\n1,3\n",
    "not-a-number.csv": "A,B\n1,nan\n",
    "column.csv": "A\n1\n0\n",
    "semicolons.csv": "A;B\n1,5;0\n",
    "quotes.csv": 'A,B\n1,"0\n',
    "no-user.csv": "arm,reward\na,1\nb,0\n",
    "no-reward.csv": "user,arm\n1,a\n2,b\n",
    "one-option.csv": "user,arm,reward\n1,a,1\n2,a,0\n",
    "no-name.csv": "user,arm,reward\n1,a,1\n2,,0\n",
    "short.csv": "A,B,C\n1,0,1\n",
    "taken": "a file",
    "list.yaml": "- a\n",
    "card.toml": b"\x89PNG\r\n\x1a\n\0\0",
    "not-mslr.txt": "hello\n",
}
KLUCB = "simulate --algorithm private-klucb"
LINEAR = "simulate --algorithm cdp-dpe"
SILOS = "simulate --algorithm secagg-fedlinucb"
REPLAY = f"{KLUCB} --replay"
PLAN = "plan --baseline 0.02 --lift 0.2"
BAD = {
    # names
    "simulate --algorithm private-med --dimension 3": "has no option --dimension; it has --arms",
    "plan --baseline 20% --lift 0.1": "'--baseline': must be a valid number, not '20%'. Try",
    "plan --baseline 0.2": "lift and gap are missing",
    "privacy --noise discrete-laplace --delta 0": "discrete-laplace noise needs --scale: give",
    "conjure": "conjure",
    "simulat --algorithm ucb1": "simulat",
    "simulate --algorithm private-klucbb": "'private-klucbb'; did you mean private-klucb",
    "simulate --algorithm=": "algorithm is ''",
    "simulate": "'--algorithm'",
    "compare --algorithms ucb1,klucv": "'klucv'; did you mean klucb",
    "compare --algorithms=": "must be different names",
    "compare --algorithms ucb1,ucb1": "'ucb1,ucb1': must be different names",
    "compare --algorithms ucb1,dpe": "not of arms and linear",
    "reproduce cz23-fig9": "cz23-fig9",
    "reproduce zc24-super --axis equal": "axis is 'equal', which zc24-super does not support",
    "reproduce lzj22-fig2 --data good.csv": "draw one of cz23-fig1, cz23-fig5, zc24-fig2",
    f"{KLUCB} --instance eazy": "'eazy'",
    f"{KLUCB} --rewards cauchy": "rewards is 'cauchy': must be one of bernoulli",
    f"{KLUCB} --trust nobody": "trust is 'nobody': must be one of secure-aggregation",
    f"{KLUCB} --epsilom 1": "there is no option '--epsilom'; did you mean --epsilon? Try:",
    "demo shuffle": "there is no command 'shuffle'; there are contextual, noise, silos. Try: tacit",
    "party neww helper h": "there is no command 'neww'; did you mean new? Try: tacit party --help",
    "experiment new n.toml --trust two-server": "did you mean two-servers?",
    # options of others
    f"{LINEAR} --trust local --lazy": "has no option --lazy, --trust; it has",
    f"{LINEAR} --means 0.2,0.3": "has no option --means",
    f"{LINEAR} --replay good.csv": "take no table of rewards",
    f"{SILOS} --replay good.csv": "names one table per silo",
    f"{KLUCB} --silos 4": "has no option --silos",
    f"{KLUCB} --scale 4": "has no option --scale",
    "simulate --algorithm dist-dp-se --trust local": "has no option --trust",
    "simulate --algorithm ucb1 --epsilon 1": "has no option --epsilon",
    "compare --silos 3": "none of private-med",
    "compare --algorithms dpe,pe --replay good.csv": "take no table of rewards",
    f"{SILOS} --user-by-user --silos 2": "user_by_user is for arms only",
    f"{LINEAR} --user-by-user": "user_by_user is for arms only",
    # out of range, not numbers
    f"{KLUCB} --epsilon 0": "epsilon is 0",
    f"{KLUCB} --epsilon -1": "epsilon is -1",
    f"{KLUCB} --epsilon nan": "epsilon is nan",
    f"{KLUCB} --epsilon inf": "epsilon is inf",
    f"{KLUCB} --epsilon=": "'--epsilon'",
    f"{KLUCB} --epsilon much": "'--epsilon'",
    "simulate --algorithm sdp-ae --delta 2": "delta is 2",
    "simulate --algorithm sdp-ae --delta 0": "delta is 0",
    f"{SILOS} --delta 0": "delta is 0",
    f"{KLUCB} --horizon 1e30": "horizon is 1e+30: must be at most 1e+15",
    f"{KLUCB} --horizon 0": "horizon is 0",
    f"{KLUCB} --horizon -1": "horizon is -1",
    f"{KLUCB} --horizon 2.5": "'2.5' is not a whole number, such as",
    f"{KLUCB} --horizon nan": "'nan' is not a whole number",
    f"{KLUCB} --horizon inf": "'inf' is not a whole number",
    f"{KLUCB} --horizon 5": "must be at least the 10 arms",
    f"{KLUCB} --arms 1": "arms is 1",
    f"{KLUCB} --growth 1": "growth is 1: must be greater than 1",
    f"{KLUCB} --growth nan": "growth is nan",
    f"{KLUCB} --dropout 1": "dropout is 1",
    f"{KLUCB} --means 0.5": "means is 0.5: must be two or more",
    f"{KLUCB} --means 0.5,1.5": "means is 0.5,1.5: must be two or more numbers in [0, 1]",
    f"{KLUCB} --means 0.5,nan": "means is 0.5,nan",
    f"{KLUCB} --means 0.5;0.4": "'0.5;0.4': must be numbers separated by commas",
    f"{KLUCB} --means=": "'': must be numbers separated by commas",
    f"{KLUCB} --runs 0": "runs is 0",
    f"{KLUCB} --runs 1e30": "runs is 1e+30",
    f"{KLUCB} --runs many": "'many' is not a whole number",
    f"{KLUCB} --seed -1": "seed is -1",
    f"{LINEAR} --dimension 0": "dimension is 0",
    f"{LINEAR} --actions 0": "actions is 0",
    f"{LINEAR} --delta 1": "delta is 1",
    f"{SILOS} --horizon 10": "horizon is 10",
    f"{SILOS} --silos 0": "silos is 0",
    f"{SILOS} --deviation -1": "deviation is -1",
    f"{SILOS} --data none.txt": "none.txt",
    f"{SILOS} --data not-mslr.txt": "not-mslr.txt line 1",
    # two things at once
    f"{KLUCB} --arms 3 --means 0.1,0.2": "--arms is 3, but --means has 2",
    f"{KLUCB} --instance hard --means 0.1,0.2": "--instance and --means both set",
    f"{SILOS} --field body": "--field needs --data",
    f"{SILOS} --data not-mslr.txt --actions 3": "--actions is set by the file",
    f"{KLUCB} --clip": "--clip and --resample need --replay",
    f"{REPLAY} good.csv --means 0.1,0.2": "--means would describe random instances",
    f"{REPLAY} good.csv --rewards beta": "--rewards would describe",
    f"{REPLAY} good.csv --arms 3": "arms is 3, but the environment has 2",
    f"{REPLAY} good.csv --horizon 61": "at most 60, the recorded participants of 'old'",
    # files
    f"{REPLAY} none.csv": "none.csv cannot be read",
    f"{REPLAY} .": "cannot be read (Is a directory)",
    f"{REPLAY} binary.csv": "not UTF-8 text. Save",
    f"{REPLAY} latin.csv": "line 3 has the byte 0xe9",
    f"{REPLAY} empty.csv": "empty.csv is empty",
    f"{REPLAY} headers.csv": "names but no rewards",
    f"{REPLAY} twice.csv": "column 2 has the name 'A' of another one",
    f"{REPLAY} mixed.csv": "mixes names and numbers",
    f"{REPLAY} counted.csv": "numbers the columns",
    f"{REPLAY} ragged.csv": "line 3: it has 3 cells",
    f"{REPLAY} holes.csv": "line 3: 'A' is empty",
    f"{REPLAY} text.csv": "line 3: 'B' is 'high': must be a number",
    f"{REPLAY} outside.csv": "clip them (--clip)",
    f"{REPLAY} not-a-number.csv": "'B' is 'nan'",
    f"{REPLAY} column.csv": "two or more options, separated by commas",
    f"{REPLAY} semicolons.csv": "Write decimals with a point",
    f"{REPLAY} quotes.csv": "Check its quotation marks",
    f"{REPLAY} no-user.csv": "a log must also have participant (",
    f"{REPLAY} no-reward.csv": "a log must also have reward (",
    f"{REPLAY} one-option.csv": "only the option 'a'",
    f"{REPLAY} no-name.csv": "line 3: 'arm' is empty",
    f"{REPLAY} short.csv": "must have at least 3, one per option",
    f"{SILOS} --data binary.csv": "binary.csv line 1",
    "reproduce zc24-fig2 --data none.txt": "none.txt: No such file",
    "experiment new n.toml --helper card.toml": "card.toml is not TOML",
    "experiment check list.yaml": "the file is a list or a word: must have entries",
    # other commands
    f"{PLAN} --control-share nan": "control_share is nan",
    f"{PLAN} --epsilon 1e30": "epsilon is 1e+30: must be at most 500",
    "privacy --noise skellam --variance 9 --sigma 3 --delta 1e-6": "it is not for skellam",
    "privacy --noise skellam --variance 9 --bias 0.2 --delta 1e-6": "it is not for skellam",
    "compose --epsilon 0.1 --delta 1e-6 --participations 2.5": "'2.5' is not a whole number",
    f"{SILOS} --budgets 1e15*1:1e-5": "at most 100,000 silos",
    f"{SILOS} --budgets 0*1:1e-5": "'0*1:1e-5' is not a budget",
    "reproduce zc24-super --out taken": "taken: a file is in the way",
    "attack --runs 0": "runs is 0",
    "attack --seed -1": "seed is -1",
    "attack --games 1e30": "games is 1e+30: must be at most",
    "demo --people 499": "people is 499: must be from 500",
    "demo --people 1e30": "people is 1e+30",
    "demo --seed -1": "seed is -1",
    "demo --out taken": "taken: a file is in the way",
    "demo noise --out taken": "taken: a file is in the way",
    "experiment new n.toml --participants 0": "participants is 0: must be at least",
    "experiment new n.toml --days 0": "--days is 0: must be from 1",
    "experiment new n.toml --days 1e30": "--days is 1e+30",
    "party new coordinator n --listen nowhere": 'listen is "nowhere": must be host:port',
    "party new helper n --listen 127.0.0.1:99999": 'listen is "127.0.0.1:99999"',
    "doctor nowhere": "url is 'nowhere': must be a URL",
    # where to write
    f"{KLUCB} --horizon 50 --resume": "give the directory",
    f"{KLUCB} --horizon 50 --out taken": "taken: a file is in the way",
    f"{KLUCB} --horizon 50 --out taken/deeper": "a file is in the way",
    "compare --horizon 50 --out taken": "taken: a file is in the way",
    f"{KLUCB} --horizon 50 --out {'x' * 300}": "the name is too long",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with all kinds of files."""
    for name, content in FILES.items():
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each_row("line", BAD)
def test_invalid_command_lines_are_rejected_in_one_line(
    command: Command, here: Path, line: str
) -> None:
    out = [] if "--out" in line or not line.startswith(("simulate --", "compare")) else ["--out=x"]
    if "--resume" in line:
        out = []
    error = rejected(command(*line.split(" "), *out))
    assert BAD[line] in error
    assert len(error) < 600
    assert {path.name for path in here.iterdir()} == set(FILES)


def test_every_kind_of_invalid_command_line_is_tested() -> None:
    assert len(BAD) >= 120


def test_a_group_without_a_command_shows_its_help_and_nothing_else(command: Command) -> None:
    code, out, err = command("terms")
    assert (code, err) == (2, "")
    assert "cosign" in out


def test_counts_accept_common_notations(command: Command) -> None:
    typed = ("compose", "--epsilon", 0.1, "--delta", 1e-6, "--json", "--participations")
    assert result(command(*typed, "2e1")) == result(command(*typed, 20))


QUICK = ("simulate", "--algorithm", "klucb", "--arms", 3, "--horizon", 100, "--runs", 2, "--json")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_directory_without_permission_is_rejected(command: Command, here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    assert "no permission. Choose a directory" in rejected(command(*QUICK, "--out", "locked"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_missing_permissions_are_reported_before_any_work(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def denied(**_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "TemporaryFile", denied)
    assert "cannot write to locked/out: " in rejected(command(*QUICK, "--out", "locked/out"))
    assert {path.name for path in here.iterdir()} == set(FILES)


def test_a_run_with_another_configuration_is_not_resumed(command: Command, here: Path) -> None:
    first = result(command(*QUICK, "--out", "kept"))
    before = {path.name: path.read_bytes() for path in (here / "kept").iterdir()}
    error = rejected(command(*QUICK, "--out", "kept", "--resume", "--arms", 4))
    assert "arms (there 3, here 4)" in error
    assert {path.name: path.read_bytes() for path in (here / "kept").iterdir()} == before
    again = result(command(*QUICK, "--out", "kept", "--resume"))
    assert again["runs"] == first["runs"]


@pytest.mark.extended
def test_without_matplotlib_the_table_is_still_printed(tmp_path: Path) -> None:
    hook = "import sys\nsys.modules['matplotlib'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hook, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ("compare", "--algorithms", "klucb,ucb1", "--horizon", 100, "--runs", 2)
    code, out, err = program(*words, "--out", tmp_path / "out", PYTHONPATH=path)
    assert (code, err) == (0, "")
    assert "klucb" in out
    assert (
        out.count("no picture: matplotlib is missing: plots need it. Install it with pip install")
        == 1
    )
    kept = {path.name for path in (tmp_path / "out").iterdir()}
    assert kept == {"regret.csv", "klucb.jsonl", "ucb1.jsonl"}


# interrupts

RUNS = 60


def heeding() -> None:
    """A process started in the background may be told to ignore interrupts; these are not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted_after(records: int, log: Path, *words: object) -> Ended:
    """A command that is sent ^C once so many runs are in the log."""
    call = [sys.executable, "-m", "tacit", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, text=True, preexec_fn=heeding, **pipes) as process:  # type: ignore[call-overload]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if log.exists() and log.read_bytes().count(b'"checkpoints"') >= records:
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.02)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def long_run(*words: object) -> tuple[object, ...]:
    return (*words, "--arms", 5, "--horizon", 5000, "--runs", RUNS, "--json")


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["simulate", "compare"])
def test_an_interrupted_command_keeps_its_runs_and_resumes(
    command: Command, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "out"
    words = {
        "simulate": long_run("simulate", "--algorithm", "private-klucb"),
        "compare": long_run("compare", "--algorithms", "private-klucb,dist-dp-se"),
    }[kind]
    code, printed, err = interrupted_after(3, out / "private-klucb.jsonl", *words, "--out", out)
    assert code == 130, err
    assert "Traceback" not in err
    assert not list(out.glob("*.partial"))
    if kind == "simulate":
        found = json.loads(printed)
        done = len(found["runs"])
        assert err == f"tacit: interrupted, {done} of {RUNS}\n"
        assert 3 <= done < RUNS
        assert (found["interrupted"], found["asked"]) == (True, RUNS)
    else:
        assert err == "tacit: interrupted, 0 of 2\n"
    whole = result(command(*words, "--out", tmp_path / "whole"))
    completed = result(command(*words, "--out", out, "--resume"))
    for one, other in zip(_results(completed), _results(whole), strict=True):
        assert one["runs"] == other["runs"]
        assert not one["interrupted"]
        assert one["regret_mean"] == other["regret_mean"]


def _results(found: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found.get("results", [found])
    return listed


def test_an_interrupt_before_the_first_run_ends_is_reported(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "__call__", interrupt)
    code, out, err = command(*QUICK, "--out", tmp_path / "out")
    assert (code, out, err) == (130, "", "tacit: interrupted, 0 of 2\n")


@pytest.mark.extended
def test_an_interrupted_figure_is_not_drawn(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "tacit", "reproduce", "cz23-fig3", "--runs", "9999"]
    call += ["--out", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, text=True, preexec_fn=heeding, **pipes) as process:  # type: ignore[call-overload]
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)  # a shell shows 130 for both
    assert out == ""
    assert "interrupted" in err
    left = [path.name for path in tmp_path.iterdir()]
    assert left in ([], ["runs"]), "nothing is drawn; finished runs are kept to be resumed"


def test_an_interrupt_in_code_made_from_text_ends_with_130_in_a_shell(tmp_path: Path) -> None:
    """CPython notes an interrupt that passes through `exec` of text, and dies by it at exit."""
    lines = (
        "import tacit.cli as cli",
        "def interrupted(**_): exec('raise KeyboardInterrupt')",
        "cli.app = interrupted",
        "cli.main()",
    )
    (tmp_path / "asked.py").write_text("\n".join(lines))
    words = ["sh", "-c", '"$0" -m asked; exit $?', sys.executable]
    assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 130
