"""The demonstration: its report, and its cleanup however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.service.pairs import experiment_of, sqlite_pair

from tacit.cli.demo import LEAST
from tacit.service.bootstrap import Card
from tacit.service.definition_files import parse
from tacit.service.demo import report
from tacit.service.demo.children import Child
from tacit.service.demo.participants import VisitCounts
from tacit.service.demo.play import (
    BATCH,
    LIKING,
    DemoProgress,
    DemoSettings,
    RoundPace,
    definition_of,
)
from tacit.trust import TrustModel

OPTIONS = tuple(LIKING)
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> DemoProgress:
    """The state of a real experiment after a few rounds."""
    with sqlite_pair(tmp_path_factory.mktemp("parties")) as pair:
        digest = pair.begin(experiment_of(1500, OPTIONS))
        for _ in range(3):
            pair.hold(digest, lambda option: int(option == OPTIONS[2]))
        pair.hold(digest, lambda _option: 0, come=0.01)
        told = DemoProgress(
            pair.coordinator.status(digest),
            pair.coordinator.estimates(digest),
            VisitCounts(came=9, sent=4, sent_bytes=488, rejected={"another: 409": 2}),
            12.0,
            ("http://127.0.0.1:1", "http://127.0.0.1:2"),
        )
        told.export = pair.coordinator.export(digest)
        return told


def test_the_report_answers_three_questions_before_any_chart(shown: DemoProgress) -> None:
    page = report.html(shown)
    first = page[: page.index('id="people"')]
    assert f"</svg>{OPTIONS[2]}</strong>" in first.replace("\n", "")
    assert "2.72 times" in first
    for question in ("Which is best?", "How sure are we?", "What were people promised?"):
        assert question in first
    assert "2 times a second, different report for the same slot: answered 409." in page


def test_the_report_is_self_contained_and_runs_no_script(shown: DemoProgress) -> None:
    page = report.html(shown)
    assert not re.search(r"<script|<link|<img|@import|url\(|src=|href=|\son\w+=", page)


def test_texts_of_the_experiment_are_escaped(shown: DemoProgress) -> None:
    status = shown.status | {"question": "<script>alert(1)</script>"}
    told = DemoProgress(status, shown.estimates, shown.counts, 1.0, shown.addresses, shown.export)
    assert "<script>" not in report.html(told)


def test_an_undecided_experiment_is_not_called_decided(shown: DemoProgress) -> None:
    undecided = shown.estimates | {"decided": None}
    told = DemoProgress(shown.status, undecided, shown.counts, 1.0, shown.addresses, shown.export)
    assert report.answer(told)[1].startswith("Not decided yet")


def test_the_demonstration_has_one_definition(shown: DemoProgress) -> None:
    card = Card("helper", "http://127.0.0.1:8701", bytes(range(32)))
    found = parse(definition_of([card], DemoSettings()))
    assert found.options == OPTIONS
    assert (found.trust, found.proofs) == ("two-servers", False)
    alone = parse(definition_of([], DemoSettings(trust=TrustModel.LOCAL)))
    assert (alone.trust, alone.helper_key) == ("local", None)
    assert shown.status["options"] == list(OPTIONS)


def test_rounds_are_longer_on_a_slow_machine() -> None:
    """The time that servers took to start sets how long slots, reports and stages may take."""
    fast, slow = RoundPace.of(0.5, 225, 5), RoundPace.of(12.0, 225, 5)
    assert fast == RoundPace()
    assert slow.joining == 39
    assert slow.margin == 18
    assert slow.grace == 480
    assert RoundPace.of(1000.0, 9000, 20).joining == 150
    assert RoundPace.of(2.5, 450, 5).longest == 145, "within three minutes on a quiet machine"
    assert slow.longest > 300
    assert slow.slower() == RoundPace(78, 36, 960, 5)


def test_an_experiment_with_aborted_first_rounds_is_reported_as_failed() -> None:
    def progress(*stages: tuple[str, int]) -> DemoProgress:
        rounds = [{"stage": stage, "closes": closes} for stage, closes in stages]
        return DemoProgress({"rounds": rounds}, {}, VisitCounts(), 0.0, ())

    assert progress(("refused", 9), ("refused", 9), ("open", 30), ("preparing", 0)).in_vain
    for others in (("opened", 9), ("closing", 9), ("open", 9)):
        assert not progress(("refused", 9), others).in_vain
    assert not progress(("open", 9)).in_vain
    assert progress(("opened", 9)).released


@pytest.mark.parametrize("trust", [TrustModel.LOCAL, TrustModel.SECURE_AGGREGATION])
def test_the_smallest_demonstration_is_valid(trust: TrustModel) -> None:
    assert parse(definition_of([], DemoSettings(people=LEAST, trust=trust))).participants == LEAST


def alive(marker: str) -> list[str]:
    """Processes of this machine whose words hold the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if marker in words:
                found.append(words)
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are listed in /proc")
@pytest.mark.extended
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_survives_the_demonstration(tmp_path: Path, how: signal.Signals) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "tacit", "demo", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=hearing,
    ) as demo:
        wait_until(lambda: len(alive(f"{tmp_path}/tacit-demo-")) >= 2)
        demo.send_signal(how)
        demo.wait(60)
    wait_until(lambda: not alive(f"{tmp_path}/tacit-demo-"))
    if how is not signal.SIGKILL:
        # CPython dies of SIGINT itself if the interrupt came while it made a dataclass; shells show
        # 130 for both
        assert demo.returncode in (130, -signal.SIGINT)
        assert not list(tmp_path.glob("tacit-demo-*"))


def hearing() -> None:
    """^C is heard, also where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(true: object, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():  # type: ignore[operator]
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def test_a_server_that_fails_to_start_is_reported(tmp_path: Path) -> None:
    child = Child(["-c", "raise SystemExit('no port is free')"], tmp_path / "log")
    with pytest.raises(ValueError, match="no port is free"):
        child.wait_for("http://127.0.0.1:9/readyz", lambda: None)
    child.end()


@pytest.mark.slow
def test_the_whole_demonstration_finds_the_best_option(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tacit", "demo", "--json", "--out", str(tmp_path)]
    said = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    assert said["best"] == said["decided"] == OPTIONS[2]
    assert said["people"]["reported"] > BATCH  # how many more depends on the machine's speed
    assert (tmp_path / "report.html").stat().st_size < 100_000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are listed in /proc")
def test_a_kept_demonstration_serves_until_interrupted(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tacit", "demo", "--keep", "--json", "--out", str(tmp_path)]
    said = tmp_path / "said"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            words,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=hearing,
            start_new_session=True,
        ) as demo,
    ):
        try:
            wait_until(lambda: "serving at" in said.read_text(), 300)
            page = re.search("serving at (.*) until", said.read_text())[1]  # type: ignore[index]
            found = httpx.get(page).raise_for_status().text
            assert f"</svg>{OPTIONS[2]}</strong>" in found
            assert "Running" in found
            assert httpx.get(f"{page}/take-part").status_code == 200
        finally:
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        told = json.loads(demo.communicate(timeout=60)[0])
    assert demo.returncode == 0
    assert told["best"] == OPTIONS[2]
    wait_until(lambda: not alive(f"{tmp_path}/tacit-demo-"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["report.html", "said"]


def test_make_demo_stays_open_on_request() -> None:
    for told, kept in (("KEEP=1", True), ("KEEP=", False)):
        words = ["make", "--dry-run", "demo", told]
        planned = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        assert ("--keep" in planned.stdout) == kept
