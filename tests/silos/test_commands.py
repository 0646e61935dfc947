"""`tacit silo` and `tacit federation`, from new directories to an exported policy, and kills of
agents.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.silos.harness import listening

from tacit.cli import silos as commands
from tacit.errors import InvalidFile, Rejected, TacitError, Unavailable
from tacit.records import MemoryRecords, RecordDirectory
from tacit.silos import config
from tacit.silos.agent import SiloAgent
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.silos.coordinator import CoordinatorTiming, FederationCoordinator, SiloAbsent
from tacit.silos.exchange import InProcessExchange
from tacit.silos.exported import ExportedPolicy, load_policy
from tacit.silos.http import agent_app
from tacit.silos.relay import AgentRelay

SILOS, FIRST_PORT = 3, 18710


def set_up(folder: Path, schedule: str = "horizon = 40") -> None:
    """A federation of three silos with signed terms, made by the commands."""
    study = folder / "study"
    config.create_federation(study)
    definition = study / "federation.toml"
    text = definition.read_text()
    definition.write_text(text.replace("horizon = 2500", schedule))
    homes = [folder / f"silo{number}" for number in range(SILOS)]
    for number, home in enumerate(homes):
        commands.new_silo(home, port=FIRST_PORT + number, like=definition, as_json=True)
    commands.make_terms(definition, [home / "card.toml" for home in homes], as_json=True)
    for home in homes:
        shutil.copy(study / "terms.json", home)
        commands.check_silo(home / "silo.toml", sign=True, yes=True, as_json=True)
    commands.join_signatures(definition, [home / "terms.json" for home in homes], as_json=True)
    for home in homes:
        shutil.copy(study / "terms.json", home)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: deriving a key's encryption takes a while on purpose."""
    folder = tmp_path_factory.mktemp("signed")
    set_up(folder)
    return folder


@pytest.fixture
def definition(tmp_path: Path, signed: Path) -> Path:
    shutil.copytree(signed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "study" / "federation.toml"


def coordinator_of(definition: Path, exchange: InProcessExchange) -> FederationCoordinator:
    told = config.read_entries(config.FederationConfig, definition)
    pinned = config.load_terms(definition, told)
    records = RecordDirectory(definition.parent / "records")
    timing = CoordinatorTiming(deadline=20, retry=0.2)
    key = config.load_key(definition, told)
    return FederationCoordinator(pinned, key, exchange, records, timing)


@pytest.mark.extended
def test_the_commands_lead_from_new_directories_to_an_exported_policy(
    tmp_path: Path, definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "silo1"
    capsys.readouterr()
    commands.check_silo(home / "silo.toml", as_json=True)
    checked = json.loads(capsys.readouterr().out)
    assert 0.999 < checked["epsilon"] <= 1
    assert 0.999999 * 1e-5 < checked["delta"] < 1e-5  # 1/100000 is no double: the one below
    assert (checked["missing"], checked["largest_missing"]) == (0, 0)
    assert checked["signed"] == ["coordinator", "silo0", "silo1", "silo2"]
    agents = {f"silo{n}": config.open_agent(tmp_path / f"silo{n}" / "silo.toml") for n in range(3)}
    coordinator = coordinator_of(
        definition,
        InProcessExchange({n: lambda n=n: agents[n] for n in agents}),  # type: ignore[misc]
    )
    coordinator.run()
    assert coordinator.step == len(coordinator.terms.batches)
    commands.silo_status(home / "silo.toml", as_json=True)
    assert json.loads(capsys.readouterr().out)["finished"]
    out = tmp_path / "policy.json"
    commands.export_policy(home / "silo.toml", out, as_json=True)
    choose = load_policy(out)
    assert choose({"age": 50, "severe": False}) in ("drug", "surgery")


def test_an_exported_policy_needs_numpy_only(tmp_path: Path) -> None:
    spec = config.Declarations.model_validate(
        {
            "actions": ("a", "b"),
            "columns": [{"name": "x", "low": -1, "high": "3/2"}],
            "outcome": {"meaning": "y"},
        }
    ).context
    path = tmp_path / "policy.json"
    exported = ExportedPolicy(spec, 3, np.array([[0.5, 0.1], [0.6, -0.3]]))
    path.write_text(exported.to_json())
    code = (
        "import sys\n"
        "from tacit.silos.exported import load_policy\n"
        f"choose = load_policy({str(path)!r})\n"
        "print(choose({'x': -1}), choose({'x': 1.5}))\n"
        "print(sorted({'scipy', 'cryptography', 'pydantic', 'typer'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["b a", "[]"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("epsilon = 1\n", 'epsilon = "1/2"\n'), "must be at most 1/2, the budget"),
        (("high = 90", "high = 91"), "column age of the terms is a number from 18 to 90: must"),
        (("worst = 30", "worst = 31"), "outcome of the terms differs"),
        (('host = "127.0.0.1"', 'host = "0.0.0.0"'), "of its own machine only"),
        (("port = 1871", "port = 0\nport2 = 1871"), "2 errors"),
        (("epsilon = 1\n", "epsilon = 0\n"), "budget.epsilon is 0: must be greater than 0"),
        (("epsilon = 1\n", 'epsilon = "1/0"\n'), 'budget.epsilon is "1/0": must be a number'),
        (('delta = "1/100000"', "delta = 1"), "budget.delta is 1: must be less than 1"),
    ],
)
def test_an_agent_rejects_terms_weaker_than_its_file(
    tmp_path: Path, definition: Path, change: tuple[str, str], told: str
) -> None:
    assert definition.exists()
    path = tmp_path / "silo0" / "silo.toml"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    with pytest.raises(TacitError, match=told):
        config.open_agent(path)


@pytest.mark.extended
def test_a_log_is_replayed_through_a_running_agent(
    tmp_path: Path, definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P[accepted] = floor, whichever action is proposed; false positive rate 1e-6."""
    path, rng = tmp_path / "silo0" / "silo.toml", np.random.default_rng(4)
    agents = {f"silo{n}": config.open_agent(tmp_path / f"silo{n}" / "silo.toml") for n in range(3)}
    coordinator = coordinator_of(
        definition,
        InProcessExchange({n: lambda n=n: agents[n] for n in agents}),  # type: ignore[misc]
    )
    coordinator.deliver()
    rows = ["age,severe,action,outcome,propensity"]
    for _ in range(300):
        action, chance = ("drug", 0.6) if rng.random() < 0.6 else ("surgery", 0.4)
        rows.append(
            f"{rng.integers(18, 91)},{rng.random() < 0.5},{action},{rng.integers(31)},{chance}"
        )
    log = tmp_path / "log.csv"
    log.write_text("\n".join(rows))
    tokens = [(path.parent / name).read_text().strip() for name in config.TOKENS]
    with listening({"silo0": agent_app(agents["silo0"], *tokens)}) as ports:
        path.write_text(path.read_text().replace("port = 18710", f"port = {ports['silo0']}"))
        capsys.readouterr()
        commands.replay_log(log, path, floor=0.4, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == 300
    assert stats.binomtest(told["accepted"], 300, 0.4).pvalue > 1e-6
    status = agents["silo0"].status()
    assert (status["decisions"], status["outcomes"]) == (300, told["accepted"])
    coordinator.synchronise()
    assert agents["silo0"].status()["synchronised"] == coordinator.terms.batches[0]
    with pytest.raises(TacitError, match="must be at least the declared floor"):
        commands.replay_log(log, path, floor=0.5)
    with pytest.raises(Unavailable, match="start it"):
        commands.replay_log(log, path, floor=0.4)


@pytest.mark.parametrize(
    ("name", "port", "told"), [("a\nb", 8710, "name of a silo"), ("north", 70_000, "port")]
)
def test_a_rejected_silo_leaves_no_files(tmp_path: Path, name: str, port: int, told: str) -> None:
    with pytest.raises(TacitError, match=told):
        config.create_silo(tmp_path / "silo", name, port)
    assert not (tmp_path / "silo").exists()


def test_names_may_contain_quotes(tmp_path: Path) -> None:
    card = config.create_silo(tmp_path, 'St. "Mary" \\ east', 8710)
    assert config.read_entries(config.SiloCard, tmp_path / "card.toml") == card
    assert config.read_entries(config.SiloConfig, tmp_path / "silo.toml").name == card.name


def test_missing_files_are_named_with_a_remedy(
    tmp_path: Path, definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert definition.exists()
    path = tmp_path / "silo0" / "silo.toml"
    capsys.readouterr()
    commands.silo_status(path)
    told = capsys.readouterr().out
    assert "when the coordinator asks" in told
    assert "epsilon of evaluations" in told
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        path.write_text(path.read_text().replace(f"port = {FIRST_PORT}", f"port = {port}"))
        with pytest.raises(TacitError, match=f"port is {port}: must be free"):
            commands.serve_silo(path)
    (path.parent / "engine-token").unlink()
    with pytest.raises(TacitError, match="engine-token is missing: put a random text"):
        commands.serve_silo(path)
    (path.parent / "terms.json").unlink()
    with pytest.raises(TacitError, match="is missing: put the terms there"):
        commands.silo_status(path)
    with pytest.raises(TacitError, match=r"is missing: there is nothing to sign\. Copy"):
        commands.check_silo(path, sign=True)


def test_terms_that_differ_from_a_silos_declarations_name_what_differs(definition: Path) -> None:
    path = definition.parents[1] / "silo0" / "silo.toml"
    text = path.read_text()
    for changed, told in (
        (
            ("high = 90", "high = 80"),
            "column age of the terms is a number from 18 to 90: must be a",
        ),
        (
            ('"surgery"', '"rest"'),
            'actions of the terms is ["drug", "surgery"]: must be ["drug", "r',
        ),
        (
            ('"severe"', '"acute"'),
            "column severe of the terms is boolean: must be absent, as in silo",
        ),
    ):
        path.write_text(text.replace(*changed))
        with pytest.raises(InvalidFile) as rejection:
            commands.check_silo(path, sign=True, yes=True)
        assert rejection.value.problems[0].startswith(told)


def test_files_that_are_no_card_and_entries_of_another_type_are_rejected_with_a_remedy(
    tmp_path: Path, definition: Path
) -> None:
    with pytest.raises(
        TacitError, match=r"silo.toml has no delta: must be a silo's card. Name the"
    ):
        commands.make_terms(definition, [tmp_path / "silo0" / "silo.toml"])
    text = definition.read_text()
    for changed, told in (
        (
            ("actions = [", 'actions = "drug" # ['),
            'actions is "drug": must be a list such as ["a",',
        ),
        (("patience = 86400", 'patience = "1 day"'), 'is "1 day": must be a whole number, without'),
        (("secagg-fedlinucb", "secagg-fedlinucbb"), "; did you mean secagg-fedlinucb?"),
        (("high = 90\n", ""), "Declare low and high of column age; without them they are 0 and 1"),
    ):
        definition.write_text(text.replace(*changed))
        with pytest.raises(TacitError) as rejection:
            commands.make_terms(definition, [])
        assert told in str(rejection.value)


def test_check_states_the_additional_cost_of_evaluations(
    tmp_path: Path, definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert definition.exists()
    path = tmp_path / "silo0" / "silo.toml"
    capsys.readouterr()
    commands.check_silo(path)
    assert "Evaluations of recorded data: none" in capsys.readouterr().out
    cost = '[evaluations]\nepsilon = "3/2"\ndelta = "1/1000000"\n'
    path.write_text(f'recorded = "log.csv"\n{path.read_text()}\n{cost}')
    commands.check_silo(path)
    assert "cost up to (3/2, 1/1000000)-DP besides" in capsys.readouterr().out
    commands.check_silo(path, as_json=True)
    told = json.loads(capsys.readouterr().out)["evaluations"]
    assert told == {"epsilon": "3/2", "delta": "1/1000000"}


def test_a_silos_files_are_readable_by_their_owner_only(tmp_path: Path, definition: Path) -> None:
    assert definition.exists()
    home = tmp_path / "silo0"
    agent = config.open_agent(home / "silo.toml")
    for name in ("silo.sqlite", "silo.key", "lock", *config.TOKENS):
        assert not (home / name).stat().st_mode & 0o077, name
    agent._database.add_evaluation(0, b"asked", b"noisy")
    agent._database.close()
    shutil.rmtree(home / "records")
    with pytest.raises(TacitError, match="records"):  # noise may have been drawn: not forgotten
        config.open_agent(home / "silo.toml")


@contextmanager
def running(path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An agent in its own process, ready for requests."""
    process = subprocess.Popen([sys.executable, "-m", "tacit", "silo", "serve", str(path)])
    relay = AgentRelay("127.0.0.1", port, "wrong token")
    for _ in range(600):
        try:
            relay.respond("POLICY", b"")
        except Unavailable as problem:
            if "status 401" in str(problem):
                break
            time.sleep(0.1)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.slow
def test_twenty_kills_of_an_agent_lose_no_data(tmp_path: Path, definition: Path) -> None:
    """SIGKILL at random moments of a synchronisation; afterwards every row is released once."""
    path, port = tmp_path / "silo0" / "silo.toml", FIRST_PORT
    others = {f"silo{n}": config.open_agent(tmp_path / f"silo{n}" / "silo.toml") for n in (1, 2)}
    relay = AgentRelay.of(port, path.parent / "engine-token")
    rng, kills = random.Random(1), 0
    victim: list[subprocess.Popen[bytes]] = []

    class Killing:
        """The relay; it kills the agent before or after some of its answers."""

        def respond(self, stage: str, message: bytes) -> bytes:
            nonlocal kills
            if victim and kills < 20 and rng.random() < 0.5:
                before = rng.random() < 0.5
                if not before:
                    relay.respond(stage, message)
                kills += 1
                os.kill(victim.pop().pid, signal.SIGKILL)
                raise Rejected("killed")
            try:
                return relay.respond(stage, message)
            except Unavailable:
                raise Rejected("away") from None

    responders = {"silo0": lambda: Killing(), **{n: lambda n=n: others[n] for n in others}}
    exchange = InProcessExchange(responders)  # type: ignore[arg-type]
    for _ in range(60):
        with running(path, port) as process:
            victim[:] = [process]
            coordinator = coordinator_of(definition, exchange)
            while victim and not coordinator.finished:
                try:
                    coordinator.deliver()
                    coordinator.synchronise()
                except SiloAbsent:
                    continue
            if coordinator.finished:
                break
    assert kills == 20
    assert coordinator.step == len(coordinator.terms.batches)


@pytest.mark.slow
def test_twenty_kills_of_the_coordinator_lose_no_data(tmp_path: Path) -> None:
    """SIGKILL of `tacit federation rehearse` before or after an agent's answer, at random messages;
    afterwards every row is released once, from the messages that silos committed."""
    set_up(tmp_path, 'horizon = 40\nkind = "fixed"\nsync = 2')
    study, rng = tmp_path / "study" / "federation.toml", random.Random(2)
    homes = {f"silo{n}": tmp_path / f"silo{n}" / "silo.toml" for n in range(SILOS)}
    agents = {name: config.open_agent(path) for name, path in homes.items()}
    victim: list[subprocess.Popen[bytes]] = []
    left, kills = 0, 0

    class Killing:
        """An agent during whose answers the coordinator is killed."""

        def __init__(self, agent: SiloAgent) -> None:
            self.agent = agent

        def respond(self, stage: str, message: bytes) -> bytes:
            nonlocal left, kills
            left -= 1
            now = left == 0 and bool(victim)
            if now and rng.random() < 0.5:
                os.kill(victim.pop().pid, signal.SIGKILL)
                kills += 1
            answer = self.agent.respond(stage, message)
            if now and victim:
                os.kill(victim.pop().pid, signal.SIGKILL)
                kills += 1
            return answer

    def rehearse() -> int:
        words = ["federation", "rehearse", str(study)]
        for path in homes.values():
            words += ["--silo", str(path)]
        process = subprocess.Popen([sys.executable, "-m", "tacit", *words])
        victim[:] = [process] if kills < 20 else []
        return process.wait(300)

    apps = {}
    for name, path in homes.items():
        token = (path.parent / "engine-token").read_text().strip()
        apps[name] = agent_app(Killing(agents[name]), "none", token)  # type: ignore[arg-type]
    with listening(apps) as ports:
        for number, (name, path) in enumerate(homes.items()):
            text = path.read_text().replace(
                f"port = {FIRST_PORT + number}", f"port = {ports[name]}"
            )
            path.write_text(text)
        for _ in range(20):
            left = rng.randrange(1, 24)  # a row takes 24 messages
            assert rehearse() == -signal.SIGKILL
        assert kills == 20
        assert rehearse() == 0
    coordinator = coordinator_of(study, InProcessExchange({}))
    assert coordinator.step == len(coordinator.terms.batches) == 20
    mechanism: Any = coordinator.experiment.mechanism
    for step in range(20):
        rows = [agent._database.rows()[step] for agent in agents.values()]
        words = np.array([np.frombuffer(row.message or b"", np.uint64) for row in rows])
        total = words.sum(axis=0, dtype=np.uint64).view(np.int64) / mechanism.sums.scale
        np.testing.assert_array_equal(mechanism.released[step], total)


def test_records_are_bound_to_their_terms(definition: Path) -> None:
    told = config.read_entries(config.FederationConfig, definition)
    pinned, key = config.load_terms(definition, told), config.load_key(definition, told)
    records = MemoryRecords()
    FederationCoordinator(pinned, key, InProcessExchange({}), records)
    state = json.loads(records.read(b"federation") or b"")
    records.replace(
        b"federation", records.read(b"federation"), json.dumps(state | {"terms": "00"}).encode()
    )
    with pytest.raises(TacitError, match="belong to other terms"):
        FederationCoordinator(pinned, key, InProcessExchange({}), records)


@pytest.mark.parametrize(
    ("given", "name"),
    [({"epsilon": "0,5"}, "--epsilon"), ({"delta": "1/0"}, "--delta"), ({"clip": nan}, "--clip")],
)
def test_invalid_costs_of_an_evaluation_are_rejected(
    signed: Path, given: dict[str, Any], name: str
) -> None:
    (signed / "policy.json").write_text("{}")
    with pytest.raises(TacitError, match=f"{name} is .*: must be a number such as"):
        commands.request_evaluation(signed / "policy.json", signed / "federation.toml", **given)


def test_a_context_with_unknown_columns_names_them() -> None:
    spec = ContextSpec(
        (ContextColumn("age", "number", Fraction(0), Fraction(100)),), ("drug", "none")
    )
    for context, said in (({}, "lacks age"), ({"age": 3, "sex": 1}, "has unknown sex")):
        with pytest.raises(TacitError, match=f"context {said}: must have exactly age"):
            spec.scaled(context)
