"""The demonstration: four hospital agents on FLARE processes of this machine."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.errors import TacitError, Unavailable
from tacit.records import RecordDirectory
from tacit.signatures import public_key
from tacit.silos import config
from tacit.silos.application import AgentClient
from tacit.silos.coordinator import FederationCoordinator
from tacit.silos.demo.hospital import Decide, Hospital
from tacit.silos.demo.patients import HOSPITALS, WARD
from tacit.silos.demo.study import (
    DELTA,
    EPSILON,
    OUTCOME,
    QUESTION,
    Cohort,
    StudyResult,
    schedule,
)
from tacit.silos.exchange import InProcessExchange
from tacit.silos.exported import ExportedPolicy
from tacit.silos.federation import FederationTerms, sign_federation, write_federation
from tacit.silos.flare_network import FlareSite, free_port, running_network
from tacit.silos.jobs import write_job

AHEAD = 25  # seconds between the terms and the start of the schedule
SLACK = 240.0  # seconds that the job may take besides its schedule
PACE = 40  # milliseconds per patient on an idle machine: half of that is work
MOST_PACE = 400
ENOUGH = 0.8  # share of the patients whose outcomes are in time on an idle machine: 0.88
Watch = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class DemoFederation:
    """A finished demonstration: its result, terms, last policy and times."""

    result: StudyResult
    terms: FederationTerms
    policy: LinUCBPolicy
    statuses: tuple[dict[str, Any], ...]
    seconds: float
    job: str
    seconds_per_row: float

    @property
    def in_time(self) -> tuple[int, int]:
        """Outcomes that entered a sum, of all patients of all hospitals."""
        used = sum(int(one["synchronised"]) for one in self.statuses)
        return used, sum(self.terms.batches) * len(self.terms.silos)

    @property
    def hurried(self) -> bool:
        """Whether the schedule was too fast for this machine, so that sums lack patients."""
        used, of = self.in_time
        return used < ENOUGH * of


def measured_pace(work: float = 0.3) -> int:
    """Milliseconds per patient that this machine can follow now: more where others compute too.

    Parameters
    ----------
    work : float
        Seconds of computing for the measurement.

    Returns
    -------
    int
        `PACE` times the time that computing takes over the time it takes alone, at most
        `MOST_PACE`.
    """
    began, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < work:
        pass
    slower = (time.perf_counter() - began) / work
    return min(MOST_PACE, max(PACE, round(PACE * slower)))


def _declared() -> str:
    """The columns and actions of the generated patients, for configuration files."""
    lines = [f"actions = {list(WARD.actions)}", "[outcome]", f'meaning = "{OUTCOME}"']
    for one in WARD.columns:
        lines += ["[[columns]]", f'name = "{one.name}"', f'kind = "{one.kind}"']
        lines += [f'low = "{one.low}"', f'high = "{one.high}"']
    return "\n".join(lines) + "\n"


def _set_up(folder: Path) -> tuple[Path, list[FlareSite]]:
    """Directories of the coordinator and of four hospitals, as the commands make them."""
    study = folder / "study"
    config.create_federation(study, _declared())
    sites = []
    for name in HOSPITALS:
        port = free_port()
        config.create_silo(folder / name, name, port, _declared())
        sites.append(FlareSite(name, port, folder / name / "engine-token"))
    return study / "federation.toml", sites


def _sign(folder: Path, definition: Path, count: int, pace: int) -> FederationTerms:
    """Make the terms, and let everybody sign them."""
    settings = config.read_entries(config.FederationConfig, definition)
    key = config.load_key(definition, settings)
    cards = [config.read_entries(config.SiloCard, folder / n / "card.toml") for n in HOSPITALS]
    made = settings.make_terms(public_key(key), tuple(card.party() for card in cards))
    starts = int(time.time()) + AHEAD
    terms = replace(made, question=QUESTION, schedule=schedule(count, starts, pace))
    signed = {"coordinator": sign_federation(terms, key)}
    for name in HOSPITALS:
        path = folder / name / "silo.toml"
        own = config.load_key(path, config.read_entries(config.SiloConfig, path))
        signed[name] = sign_federation(terms, own)
    for place in (definition.parent, *(folder / name for name in HOSPITALS)):
        (place / "terms.json").write_text(write_federation(terms, signed), encoding="utf-8")
    assert (terms.silos[0].epsilon, terms.silos[0].delta) == (EPSILON, DELTA)
    return terms


@contextmanager
def _agents(folder: Path) -> Iterator[None]:
    """One process per hospital: `tacit silo serve`."""
    processes = []
    try:
        for name in HOSPITALS:
            words = [
                sys.executable,
                "-m",
                "tacit",
                "silo",
                "serve",
                str(folder / name / "silo.toml"),
            ]
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(subprocess.Popen(words, stdout=log, stderr=log))
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


def _client(folder: Path, site: FlareSite) -> AgentClient:
    return AgentClient(site.port, folder / site.name / "application-token")


def _status(client: AgentClient) -> dict[str, Any]:
    try:
        return client.status()
    except Unavailable:
        return {"policy": None}


def _longest_wait(terms: FederationTerms) -> float:
    """Seconds after which a job that has not ended has failed."""
    return SLACK + terms.schedule.pace * sum(terms.batches) / 1000


def _treat_under_policies(
    folder: Path, site: FlareSite, hospital: Hospital, terms: FederationTerms, stopped: Event
) -> None:
    """Treat a batch of patients under every policy that arrives, until the last one."""
    client, end = _client(folder, site), time.monotonic() + _longest_wait(terms)
    for step, batch in enumerate(terms.batches):
        while (_status(client)["policy"] or 0) < step or _status(client)["policy"] is None:
            if time.monotonic() > end:
                raise TacitError(
                    f"{site.name} got no policy of step {step} in {_longest_wait(terms):.0f} s: "
                    "the machine is too busy or FLARE has failed. Run the demonstration again, "
                    "with a larger --pace"
                )
            if stopped.wait(0.1):
                return
        for _ in range(batch):
            if stopped.is_set():
                return
            hospital.treat(1)


def _decide(client: AgentClient) -> Decide:
    def decide(context: dict[str, Any]) -> tuple[str, str]:
        made = client.decide(context)
        return str(made["id"]), str(made["action"])

    return decide


def play(seed: int, count: int, pace: int | None, watch: Watch) -> DemoFederation:
    """Run the whole demonstration: `count` patients per hospital, `pace` milliseconds each.

    The schedule is part of the signed terms and waits for nobody. Without a pace it is measured
    how fast this machine is now.
    """
    began = time.monotonic()
    cohort = Cohort.draw(seed, count)
    with tempfile.TemporaryDirectory(prefix="tacit-silos-") as name, ExitStack() as stack:
        folder = Path(name)
        watch("making keys and certificates")
        definition, sites = _set_up(folder)
        (folder / "flare").mkdir()
        watch("starting FLARE: a server and four sites")
        network = stack.enter_context(running_network(folder / "flare", sites, definition))
        watch("signing terms, starting four agents")
        pace = pace or measured_pace()
        terms = _sign(folder, definition, count, pace)
        stack.enter_context(_agents(folder))
        hospitals = []
        for number, site in enumerate(sites):
            client = _client(folder, site)
            hospitals.append(cohort.hospital(number, _decide(client), client.record))
        job = network.submit(write_job(folder / "federation", network.sites))
        minutes = math.ceil(count * pace / 60_000)
        watch(f"treating patients and learning together, {pace} ms each: about {minutes} min")
        pool = stack.enter_context(ThreadPoolExecutor(len(sites)))
        stopped = Event()  # ^C, or one hospital's failure, ends the others
        stack.callback(stopped.set)
        running = [
            pool.submit(_treat_under_policies, folder, site, hospital, terms, stopped)
            for site, hospital in zip(sites, hospitals, strict=True)
        ]
        for one in running:
            one.result()
        ended = network.wait(job, _longest_wait(terms))
        if ended != "FINISHED:COMPLETED":
            raise TacitError(f"the FLARE job ended as {ended}: run the demonstration again")
        watch("comparing with what every hospital learns alone")
        clients = [_client(folder, site) for site in sites]
        statuses = tuple(client.status() for client in clients)
        exported = ExportedPolicy.from_json(clients[0].policy())
        coordinator = _reopened(definition)
        received = {site.name: coordinator.received[site.name] for site in sites}
        result = cohort.result(exported.effects, hospitals, received)
        policy, per_row = coordinator.policy(), statistics.median(coordinator.seconds)
    seconds = time.monotonic() - began
    return DemoFederation(result, terms, policy, statuses, seconds, ended, per_row)


def _reopened(definition: Path) -> FederationCoordinator:
    """The coordinator as its records have it."""
    settings = config.read_entries(config.FederationConfig, definition)
    records = RecordDirectory(definition.parent / settings.records, used=True)
    key = config.load_key(definition, settings)
    pinned = config.load_terms(definition, settings)
    return FederationCoordinator(pinned, key, InProcessExchange({}), records)
