"""A federation on FLARE processes: the simulation's decisions, private releases and evaluations,
and no code from a job."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.silos.harness import LocalFederation, listening
from tests.silos.test_crashes import REQUEST
from tests.silos.test_crashes import TABLE as RECORDED
from tests.silos.test_federation import NOTED, Watched, released
from tests.silos.test_released_noise import RATE, check_silo, variance_p

from tacit.keyfiles import KeyFile, save_signing_key
from tacit.protocols.mechanism import Releases
from tacit.records import RecordDirectory
from tacit.silos import config
from tacit.silos.agent import RecordedEvaluations
from tacit.silos.context import ContextSpec
from tacit.silos.coordinator import FederationCoordinator
from tacit.silos.evaluation import estimate
from tacit.silos.evaluation_files import result_of
from tacit.silos.exchange import InProcessExchange
from tacit.silos.federation import SyncSchedule, write_federation
from tacit.silos.http import agent_app
from tacit.silos.jobs import ALLOWED, write_job
from tacit.simulation.driver import run

pytestmark = [
    pytest.mark.extended,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # its sockets
]

SILOS, D, SYNC, STEPS = 3, 4, 5, 4
NAMES = [f"silo{number}" for number in range(SILOS)]
FOREIGN = "subprocess.Popen"


class Network:
    """A FLARE network whose sites reach the agents of the installed federation."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.study = folder, folder / "study"
        self.federation: LocalFederation | None = None
        self.flare: Any = None

    @property
    def kits(self) -> Path:
        """The startup kits of server and sites, with the logs of jobs."""
        return Path(self.flare.kits)

    def install(self, federation: LocalFederation) -> None:
        """Put the coordinator's files in their place, and the agents behind their ports."""
        self.federation = federation
        shutil.rmtree(self.study, ignore_errors=True)
        self.study.mkdir()
        (self.study / "lock").write_text("x" * 64)
        lock = KeyFile(self.study / "lock")
        save_signing_key(self.study / "coordinator.key", federation.key, lock)
        text = config.FEDERATION.format(path=self.study, declared=config.DECLARED)
        (self.study / "federation.toml").write_text(text)
        signed = dict(zip(["coordinator", *NAMES], federation.pinned.signatures, strict=True))
        (self.study / "terms.json").write_text(write_federation(federation.terms, signed))

    def submit(self, name: str) -> str:
        """Submit the job of the federation."""
        return str(self.flare.submit(write_job(self.folder / name, NAMES)))

    def coordinator(self) -> FederationCoordinator:
        """The coordinator as its records have it."""
        assert self.federation is not None
        records = RecordDirectory(self.study / "records")
        pinned, key = self.federation.pinned, self.federation.key
        return FederationCoordinator(pinned, key, InProcessExchange({}), records)


class CurrentAgent:
    """The agent of a site in the federation that is installed now."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name

    def respond(self, stage: str, message: bytes) -> bytes:
        assert self.network.federation is not None
        return self.network.federation.agents[self.name].respond(stage, message)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """The server allows a foreign class and code of jobs; the sites allow neither."""
    folder = tmp_path_factory.mktemp("network")
    made = Network(folder)
    token = folder / "engine-token"
    token.write_text("engine")
    apps = {name: agent_app(CurrentAgent(made, name), "none", "engine") for name in NAMES}  # type: ignore[arg-type]
    flare_network = pytest.importorskip("tacit.silos.flare_network")
    kits = flare_network.provision(folder, NAMES)
    trusting = kits / flare_network.SERVER / "local"
    rules = json.loads((trusting / "authorization.json").read_text())
    rules["permissions"]["project_admin"]["byoc"] = "any"
    (trusting / "authorization.json").write_text(json.dumps(rules))
    resources = json.loads((trusting / "resources.json").read_text())
    resources["class_allow_list"] = [*ALLOWED, FOREIGN]
    (trusting / "resources.json").write_text(json.dumps(resources))
    with listening(apps) as ports:
        sites = [flare_network.FlareSite(name, port, token) for name, port in ports.items()]
        definition = made.study / "federation.toml"
        with flare_network.running_network(folder, sites, definition, kits) as started:
            made.flare = started
            yield made


def wait_for(step: int, federation: LocalFederation, seconds: float) -> None:
    """Wait until every agent has the policy of a step."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if all(agent.status()["policy"] == step for agent in federation.agents.values()):
            return
        time.sleep(0.02)
    raise AssertionError(f"no policy of step {step} within {seconds} s")


def test_sites_reject_code_and_classes_of_jobs_that_are_not_allowed(
    network: Network, tmp_path: Path
) -> None:
    """Each site decides on its own: the server would allow both jobs."""
    marker = tmp_path / "ran"
    code = (
        "from nvflare.apis.executor import Executor as Base\n"
        "from pathlib import Path\n"
        f"Path({str(marker)!r}).touch()\n"
        "class Executor(Base):\n    pass\n"
    )
    network.install(LocalFederation.of(SILOS))
    byoc = write_job(tmp_path / "byoc", NAMES)
    (byoc / "app" / "custom").mkdir()
    (byoc / "app" / "custom" / "brought.py").write_text(code)
    named = byoc / "app" / "config" / "config_fed_client.json"
    document = json.loads(named.read_text())
    document["executors"][0]["executor"]["path"] = "brought.Executor"
    named.write_text(json.dumps(document))
    brought = network.flare.submit(byoc)
    assert network.flare.wait(brought, 120) == "FINISHED:FAILED_TO_RUN"
    detail = network.flare.session.get_job_meta(brought)["job_deploy_detail"]
    denied = [line for line in detail if "BYOC not permitted" in line]
    assert [name for name in NAMES if any(line.startswith(name) for line in denied)] == NAMES
    assert not any(line.startswith("server") for line in denied)

    other = write_job(tmp_path / "other", NAMES)
    client = other / "app" / "config" / "config_fed_client.json"
    document = json.loads(client.read_text())
    document["executors"][0]["executor"] = {
        "path": FOREIGN,
        "args": {"args": ["touch", str(marker)]},
    }
    client.write_text(json.dumps(document))
    job = network.flare.submit(other)
    ended = network.flare.wait(job, 240)
    assert ended.startswith("FINISHED:")
    assert ended != "FINISHED:COMPLETED"
    for name in NAMES:
        log = (network.kits / name / job / "log.txt").read_text()
        assert "ComponentNotAuthorized" in log
        assert FOREIGN in log
    assert not marker.exists()
    assert network.coordinator().step == 0


def test_decisions_over_flare_match_the_simulation(network: Network) -> None:
    """Agents accept a row once its batch was treated, however slow the machine is."""
    federation = LocalFederation.of(
        SILOS,
        algorithm="fedlinucb",
        context=ContextSpec(features=D),
        schedule=SyncSchedule(horizon=SYNC * STEPS, sync=SYNC, kind="fixed", starts=1, pace=1000),
    )
    world = Watched.draw(SILOS, D, 5, np.random.default_rng(1))
    NOTED.clear()
    run(federation.terms.experiment(), world, np.random.default_rng(2))
    simulated = np.array(NOTED)

    network.install(federation)
    job = network.submit("decisions")
    rng, chosen = np.random.default_rng(2), []
    agents = list(federation.agents.values())
    for step in range(STEPS):
        wait_for(step, federation, 240)
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
        federation.now = federation.terms.due(step)
    assert network.flare.wait(job, 240) == "FINISHED:COMPLETED"
    np.testing.assert_array_equal(np.array(chosen), simulated)
    ended = network.coordinator()
    assert ended.finished
    assert len(released(ended)) == STEPS


@pytest.mark.parametrize("rows", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_releases_and_an_evaluation_run_over_flare(network: Network, rows: int) -> None:
    """Silos without records release noise and nothing else: 27 numbers a row, false positive rate
    1e-6 for each test. The evaluation is charged, and its result is that of the committed sums."""
    schedule = SyncSchedule(horizon=rows, sync=1, kind="fixed")
    federation = LocalFederation.of(SILOS, schedule=schedule)
    federation.recorded = RecordedEvaluations(RECORDED, Fraction(8), Fraction(1, 10**5))
    for number in range(SILOS):
        federation.restart(number)
    network.install(federation)
    (network.study / "evaluations").mkdir()
    asked = network.study / "evaluations" / "0000.request.json"
    asked.write_bytes(REQUEST.encode())
    assert network.flare.wait(network.submit(f"private{rows}"), 600) == "FINISHED:COMPLETED"
    ended = network.coordinator()
    mechanism = ended.experiment.mechanism
    assert isinstance(mechanism, Releases)
    found, sums = released(ended), mechanism.sums
    assert found.shape == (rows, 27)
    assert variance_p(found / np.sqrt(sums.row_variance)) > RATE
    messages = [
        np.array([np.frombuffer(row.message or b"", np.int64) for row in agent._database.rows()])
        for agent in federation.agents.values()
    ]
    for words in messages:
        check_silo(words, sums)
    np.testing.assert_array_equal(np.sum(messages, axis=0) / sums.scale, found)

    stored = [agent._database.evaluations()[0] for agent in federation.agents.values()]
    words = np.array([np.frombuffer(message, np.uint64) for _, message in stored])
    own = REQUEST.sums(federation.terms)
    total = words.sum(axis=0, dtype=np.uint64).view(np.int64) / own.scale
    told = json.loads(result_of(asked).read_text())
    assert told == estimate(REQUEST, own, total).to_dict()
