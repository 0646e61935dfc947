"""Commands of federations: a silo's agent (`silo`) and the coordinator's files (`federation`)."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.operating import check_new, confirm, needs_live, print_lines
from tacit.cli.options import CommandGroup, Json, argument, option
from tacit.cli.printing import print_json, print_sentence, show
from tacit.errors import InvalidFile, TacitError

if TYPE_CHECKING:
    from tacit.silos.evaluation import EvaluationRequest
    from tacit.silos.federation import FederationTerms

SiloFile = Annotated[Path, argument("The silo's silo.toml.")]
FederationFile = Annotated[Path, argument("The coordinator's federation.toml.")]
SILO_FILE, FEDERATION_FILE = Path("silo.toml"), Path("federation.toml")


# A silo


def new_silo(
    directory: Annotated[Path, argument("New directory of the silo.")],
    name: Annotated[str | None, option("Name in the terms; the directory's.")] = None,
    port: Annotated[int, option("Port of the agent, on this machine only.")] = 8710,
    like: Annotated[
        Path | None, option("federation.toml whose columns and actions to declare.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a silo: its configuration to edit, long-term key, tokens, and card for the coordinator.

    Example: tacit silo new north --like study/federation.toml
    """
    with needs_live():
        from tacit.silos import config
    declared = config.DECLARED if like is None else config.declared_in(like)
    card = config.create_silo(directory, name or directory.name, port, declared)
    made = {
        "silo": card.name,
        "configuration": str(directory / "silo.toml"),
        "card": str(directory / "card.toml"),
        "key": card.key,
    }
    show(made, "created", as_json)
    if not as_json:
        print_sentence(
            "next", f"send {directory / 'card.toml'} to the coordinator, who writes the terms"
        )


def check_silo(
    path: SiloFile = SILO_FILE,
    sign: Annotated[bool, option("Sign the terms after they were read.", "--sign")] = False,
    yes: Annotated[bool, option("Sign without asking.", "--yes")] = False,
    as_json: Json = False,
) -> None:
    """Show the terms: the data that leaves the silo, its guarantee, and the effect of absences.

    Terms that differ from the silo's own declarations or exceed its budget are rejected. Before
    there are terms, the configuration alone is checked, and the card is written anew.
    """
    with needs_live():
        from tacit.silos import config
        from tacit.silos.explanations import evaluations_of, explain, facts
        from tacit.silos.federation import read_federation, sign_federation, write_federation
    settings = config.read_entries(config.SiloConfig, path)
    file = path.parent / settings.terms
    if sign and not file.exists():
        raise TacitError(
            f"{file} is missing: there is nothing to sign. Copy the coordinator's terms.json there"
        )
    if not file.exists():
        key = config.load_key(path, settings)
        settings.context  # noqa: B018  (rejects declarations that contradict each other)
        card = config.write_card(path.parent, settings, key)
        show({"silo": card.name, "terms": "none yet", "key": card.key}, str(path), as_json)
        if not as_json:
            print_sentence("next", f"copy the coordinator's terms.json to {file}")
        return
    terms, signed = read_federation(file.read_text(encoding="utf-8"))
    found = config.differences(settings, terms)
    if found:
        raise InvalidFile(str(file), found)
    number = terms.number(settings.name)
    besides = settings.evaluations
    if as_json:
        costs = None if besides is None else {k: str(v) for k, v in dict(besides).items()}
        print_json(facts(terms, number) | {"signed": sorted(signed), "evaluations": costs})
    else:
        print_lines([*explain(terms, number), evaluations_of(besides)])
        print_sentence("signed by", ", ".join(sorted(signed)) or "nobody yet")
    if not sign or settings.name in signed:
        return
    if not (yes or confirm("Sign these terms?")):
        raise TacitError("the terms are not signed: read them, then give --sign --yes")
    signed[settings.name] = sign_federation(terms, config.load_key(path, settings))
    file.write_text(write_federation(terms, signed), encoding="utf-8")
    if not as_json:
        print_sentence("signed", f"{file}; send it to the coordinator")


def serve_silo(path: SiloFile = SILO_FILE) -> None:
    """Run the silo's agent on this machine until SIGTERM or ^C."""
    with needs_live():
        from tacit.silos import config
        from tacit.silos.http import agent_app, bind_agent, serve_agent
    settings = config.read_entries(config.SiloConfig, path)
    tokens = [settings.token(path.parent, name) for name in config.TOKENS]
    app = agent_app(config.open_agent(path), *tokens)
    bound = bind_agent(settings.host, settings.port)
    typer.echo(
        f"the agent of {settings.name} listens at {settings.host}:{settings.port}; ^C stops it",
        err=True,
    )
    serve_agent(app, bound)


def silo_status(path: SiloFile = SILO_FILE, as_json: Json = False) -> None:
    """Print the state of a silo, for its own staff: counts never leave the silo."""
    with needs_live():
        from tacit.silos.config import open_agent
    agent = open_agent(path)
    status = agent.status()
    due = status["next_due"]
    if not as_json and due is not None:
        asked = not agent.terms.schedule.pace
        day = datetime.fromtimestamp(due, UTC)
        status["next_due"] = (
            "when the coordinator asks" if asked else f"{day:%Y-%m-%d %H:%M:%S} UTC"
        )
    show(status, "status", as_json)


def export_policy(
    path: SiloFile = SILO_FILE,
    out: Annotated[Path, option("File to write.")] = Path("policy.json"),
    as_json: Json = False,
) -> None:
    """Export the newest policy as JSON; `tacit.silos.exported.load_policy` reads it."""
    with needs_live():
        from tacit.silos.config import open_agent
    check_new(out)
    exported = open_agent(path).export()
    out.write_text(exported.to_json(), encoding="utf-8")
    show({"policy": str(out), "synchronisations": exported.step}, "exported", as_json)


def replay_log(
    log: Annotated[Path, argument("CSV or Parquet file of logged decisions.")],
    path: Annotated[Path, option("The silo's silo.toml.", "--silo")] = SILO_FILE,
    floor: Annotated[float, option("Declared lower bound on all propensities of the log.")] = 0.05,
    seed: Annotated[int, option("Seed of accepting rows.")] = 1,
    as_json: Json = False,
) -> None:
    """Replay a log by rejection through the running agent: the federation decides, and learns
    from the rows whose logged action is the same.

    Example: tacit silo replay log.csv --silo north/silo.toml --floor 0.2
    """
    with needs_live():
        import numpy as np

        from tacit.silos import config
        from tacit.silos.application import AgentClient
        from tacit.silos.recorded import read_recorded, replay
    settings = config.read_entries(config.SiloConfig, path)
    table = read_recorded(log, settings.context, settings.reward)
    client = AgentClient(settings.port, path.parent / config.TOKENS[0], settings.host)

    def decide(context: Any) -> tuple[str, str]:
        made = client.decide(context)
        return str(made["id"]), str(made["action"])

    rng = np.random.default_rng(seed)
    with closing(client):
        counts = replay(table, range(len(table)), floor, rng, decide, client.record)
    show({"rows": counts.used, "accepted": counts.accepted}, "replayed", as_json)


# The coordinator


def new_federation(
    directory: Annotated[Path, argument("New directory of the coordinator.")], as_json: Json = False
) -> None:
    """Make a federation: its definition to edit, and the coordinator's long-term key."""
    with needs_live():
        from tacit.silos.config import create_federation
    key = create_federation(directory)
    made = {"federation": str(directory / "federation.toml"), "key": key.hex()}
    show(made, "created", as_json)
    if not as_json:
        file = directory / "federation.toml"
        print_sentence("next", f"edit it, then each silo: tacit silo new NAME --like {file}")


def make_terms(
    path: FederationFile = FEDERATION_FILE,
    card: Annotated[list[Path] | None, option("A silo's card.toml.")] = None,
    as_json: Json = False,
) -> None:
    """Write the terms of a federation and sign them as its coordinator; silos sign next."""
    with needs_live():
        from tacit.signatures import public_key
        from tacit.silos import config
        from tacit.silos.federation import sign_federation, write_federation
    settings = config.read_entries(config.FederationConfig, path)
    cards = [config.read_card(one) for one in card or ()]
    key = config.load_key(path, settings)
    terms = settings.make_terms(public_key(key), tuple(one.party() for one in cards))
    file = path.parent / settings.terms
    check_new(file)
    signed = {"coordinator": sign_federation(terms, key)}
    file.write_text(write_federation(terms, signed), encoding="utf-8")
    show(_summary(terms) | {"file": str(file)}, "terms", as_json)
    if not as_json:
        sign = "tacit silo check silo.toml --sign"
        print_sentence("next", f"send {file} to every silo, which signs: {sign}")


def join_signatures(
    path: FederationFile = FEDERATION_FILE,
    signed_file: Annotated[
        list[Path] | None, option("A silo's copy of the signed terms.", "--signed")
    ] = None,
    as_json: Json = False,
) -> None:
    """Join the signatures of all silos; the terms are then complete."""
    with needs_live():
        from tacit.silos import config
        from tacit.silos.federation import pin_federation, read_federation, write_federation
    settings = config.read_entries(config.FederationConfig, path)
    file = path.parent / settings.terms
    terms, signed = read_federation(file.read_text(encoding="utf-8"))
    for one in signed_file or ():
        other, more = read_federation(one.read_text(encoding="utf-8"))
        if other != terms:
            raise TacitError(f"{one} has other terms: let the silo sign {file}")
        signed |= more
    whole = write_federation(terms, signed)
    pin_federation(whole)
    file.write_text(whole, encoding="utf-8")
    show(_summary(terms) | {"signed": f"by all {len(signed)} parties"}, "terms", as_json)
    if not as_json:
        print_sentence("next", f"send {file} to every silo, which starts: tacit silo serve")


def rehearse(
    path: FederationFile = FEDERATION_FILE,
    silo: Annotated[list[Path] | None, option("silo.toml of a running agent.")] = None,
    rows: Annotated[int | None, option("Rows to release now; all by default.")] = None,
    as_json: Json = False,
) -> None:
    """Run the coordinator against agents on this machine, without an engine: to try things out.

    Evaluations that were requested run after the rows.
    """
    with needs_live():
        from tacit.records import RecordDirectory
        from tacit.silos import config
        from tacit.silos.coordinator import FederationCoordinator
        from tacit.silos.evaluation_files import evaluate_pending
        from tacit.silos.exchange import InProcessExchange, Responder
        from tacit.silos.relay import AgentRelay
    relays: dict[str, Responder] = {}
    for one in silo or ():
        agent = config.read_entries(config.SiloConfig, one)
        relays[agent.name] = AgentRelay.of(agent.port, one.parent / config.TOKENS[1], agent.host)
    settings = config.read_entries(config.FederationConfig, path)
    pinned = config.load_terms(path, settings)
    absent = [one.name for one in pinned.terms.silos if one.name not in relays]
    if absent:
        raise TacitError(f"--silo lacks {', '.join(absent)}: give the silo.toml of every silo")
    reached = {name: lambda relay=relay: relay for name, relay in relays.items()}
    coordinator = FederationCoordinator(
        pinned,
        config.load_key(path, settings),
        InProcessExchange(reached),
        RecordDirectory(path.parent / settings.records),
    )
    coordinator.run(rows)
    failed = evaluate_pending(coordinator, path)
    status = coordinator.status()
    received = {f"bytes from {name}": size for name, size in status["received"].items()}
    made = {"synchronisations": f"{status['rows']} of {status['of']}"} | received
    show(made | {"failed_evaluations": "; ".join(failed) or None}, "released", as_json)


def make_job(
    directory: Annotated[Path, argument("New directory of the job.")],
    path: Annotated[
        Path, option("The coordinator's federation.toml.", "--federation")
    ] = FEDERATION_FILE,
    as_json: Json = False,
) -> None:
    """Write a FLARE job that names the two installed classes; it contains no code."""
    with needs_live():
        from tacit.silos import config
        from tacit.silos.jobs import write_job
    check_new(directory)
    terms = config.load_terms(path, config.read_entries(config.FederationConfig, path)).terms
    write_job(directory, [silo.name for silo in terms.silos])
    show({"job": str(directory), "sites": len(terms.silos)}, "a FLARE job", as_json)


def request_evaluation(
    policy: Annotated[Path, argument("The exported policy to evaluate.")],
    path: Annotated[
        Path, option("The coordinator's federation.toml.", "--federation")
    ] = FEDERATION_FILE,
    estimator: Annotated[str, option("clipped-ips or doubly-robust.")] = "clipped-ips",
    clip: Annotated[float, option("Largest importance weight.")] = 10.0,
    capacity: Annotated[int, option("Most records of a silo that count.")] = 10_000,
    epsilon: Annotated[str, option("Cost of the evaluation.")] = "1/2",
    delta: Annotated[str, option("Cost of the evaluation.")] = "1/1000000",
    replay: Annotated[
        Path | None, option("Simulate it on the held-out rows of these tables; no silo is asked.")
    ] = None,
    seed: Annotated[int, option("Seed of simulated noise.")] = 1,
    as_json: Json = False,
) -> None:
    """Request a private evaluation of a policy on the silos' recorded data, or print its result.

    The next FLARE job runs it, or `tacit federation rehearse`; every silo charges it to its own
    budget. The same request again prints the result and costs nothing.
    """
    with needs_live():
        from tacit.readers import checked, fraction
        from tacit.silos.evaluation import EvaluationRequest
        from tacit.silos.evaluation_files import result_of
    asked = EvaluationRequest(
        policy.read_text(encoding="utf-8"),
        estimator,
        checked("--clip", str(clip), fraction),
        capacity,
        checked("--epsilon", epsilon, fraction),
        checked("--delta", delta, fraction),
    )
    if replay is not None:
        _simulate_evaluation(asked, replay, seed, as_json)
        return
    folder = path.parent / "evaluations"
    folder.mkdir(exist_ok=True)
    requests = sorted(folder.glob("*.request.json"))
    same = [one for one in requests if one.read_bytes() == asked.encode()]
    file = same[0] if same else folder / f"{len(requests):04}.request.json"
    if not same:
        file.write_bytes(asked.encode())
    result = result_of(file)
    if result.exists():
        show(json.loads(result.read_text(encoding="utf-8")), "evaluation", as_json)
        return
    show({"request": str(file), "result": "none yet: run a job"}, "evaluation", as_json)


def _simulate_evaluation(
    request: EvaluationRequest, replay: Path, seed: int, as_json: bool
) -> None:
    import numpy as np

    from tacit.silos.replays import read_replay

    found = read_replay(replay).evaluate(request, np.random.default_rng(seed))
    show(found.to_dict(), "evaluation, simulated: its noise comes from a seed", as_json)


def _summary(terms: FederationTerms) -> dict[str, Any]:
    return {
        "silos": len(terms.silos),
        "synchronisations": len(terms.batches),
        "features": terms.context.dimension,
        "digest": terms.digest.hex(),
    }


GROUPS = {
    "silo": CommandGroup(
        "A silo of a federation: set up, read terms, run the agent, export the policy.",
        {
            "new": new_silo,
            "check": check_silo,
            "serve": serve_silo,
            "status": silo_status,
            "export": export_policy,
            "replay": replay_log,
        },
    ),
    "federation": CommandGroup(
        "The coordinator of a federation: define it, make its terms.",
        {
            "new": new_federation,
            "terms": make_terms,
            "join": join_signatures,
            "job": make_job,
            "rehearse": rehearse,
            "evaluate": request_evaluation,
        },
    ),
}
