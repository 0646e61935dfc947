"""A federation on FLARE processes: the simulation's decisions, and no code from a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.silos.harness import LocalFederation, serving
from tests.silos.test_federation import NOTED, Watched, released

from tacit.keyfiles import KeyFile, save_signing_key
from tacit.records import RecordDirectory
from tacit.silos import config
from tacit.silos.context import ContextSpec
from tacit.silos.coordinator import FederationCoordinator
from tacit.silos.exchange import InProcessExchange
from tacit.silos.federation import SyncSchedule, write_federation
from tacit.silos.jobs import write_job
from tacit.simulation.driver import run

flare_network = pytest.importorskip("tacit.silos.flare_network")
pytestmark = pytest.mark.extended

SILOS, D, SYNC, STEPS, PACE = 3, 4, 5, 4, 1000  # a batch of 5 records takes 5 s


@pytest.fixture
def federation(tmp_path: Path) -> LocalFederation:
    """Agents here, the coordinator's files in a folder; the first row is due in a while."""
    made = LocalFederation.of(
        SILOS,
        algorithm="fedlinucb",
        context=ContextSpec(features=D),
        schedule=SyncSchedule(
            horizon=SYNC * STEPS, sync=SYNC, kind="fixed", starts=int(time.time()) + 45, pace=PACE
        ),
    )
    study = tmp_path / "study"
    study.mkdir()
    (study / "lock").write_text("x" * 64)
    save_signing_key(study / "coordinator.key", made.key, KeyFile(study / "lock"))
    text = config.FEDERATION.format(path=study, declared=config.DECLARED)
    (study / "federation.toml").write_text(text)
    names = ["coordinator", *(silo.name for silo in made.terms.silos)]
    signed = dict(zip(names, made.pinned.signatures, strict=True))
    (study / "terms.json").write_text(write_federation(made.terms, signed))
    made.now = float("inf")  # agents accept rows at once; the coordinator keeps the schedule
    return made


@pytest.fixture
def network(federation: LocalFederation, tmp_path: Path) -> Iterator[Any]:
    token = tmp_path / "engine-token"
    token.write_text("engine")
    with serving(federation, "application", "engine") as ports:
        sites = [flare_network.FlareSite(name, port, token) for name, port in ports.items()]
        folder = tmp_path / "flare"
        folder.mkdir()
        study = tmp_path / "study" / "federation.toml"
        with flare_network.running_network(folder, sites, study) as started:
            yield started


def wait_for(step: int, federation: LocalFederation, seconds: float) -> None:
    """Wait until every agent has the policy of a step."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if all(agent.status()["policy"] == step for agent in federation.agents.values()):
            return
        time.sleep(0.02)
    raise AssertionError(f"no policy of step {step} within {seconds} s")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # FLARE's sockets
def test_flare_gives_the_simulations_decisions_and_runs_no_code_of_jobs(
    federation: LocalFederation, network: Any, tmp_path: Path
) -> None:
    world = Watched.draw(SILOS, D, 5, np.random.default_rng(1))
    NOTED.clear()
    run(federation.terms.experiment(), world, np.random.default_rng(2))
    simulated = np.array(NOTED)

    code = "from nvflare.apis.executor import Executor as Base\nclass Executor(Base):\n    pass\n"
    brought = network.submit(write_job(tmp_path / "byoc", network.sites, code))
    assert network.wait(brought, 60) == "FINISHED:FAILED_TO_RUN"
    assert "BYOC not permitted" in str(network.session.get_job_meta(brought)["job_deploy_detail"])

    job = network.submit(write_job(tmp_path / "job", network.sites))
    rng, chosen = np.random.default_rng(2), []
    agents = list(federation.agents.values())
    for step in range(STEPS):
        wait_for(step, federation, 90)
        for _ in range(SYNC):
            contexts = world.contexts(rng)
            made = [
                agent.decide(table.tolist()) for agent, table in zip(agents, contexts, strict=True)
            ]
            x = contexts[np.arange(SILOS), [int(one.action) for one in made]]
            chosen.append(x)
            rewards = world.earned(x, np.asarray(x @ world.parameter), rng)
            for agent, one, reward in zip(agents, made, rewards, strict=True):
                agent.record(one, float(reward))
    assert network.wait(job, 60) == "FINISHED:COMPLETED"
    np.testing.assert_array_equal(np.array(chosen), simulated)
    records = RecordDirectory(tmp_path / "study" / "records")
    ended = FederationCoordinator(federation.pinned, federation.key, InProcessExchange({}), records)
    assert ended.finished
    assert len(released(ended)) == STEPS
