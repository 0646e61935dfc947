"""Commands for a live experiment at its coordinator: create, status, estimates, pause, resume,
stop, export.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tacit.cli.defining import File
from tacit.cli.operating import (
    Config,
    SelectedExperiment,
    TokenFile,
    Url,
    check_new,
    confirm,
    keys_of,
    needs_live,
    party_client,
    print_keys,
    write_new,
)
from tacit.cli.options import Json, argument, grouped, option
from tacit.cli.printing import print_json, print_sentence, print_table
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.service.admin import Published


def create(
    file: File,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    app: Annotated[
        Path | None, option("New JSON file of pins for an app: address and keys.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Publish an experiment at the coordinator; it starts when the helper has signed its terms, or
    at once where the trust model has no helper.

    Example: tacit experiment create greeting.toml --config coordinator/party.toml
    """
    with needs_live():
        from tacit.service import definition_files
    text = definition_files.whole_text(file)
    defined = definition_files.parse(text)
    party = party_client(config, url, token_file)
    if app is not None:
        check_new(app)
    if defined.succeeds:
        before = defined.succeeds.hex()
        asking = party.terms(before).terms.parties[0]
        terms = defined.terms(asking.address, asking.key).encode().decode()
        asked = {"terms": terms, "participants": defined.participants}
        made = party.post(f"/experiments/{before}/successor", asked)
    else:
        made = party.post("/experiments", {"definition": text})
    published = party.terms(made["digest"])
    if published.state in ENDED and not defined.succeeds:
        raise TacitError(
            f"this experiment exists and is {published.state}: change its question, options or "
            f"days, or read its result with tacit experiment estimates {made['digest'][:12]}"
        )
    coordinator, *helpers = published.terms.parties
    where = f"{coordinator.address}/experiments/{made['digest']}"
    command = f"tacit terms cosign {where} --config helper/party.toml"
    if app is not None:
        write_new(app, json.dumps(_app_configuration(published), indent=2) + "\n")
    if as_json:
        then = {"next": command} if helpers else {}
        print_json({"digest": made["digest"], **keys_of(published), **then})
        return
    before = " earlier" if helpers and published.signed else ""
    print_sentence(f"published{before}", f"{published.terms.question} ({published.state})")
    print_sentence("digest", made["digest"])
    print_keys(published)
    if before:
        return
    for helper in helpers:
        request = f"the operator of the helper at {helper.address} reads the terms and signs:"
        print_sentence("next", request)
        print(f"  {command}")
    if not helpers:
        print_sentence(
            "next", f"tacit experiment status{SelectedExperiment(None, config, url, token_file)}"
        )


def _app_configuration(published: Published) -> dict[str, Any]:
    """Configuration to build into an app: the experiment, the coordinator's address, and
    both keys.
    """
    terms = published.terms
    places = {"coordinator": terms.leader, "helper": terms.helper}
    keys = {name: terms.keys[n].hex() for name, n in places.items() if n is not None}
    address = terms.parties[terms.leader].address
    return {"experiment": published.terms.digest.hex(), "pins": {"address": address, **keys}}


def listing(
    config: Config = None, url: Url = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """List the experiments of a coordinator: digest, state and question.

    Example: tacit experiment list --config coordinator/party.toml
    """
    known = party_client(config, url, token_file).experiments()
    if as_json:
        print_json({"experiments": known})
        return
    rows = [[one["digest"][:12], one["state"], one["question"]] for one in known]
    print_table("experiments", ["digest", "state", "question"], rows)


def _print_answer(
    text: str, which: SelectedExperiment, as_json: bool, say: Callable[[Any], None]
) -> None:
    """Print the coordinator's answer about an experiment, as JSON or in words."""
    party, digest = which.found()
    said = party.get(f"/experiments/{digest}/{text}")
    if as_json:
        print_json(said)
    else:
        say(said)


@grouped
def status(which: SelectedExperiment, as_json: Json = False) -> None:
    """Show the state, the participants and the rounds of an experiment.

    Example: tacit experiment status --config coordinator/party.toml
    """
    _print_answer("status", which, as_json, lambda said: print_status(said, which))


def print_status(reply: dict[str, Any], which: SelectedExperiment) -> None:
    """Print the state of an experiment and its rounds."""
    participants = reply["people"]
    print_sentence("experiment", f"{reply['question']} ({reply['state']})")
    print_sentence("digest", reply["digest"])
    if reply["ended"]:
        from tacit.service.pages.sentences import ENDINGS

        print_sentence("why it ended", ENDINGS.get(reply["ended"], reply["ended"]))
    planned = (
        f"; {participants['planned']:,} planned" if participants["planned"] < UNBOUNDED else ""
    )
    print_sentence(
        "participants",
        f"{participants['asked']:,} got a slot, {participants['reported']:,} reports are in "
        f"released sums, {participants['served']:,} requests found no slot{planned}",
    )
    from tacit.service.pages.contexts import BY_DEVICE, SEVERAL

    if reply["contexts"] is not None:
        _print_contexts(reply["contexts"])
    for row in reply["rounds"]:
        row["option"] = row["option"] or (SEVERAL if reply["linear"] else BY_DEVICE)
    rounds = [
        [
            row["number"],
            row["option"],
            _STAGES.get(row["stage"], row["stage"]),
            row["places"],
            row["given"],
            row["reports"],
            _format_time(row["closes"]),
        ]
        for row in reply["rounds"][-LAST_ROUNDS:]
    ]
    print()
    heads = ["round", "option", "stage", "slots", "assigned", "reports", "closes (UTC)"]
    print_table(f"last rounds, of {len(reply['rounds'])}", heads, rounds)
    if reply["state"] == "running" and {row["stage"] for row in reply["rounds"]} == {"preparing"}:
        print_sentence(
            "note",
            "rounds that stay in preparation wait for a helper that does not answer: tacit doctor",
        )
    command = _NEXT.get(reply["state"], "tacit experiment estimates")
    print_sentence("next", command if reply["state"] == "unsigned" else f"{command}{which}")


ENDED = ("stopped", "finished")
UNBOUNDED = 10**12
LAST_ROUNDS = 12
_STAGES = {"opened": "released", "refused": "aborted"}
_NEXT = {
    "unsigned": "the helper's operator must sign the terms: tacit terms cosign",
    "paused": "tacit experiment resume",
}


def _format_time(seconds: int) -> str | None:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" if seconds else None


@grouped
def estimates(which: SelectedExperiment, as_json: Json = False) -> None:
    """Show the arm summary: which option is best, and how sure. It costs no privacy budget.

    Example: tacit experiment estimates --config coordinator/party.toml
    """
    _print_answer("estimates", which, as_json, lambda said: _print_estimates(said, which))


def _print_contexts(reply: dict[str, Any]) -> None:
    """Which option for whom, and how sure."""
    from tacit.service.pages import contexts

    answers = reply["answers"]
    if not answers:
        print_sentence("which option for whom", "nothing is known yet: no round has been released")
        return
    print_sentence("which option for whom", contexts.whom(answers))
    print_sentence("how sure", contexts.sure(answers))
    rows = [
        [
            contexts.described(one["context"]),
            one["option"],
            one["mean"],
            _between(one["low"], one["high"]),
            one["decision"],
        ]
        for one in answers
    ]
    print_table("segments", ["segment", "option", "mean", "95% sure", "decision"], rows)
    for line in contexts.gained(reply["gains"]):
        print_sentence("gain", line)


def _print_estimates(reply: dict[str, Any], which: SelectedExperiment) -> None:
    """Print the estimates of an experiment."""
    if reply["contexts"] is not None:
        _print_contexts(reply["contexts"])
        if not reply["options"]:
            return
    sure = f"{reply['level']:.0%}"
    columns: dict[str, Callable[[dict[str, Any]], Any]] = {
        "option": lambda row: row["option"],
        "participants": lambda row: row["participants"],
        "mean": lambda row: row["mean"],
        f"{sure} sure": lambda row: _between(row["low"], row["high"]),
        "chance to be best": lambda row: f"{row['best']:.0%}",
        "lift": lambda row: None if row["lift"] is None else f"{row['lift']:+.1%}",
        "lift between": lambda row: _lifts(row["lift_low"], row["lift_high"]),
        "guard": lambda row: _between(row["guardrail_low"], row["guardrail_high"]),
        "decision": lambda row: "paused" if row["paused"] else row["decision"],
    }
    rows = [[cell(row) for cell in columns.values()] for row in reply["options"]]
    kept = [k for k in range(len(columns)) if any(row[k] is not None for row in rows)]
    heads = list(columns)
    title = "arm summary" if reply["contexts"] is None else "one option for everybody (slice)"
    print_table(title, [heads[k] for k in kept], [[row[k] for k in kept] for row in rows])
    for row in reply["options"]:
        if row["paused"]:
            print_sentence(f"{row['option']} is paused", row["paused"])
    if any(row["lift_low"] is not None and row["lift_high"] is None for row in reply["options"]):
        print_sentence(
            NO_LIMIT,
            "with both options uncertain, the control's mean may still be 0, so a lift over it may "
            "be of any size",
        )
    if reply["contexts"] is None:
        print_sentence("which is best", verdict(reply))
        if reply["decided"]:
            print_sentence("next", f"tacit experiment export results.csv{which}")
    if reply["sample_ratio"]["mismatch"]:
        print_sentence(
            "warning",
            f"sample ratio mismatch (p = {reply['sample_ratio']['p']:.2g}): options lose different "
            "shares of reports; check why devices fail to report",
        )


def verdict(reply: dict[str, Any]) -> str:
    """Which option is best, and how certain that is, in a sentence."""
    known = [row for row in reply["options"] if row["mean"] is not None and row["participants"]]
    if not known:
        return "nothing is known yet: no round has been released"
    sure = f"{reply['level']:.0%}"
    if reply["decided"]:
        return (
            f"{reply['decided']} is better than every other option; this decision has a false "
            f"positive rate of at most {1 - reply['level']:.0%}, at any time"
        )
    best = next((row for row in known if row["option"] == reply["best"]), known[0])
    worse = [row["option"] for row in known if row["decision"] == "worse"]
    out = f"; {', '.join(worse)} {'is' if len(worse) == 1 else 'are'} out" if worse else ""
    return (
        f"{best['option']} leads, with a chance of {best['best']:.0%} to be the best; not yet "
        f"decided at {sure}{out}"
    )


def _between(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.4g} to {high:.4g}"


NO_LIMIT = "no limit"


def _lifts(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    ends = (NO_LIMIT if end is None else f"{end:+.1%}" for end in (low, high))
    return " to ".join(ends)


@grouped
def pause(which: SelectedExperiment, as_json: Json = False) -> None:
    """Assign no more slots; participants who have one still report. See: resume."""
    _change("pause", which, as_json)


@grouped
def resume(which: SelectedExperiment, as_json: Json = False) -> None:
    """Assign slots again after a pause, or after a wrong clock had passed the last day."""
    _change("resume", which, as_json)


@grouped
def stop(
    which: SelectedExperiment,
    yes: Annotated[bool, option("Stop without asking for confirmation.", "--yes")] = False,
    as_json: Json = False,
) -> None:
    """End an experiment for good; rounds in progress are finished."""
    if not (yes or confirm("Stop this experiment for good?")):
        raise TacitError("the experiment was not stopped: answer yes, or give --yes")
    _change("stop", which, as_json)


def _change(name: str, which: SelectedExperiment, as_json: bool) -> None:
    party, digest = which.found()
    party.post(f"/experiments/{digest}/{name}")
    state = party.terms(digest).state
    if as_json:
        print_json({"digest": digest, "state": state})
        return
    print_sentence("now", f"{digest[:12]} is {state}")
    then = "export results.csv" if state in ENDED else "status"
    print_sentence("next", f"tacit experiment {then}{which}")


@grouped
def export(
    file: Annotated[
        Path, argument("New file: .json for everything, .csv for every round and option.")
    ],
    which: SelectedExperiment,
    as_json: Json = False,
) -> None:
    """Export an experiment to a file: everything (JSON), or every option after every round (CSV).

    Example: tacit experiment export greeting.csv --config coordinator/party.toml
    """
    if file.suffix not in (".json", ".csv"):
        raise TacitError(f"file is {file}: must end in .json or .csv. Rename it")
    party, digest = which.found()
    if file.suffix == ".json":
        said = party.get(f"/experiments/{digest}/export")
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    else:
        text = party.text(f"/experiments/{digest}/history.csv")
    write_new(file, text)
    if as_json:
        print_json({"digest": digest, "file": str(file)})
        return
    print_sentence("written", str(file))
