"""The demonstration of silos: generated patients, the comparison, the report, the FLARE run."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.silos.demo.patients import HOSPITALS, WARD, Patients, own_linucb
from tacit.silos.demo.study import Cohort, in_process, schedule

SEEDS = 10


def test_means_are_probabilities_and_the_true_policy_has_no_regret() -> None:
    cohort = Cohort.draw(3)
    means = cohort.patients.means(cohort.held_out)
    assert means.shape == (10_000, 2)
    assert 0.05 <= means.min() <= means.max() <= 0.95
    assert cohort.patients.regret(cohort.patients.effects, cohort.held_out) == 0
    assert 0.2 < (means[:, 0] > means[:, 1]).mean() < 0.8  # neither treatment is always better


def test_a_single_hospital_learns_its_own_patients() -> None:
    patients = Patients.draw(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    own = own_linucb(patients, 0, 600, rng)
    home = np.array([WARD.scaled(patients.context(0, rng)) for _ in range(500)])
    nothing = np.zeros_like(own)
    worst = max(patients.regret(nothing + np.array([[a], [1 - a]]), home) for a in (0, 1))
    assert patients.regret(own, home) <= worst


def test_a_hospital_treats_one_kind_of_patient() -> None:
    rng = np.random.default_rng(5)
    kinds = set()
    for hospital in range(len(HOSPITALS)):
        seen = [Patients.draw(rng).context(hospital, rng) for _ in range(200)]
        (kind,) = {(one["emergency"], one["diabetic"]) for one in seen}
        kinds.add(kind)
    assert len(kinds) == 4
    mixed = Patients.draw(rng, others=0.5)
    found = [mixed.context(0, rng) for _ in range(400)]
    assert len({(one["emergency"], one["diabetic"]) for one in found}) == 4
    assert 150 < sum(one["emergency"] for one in found) < 250


@pytest.mark.extended
def test_a_small_study_runs_in_one_process() -> None:
    result = in_process(1, count=100)
    assert result.effects.shape == result.truth.shape == (2, 5)
    assert set(result.received) == set(HOSPITALS)
    assert all(one > 0 for one in result.received.values())
    assert len(result.own) == len(result.at_home) == len(result.treated) == len(HOSPITALS)


@pytest.mark.extended
def test_the_report_shows_regret_coefficients_and_the_data_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nvflare")
    from tests.silos.harness import LocalFederation

    from tacit.silos.demo import report
    from tacit.silos.demo.play import DemoFederation

    federation = LocalFederation.of(4, context=WARD, schedule=schedule(100))
    coordinator = federation.coordinator()
    statuses = tuple(agent.status() for agent in federation.agents.values())
    shown = DemoFederation(
        in_process(1, count=100),
        federation.terms,
        coordinator.policy(),
        statuses,
        12.0,
        "FINISHED:COMPLETED",
        0.3,
    )
    page = report.page(shown)
    assert page.count("data:image/png;base64,") == 3
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as after pip install '.[flare]'
    plain = report.page(shown)
    assert "data:image" not in plain
    for text in ("north", "Who saw what", "masked numbers", "Every row needs every silo"):
        assert text in page
        assert text in plain


@pytest.mark.slow
def test_the_shared_policy_beats_every_hospital_alone_in_nine_of_ten_seeds() -> None:
    """ε = 1, δ = 1e-5; the noise is the operating system's. Patients were chosen on other seeds."""
    better = [in_process(seed).better for seed in range(SEEDS)]
    assert sum(better) >= 9


@pytest.mark.slow
def test_the_demonstration_runs_on_flare(tmp_path: Path) -> None:
    """Bounded in CPU time, since a busy machine stretches the schedule: 141 s when measured."""
    pytest.importorskip("nvflare")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["demo", "silos", "--json", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tacit", *words], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert told["better"]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 300
    assert (tmp_path / "silos.html").stat().st_size > 50_000


@pytest.mark.extended
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_demonstration_ends_soon_after_an_interrupt(
    tmp_path: Path, how: signal.Signals
) -> None:
    pytest.importorskip("nvflare")
    words = ["demo", "silos", "--pace", "500", "--out", str(tmp_path / "out")]  # 17 minutes
    with subprocess.Popen(
        [sys.executable, "-m", "tacit", *words],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as demo:
        assert demo.stderr is not None
        assert any("about 17 min" in line for line in demo.stderr)
        demo.send_signal(how)
        try:
            assert demo.wait(90) in (130, -signal.SIGINT)
        finally:
            demo.kill()
    assert not list(tmp_path.glob("tacit-silos-*"))


@pytest.mark.extended
def test_a_result_states_that_the_machine_was_too_slow() -> None:
    pytest.importorskip("nvflare")
    from tests.silos.harness import LocalFederation

    from tacit.silos.demo import report
    from tacit.silos.demo.play import DemoFederation

    federation = LocalFederation.of(4, context=WARD, schedule=schedule(100, 0, 40))
    result, policy = in_process(1, count=100), federation.coordinator().policy()
    for used, warned in ((25 * 3, True), (90, False)):
        statuses = ({"synchronised": used},) * 4
        shown = DemoFederation(result, federation.terms, policy, statuses, 12.0, "", 0.3)
        assert shown.in_time == (4 * used, 400)
        assert shown.hurried == warned
        said = "Only 300 of 400 patients were in time for a sum"
        assert (said in report.answer(shown)) == warned
        assert ("--pace 80" in report.answer(shown)) == warned


def test_the_schedule_adapts_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvflare")
    from tacit.silos.demo import play

    for slower, pace in ((1, 40), (3, 120), (100, 400)):
        now = iter(range(1000))
        monkeypatch.setattr("time.process_time", lambda now=now: 0.1 * next(now))
        walls = iter((5.0, 5.0 + 0.3 * slower))
        monkeypatch.setattr("time.perf_counter", lambda walls=walls: next(walls))
        assert play.measured_pace(0.3) == pace


def test_a_slow_schedule_has_enough_time() -> None:
    pytest.importorskip("nvflare")
    from tests.silos.harness import LocalFederation

    from tacit.silos.demo import play

    slow = LocalFederation.of(4, context=WARD, schedule=schedule(2000, 0, 400)).terms
    assert play._longest_wait(slow) == 240 + 800
