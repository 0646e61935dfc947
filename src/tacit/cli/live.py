"""The commands of live experiments: experiment, terms, party, invitations.

An experiment is written (`new`), looked at (`check`), published (`create`) and watched by who asks
the question; its terms are read and signed (`terms cosign`) by who runs the helper. Secrets come
from files and the environment, never from the command line.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.checks import TacitError
from tacit.cli.options import Json, interactive, whole
from tacit.cli.printing import print_json, sentence, table, width
from tacit.cli.serving import Role

if TYPE_CHECKING:
    from tacit.live.admin import Operated, Published
    from tacit.live.config import PartyConfig

Config = Annotated[
    Path | None, typer.Option(help="The party's party.toml: where it listens, and its admin token.")
]
Url = Annotated[
    str | None,
    typer.Option(help="Its address instead; the admin token is then in TACIT_ADMIN_TOKEN."),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="A file with the admin token, which only you can read.")
]
Which = Annotated[
    str | None,
    typer.Argument(help="First digits of the experiment's digest; none if there is only one."),
]
File = Annotated[Path, typer.Argument(help="The definition, in TOML or YAML.")]


@contextmanager
def needs_live() -> Iterator[None]:
    """Says what to install where live experiments are not there."""
    try:
        yield
    except ImportError as missing:
        name = missing.name or "a package"
        if name.startswith("tacit"):
            raise
        raise TacitError(
            f"{name} is missing, which live experiments need: pip install 'tacit[live]'"
        ) from None


# Definitions


def new(
    file: File,
    question: Annotated[str, typer.Option(help="What you want to know.")] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="An option; give this once for each.")
    ] = None,
    meaning: Annotated[str, typer.Option(help="What a device reports, in words.")] = "",
    epsilon: Annotated[str, typer.Option(help="The promise, such as 1 or 1/2.")] = "1",
    participants: Annotated[
        int | None, typer.Option(help="How many people to serve in all.", parser=whole, metavar="N")
    ] = None,
    window: Annotated[str, typer.Option(help="How long a device watches.")] = "1 day",
    joining: Annotated[str, typer.Option(help="How long a round takes people in.")] = "6 hours",
    margin: Annotated[str, typer.Option(help="Time for reports to arrive.")] = "1 hour",
    days: Annotated[
        int, typer.Option(help="How many days it lasts, from today.", parser=whole, metavar="N")
    ] = 30,
    helper: Annotated[
        Path | None, typer.Option(help="The helper's card.toml, as its operator sent it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a definition with a comment for every entry, to be edited.

    Example: tacit experiment new greeting.toml --option Hello --option Hi
    """
    with needs_live():
        from tacit.live import definition, founding, readers
    today = datetime.now(UTC).date()
    values: dict[str, Any] = {
        "question": question or "Which greeting do people like best?",
        "options": tuple(option or ("Hello", "Hi", "Good day")),
        "meaning": meaning or "1 if you wrote back within the time, 0 if not",
        "participants": participants or 20_000,
        "first_day": today,
        "last_day": today + timedelta(days=max(days, 1)),
    }
    said: dict[str, tuple[str, Any]] = {
        "epsilon": (epsilon, readers.above_zero),
        "window": (window, readers.duration),
        "joining": (joining, readers.lasting),
        "margin": (margin, readers.twice),
    }
    for name, (words, read) in said.items():
        try:
            values[name] = read(words)
        except readers.Wrong as wrong:
            raise TacitError(f"--{name} is {words!r}; it must be {wrong}") from None
    card = None if helper is None else founding.read_card(helper)
    if card is not None and card.role != "helper":
        raise TacitError(f"{helper} is the card of a {card.role}; give that of the helper")
    values["helper_address"] = "https://helper.example" if card is None else card.address
    values["helper_key"] = bytes(32) if card is None else card.key
    made = definition.Definition(**values)
    shown = {name: value for name, value in vars(made).items() if name not in _LEFT_OUT}
    if card is None:
        del shown["helper_key"]
    text = definition.write(shown, yaml=file.suffix in (".yaml", ".yml"))
    _write_new(file, text)
    if as_json:
        print_json({"file": str(file)})
        return
    sentence("written", str(file))
    if card is None:
        sentence("next", "fill in [helper]: address and key are in the card of who runs the helper")
    sentence("next", f"edit it, then: tacit experiment check {file}")


_LEFT_OUT = ("control_share", "levels", "most", "guardrail_better", "guardrail_margin")


def _write_new(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise TacitError(f"{file} is there already and is not written over: name another") from None


def check(
    file: File,
    forecast: Annotated[bool, typer.Option(help="Simulate the experiment, too.")] = True,
    runs: Annotated[
        int, typer.Option(help="Simulated experiments.", parser=whole, metavar="N")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Explain a definition in words, with a forecast: what people are promised, who sees what, how
    long it takes, how likely a lift is found.

    Example: tacit experiment check greeting.toml
    """
    with needs_live():
        from tacit.live import definition
        from tacit.live import forecast as forecasting
    defined = definition.load(file)
    defined.experiment()
    words = forecasting.explained(defined)
    doubts = list(forecasting.warnings(defined, datetime.now(UTC).date()))
    if not as_json:
        for heading, lines in words.items():
            print(heading)
            _listed(lines)
    found = forecasting.forecast(defined, runs, interactive()) if forecast else None
    if as_json:
        entries = {
            place: _plain(getattr(defined, entry.name))
            for place, entry in definition.ENTRIES.items()
        }
        told = None if found is None else {**vars(found), "words": list(found.sentences())}
        record = {"definition": entries, "words": words, "warnings": doubts, "forecast": told}
        print_json(record)
        return
    if found is not None:
        print("What to expect")
        _listed(list(found.sentences()))
    for doubt in doubts:
        sentence("warning", doubt)
    sentence("next", f"tacit experiment create {file} --config coordinator/party.toml")


def _listed(lines: list[str]) -> None:
    for line in lines:
        print(textwrap.fill(line, width(), initial_indent="  ", subsequent_indent="    "))
    print()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, (Fraction, date)) else value


# An experiment at its coordinator


def create(
    file: File,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    app: Annotated[
        Path | None, typer.Option(help="A new JSON file with what an app pins: address and keys.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Publish an experiment at the coordinator; it begins when the helper has signed its terms.

    Example: tacit experiment create greeting.toml --config coordinator/party.toml
    """
    with needs_live():
        from tacit.live import definition
    text = definition.read_text(file)
    defined = definition.parse(text)
    party = _operated(config, url, token_file)
    if defined.succeeds:
        before = defined.succeeds.hex()
        asking = party.terms(before).terms.parties[0]
        terms = defined.terms(asking.address, asking.key).encode().decode()
        made = party.post(f"/experiments/{before}/successor", {"terms": terms})
    else:
        made = party.post("/experiments", {"definition": text})
    published = party.terms(made["digest"])
    coordinator, helper = published.terms.parties
    where = f"{coordinator.address}/experiments/{made['digest']}"
    command = f"tacit terms cosign {where} --config helper/party.toml"
    if app is not None:
        _write_new(app, json.dumps(_pins(published), indent=2) + "\n")
    if as_json:
        print_json({"digest": made["digest"], **_keys(published), "next": command})
        return
    sentence("published", f"{published.terms.question} ({published.state})")
    sentence("digest", made["digest"])
    _say_keys(published)
    sentence("next", f"who runs the helper at {helper.address} reads the terms and signs:")
    print(f"  {command}")


def _pins(published: Published) -> dict[str, Any]:
    """What an app is built with: the experiment, where its coordinator is, and both keys."""
    keys = {party.role: party.key.hex() for party in published.terms.parties}
    address = published.terms.parties[0].address
    return {"experiment": published.terms.digest.hex(), "pins": {"address": address, **keys}}


def status(
    experiment: Which = None,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """How an experiment stands: its state, people, rounds.

    Example: tacit experiment status --config coordinator/party.toml
    """
    party, digest = _of(experiment, config, url, token_file)
    said = party.get(f"/experiments/{digest}/status")
    if as_json:
        print_json(said)
        return
    people = said["people"]
    sentence("experiment", f"{said['question']} ({said['state']})")
    sentence("digest", said["digest"])
    planned = f" of {people['planned']:,} planned" if people["planned"] < UNBOUNDED else ""
    sentence(
        "people",
        f"{people['asked']:,} were asked, {people['reported']:,} reports were opened, "
        f"{people['served']:,} got an option unasked{planned}",
    )
    rounds = [
        [
            row["number"],
            row["option"],
            row["stage"],
            row["places"],
            row["given"],
            row["reports"],
            _moment(row["closes"]),
        ]
        for row in said["rounds"][-LAST_ROUNDS:]
    ]
    print()
    heads = ["round", "option", "stage", "places", "given", "reports", "closes (UTC)"]
    table(f"last rounds, of {len(said['rounds'])}", heads, rounds)
    sentence("next", _NEXT.get(said["state"], "tacit experiment estimates"))


UNBOUNDED = 10**12
LAST_ROUNDS = 12
_NEXT = {
    "unsigned": "it waits for the helper's operator: tacit terms cosign",
    "paused": "tacit experiment resume",
}


def _moment(seconds: int) -> str | None:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" if seconds else None


def estimates(
    experiment: Which = None,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Which option is best, and how sure that is; looking costs no privacy.

    Example: tacit experiment estimates --config coordinator/party.toml
    """
    party, digest = _of(experiment, config, url, token_file)
    said = party.get(f"/experiments/{digest}/estimates")
    if as_json:
        print_json(said)
        return
    sure = f"{said['level']:.0%}"
    columns: dict[str, Callable[[dict[str, Any]], Any]] = {
        "option": lambda row: row["option"],
        "people": lambda row: row["participants"],
        "mean": lambda row: row["mean"],
        f"{sure} sure": lambda row: _between(row["low"], row["high"]),
        "chance to be best": lambda row: f"{row['best']:.0%}",
        "lift": lambda row: None if row["lift"] is None else f"{row['lift']:+.1%}",
        "between": lambda row: _lifts(row["lift_low"], row["lift_high"]),
        "guard": lambda row: _between(row["guardrail_low"], row["guardrail_high"]),
        "decision": lambda row: "paused" if row["paused"] else row["decision"],
    }
    rows = [[told(row) for told in columns.values()] for row in said["options"]]
    kept = [k for k in range(len(columns)) if any(row[k] is not None for row in rows)]
    heads = list(columns)
    table("what was found", [heads[k] for k in kept], [[row[k] for k in kept] for row in rows])
    for row in said["options"]:
        if row["paused"]:
            sentence(f"{row['option']} is paused", row["paused"])
    sentence("which is best", verdict(said))
    if said["sample_ratio"]["mismatch"]:
        sentence(
            "warning",
            "reports do not come back from all options alike "
            f"(p = {said['sample_ratio']['p']:.2g}): look for what keeps devices from reporting",
        )


def verdict(said: dict[str, Any]) -> str:
    """Which option is best, and how sure that is, in a sentence."""
    known = [row for row in said["options"] if row["mean"] is not None and row["participants"]]
    if not known:
        return "nothing is known yet: no round has been opened"
    sure = f"{said['level']:.0%}"
    if said["decided"]:
        return (
            f"{said['decided']} is shown to be better than every other option; such a verdict is "
            f"wrong at most {1 - said['level']:.0%} of the time, whenever one looks"
        )
    best = next((row for row in known if row["option"] == said["best"]), known[0])
    worse = [row["option"] for row in known if row["decision"] == "worse"]
    out = f"; {', '.join(worse)} {'is' if len(worse) == 1 else 'are'} out" if worse else ""
    return (
        f"{best['option']} leads, with a chance of {best['best']:.0%} to be the best; at {sure} it "
        f"is not decided yet{out}"
    )


def _between(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.4g} to {high:.4g}"


def _lifts(low: float | None, high: float | None) -> str | None:
    if low is None and high is None:
        return None
    return f"{'?' if low is None else f'{low:+.1%}'} to {'?' if high is None else f'{high:+.1%}'}"


def pause(
    experiment: Which = None,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Give out no more places; who has one reports. See: resume."""
    _change("pause", experiment, config, url, token_file, as_json)


def resume(
    experiment: Which = None,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Go on after a pause."""
    _change("resume", experiment, config, url, token_file, as_json)


def stop(
    experiment: Which = None,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """End an experiment for good; rounds that are open are finished."""
    if not (yes or _agreed("Stop this experiment for good?")):
        raise TacitError("nothing was stopped: answer yes, or give --yes")
    _change("stop", experiment, config, url, token_file, as_json)


def _change(
    name: str,
    experiment: str | None,
    config: Path | None,
    url: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    party, digest = _of(experiment, config, url, token_file)
    party.post(f"/experiments/{digest}/{name}")
    state = party.terms(digest).state
    if as_json:
        print_json({"digest": digest, "state": state})
        return
    sentence("now", f"{digest[:12]} is {state}")


def export(
    file: Annotated[Path, typer.Argument(help="Where to: .json for everything, .csv for a table.")],
    experiment: Which = None,
    config: Config = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Write what is known of an experiment to a file: all of it (JSON), or the estimates (CSV).

    Example: tacit experiment export greeting.csv --config coordinator/party.toml
    """
    import csv
    import io

    if file.suffix not in (".json", ".csv"):
        raise TacitError(f"{file} ends in neither .json nor .csv: name it so")
    party, digest = _of(experiment, config, url, token_file)
    said = party.get(f"/experiments/{digest}/export")
    if file.suffix == ".json":
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    else:
        buffer = io.StringIO()
        rows = [{k: _safe(v) for k, v in row.items()} for row in said["estimates"]["options"]]
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text = buffer.getvalue()
    _write_new(file, text)
    if as_json:
        print_json({"digest": digest, "file": str(file)})
        return
    sentence("written", str(file))


def _safe(value: Any) -> Any:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value


# Terms


def show(
    source: Annotated[
        str, typer.Argument(help="A party's address (with /experiments/… if it has several).")
    ],
    as_json: Json = False,
) -> None:
    """Terms in plain words, their digest and the fingerprints of the parties' keys; of a party, or
    of a file with their text.

    Example: tacit terms show http://127.0.0.1:8700
    """
    published = _published(source)
    published.check()
    if as_json:
        from tacit.terms import in_words

        words = in_words(published.terms)
        record = {
            "digest": published.terms.digest.hex(),
            "signed": published.signed,
            "state": published.state or None,
            **_keys(published),
            "words": words,
        }
        print_json(record)
        return
    _say_terms(published)


def sign(
    source: Annotated[
        str,
        typer.Argument(help="The coordinator's address (with /experiments/… if it has several)."),
    ],
    config: Annotated[Path, typer.Option(help="The helper's party.toml.")] = Path("party.toml"),
    url: Annotated[
        str | None, typer.Option(help="Where the helper is reached, if not where it listens.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="The terms were read before; do not ask.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read an experiment's terms, sign them with the helper's key, and let it begin.

    Example: tacit terms cosign http://127.0.0.1:8700 --config helper/party.toml
    """
    with needs_live():
        from tacit.live.admin import Operated, Published
        from tacit.records import RecordDirectory
        from tacit.terms import approve_successor, cosign
    told = _configured(config, "helper")
    published = _published(source)
    terms = published.terms
    key = told.key_for(terms)
    if terms.parties[1].address != told.address:
        raise TacitError(
            f"the terms say that the helper is at {terms.parties[1].address}; {config} says "
            f"{told.address}: one of the two must be mended"
        )
    if not as_json:
        _say_terms(published)
    if not (yes or _agreed("Sign these terms?")):
        raise TacitError("nothing was signed: read the terms and answer yes, or give --yes")
    coordinator = Operated(_base(source))
    helper = Operated(url or _listening(told), told.admin_token)
    signature = cosign(terms, key)
    both = (published.signatures[0], signature)
    Published(terms, both).check()
    digest, before = terms.digest.hex(), terms.predecessor.hex()
    taken: dict[str, Any] = {"terms": terms.encode().decode()}
    taken["signatures"] = [one.hex() for one in both]
    brought = {"signature": signature.hex()}
    where = f"/experiments/{digest}/cosignature"
    if before:
        old = helper.terms(before).terms
        mine = told.key_for(old)
        approval = approve_successor(old, terms, mine, RecordDirectory(told.records))
        coordinator.post(where, brought | {"approval": approval.hex()})
        helper.post("/experiments", taken | {"approvals": coordinator.approvals(before)})
    else:
        helper.post("/experiments", taken)
        coordinator.post(where, brought)
    state = coordinator.terms(digest).state
    if as_json:
        print_json({"digest": digest, "signature": signature.hex(), "state": state})
        return
    sentence("signed", f"the helper takes part, and the coordinator says that it is {state}")


def _published(source: str) -> Published:
    with needs_live():
        from tacit.live.admin import Operated, Published
        from tacit.terms import Terms
    if "://" in source:
        party = Operated(_base(source))
        return party.terms(party.experiment(_named(source)))
    try:
        return Published(Terms.decode(Path(source).read_bytes().strip()), ())
    except OSError as problem:
        raise TacitError(
            f"{source} cannot be read ({problem.strerror}): give an address such as "
            "https://coordinator.example, or a file with the terms' text"
        ) from None


def _base(source: str) -> str:
    return source.partition("/experiments")[0].rstrip("/")


def _named(source: str) -> str | None:
    return source.partition("/experiments/")[2].partition("/")[0] or None


def _say_terms(published: Published) -> None:
    from tacit.terms import in_words

    print("The terms")
    _listed(in_words(published.terms))
    sentence("digest", published.terms.digest.hex())
    _say_keys(published)
    state = f" ({published.state})" if published.state else ""
    sentence(
        "signed", f"by {'both parties' if published.signed else 'not both parties yet'}{state}"
    )


def _keys(published: Published) -> dict[str, Any]:
    return {
        "keys": {party.role: party.key.hex() for party in published.terms.parties},
        "fingerprints": published.fingerprints,
    }


def _say_keys(published: Published) -> None:
    for role, digits in published.fingerprints.items():
        sentence(f"{role}'s key", digits)


# Parties


def found(
    role: Annotated[Role, typer.Argument(help="Which of the two servers.")],
    directory: Annotated[Path, typer.Argument(help="A new directory for its files.")],
    address: Annotated[
        str | None, typer.Option(help="What others call it by: https://… ; stands in the terms.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port of the process; behind a proxy, a local one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new party: key, lock, admin token, configuration, and the card to hand out.

    Example: tacit party new helper helper --address https://helper.example
    """
    with needs_live():
        from tacit.live import founding
    card = founding.found(role.value, directory, address, listen)
    config = directory / "party.toml"
    if as_json:
        record = {"role": card.role, "address": card.address, "key": card.key.hex()}
        print_json(record | {"fingerprint": card.fingerprint, "config": str(config)})
        return
    sentence("made", f"{config}, with its key, lock and admin token beside it")
    sentence("address", card.address)
    sentence("key", card.key.hex())
    sentence("fingerprint", card.fingerprint)
    sentence("to hand out", str(directory / "card.toml"))
    sentence("next", f"tacit serve {card.role} --config {config}")


def rotate(
    config: Annotated[Path, typer.Option(help="The party's party.toml.")] = Path("party.toml"),
    as_json: Json = False,
) -> None:
    """Give a party a new long-term key; the old one is kept for what runs under it.

    Example: tacit party rotate --config helper/party.toml
    """
    with needs_live():
        from tacit.live import founding
        from tacit.live.config import load
    card, kept = founding.rotate(load(config), config.parent)
    if as_json:
        record = {"role": card.role, "address": card.address, "key": card.key.hex()}
        print_json(record | {"fingerprint": card.fingerprint, "kept": str(kept)})
        return
    sentence("new key", card.key.hex())
    sentence("fingerprint", card.fingerprint)
    sentence("kept", f"{kept}, for experiments whose terms name the old key")
    sentence("to hand out", str(config.parent / "card.toml"))
    sentence("next", f"start the {card.role} again, and publish successor terms that name this key")


def make(
    count: Annotated[int, typer.Argument(help="How many.", parser=whole, metavar="N")],
    config: Annotated[Path, typer.Option(help="The coordinator's party.toml.")] = Path(
        "party.toml"
    ),
    experiment: Annotated[
        str | None, typer.Option(help="First digits of its digest; none if there is only one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new file for them, one on each line.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make invitations to an experiment whose admission is by invitation; each counts once.

    Example: tacit invitations make 100 --config coordinator/party.toml --out invitations.txt
    """
    with needs_live():
        from tacit.live import invitations
        from tacit.live.admin import Operated
    told = _configured(config, "coordinator")
    party = Operated(url or _listening(told))
    terms = party.terms(party.experiment(experiment)).terms
    if terms.admission != "invitation":
        raise TacitError(
            "admission to this experiment is open, so nobody needs an invitation: define one with "
            'people.admission = "invitation"'
        )
    made = invitations.make(party.first(terms), told.key_for(terms), count)
    if out is not None:
        _write_new(out, "\n".join(made) + "\n")
        out.chmod(0o600)
    if as_json:
        print_json({"invitations": made} if out is None else {"file": str(out), "count": count})
    elif out is None:
        print("\n".join(made))
    else:
        sentence("written", f"{count} invitations to {out}, which only you can read")


# Which party is asked


def _of(
    experiment: str | None, config: Path | None, url: str | None, token_file: Path | None
) -> tuple[Operated, str]:
    party = _operated(config, url, token_file)
    return party, party.experiment(experiment)


def _operated(config: Path | None, url: str | None, token_file: Path | None) -> Operated:
    """The coordinator, with the admin token from where it is."""
    with needs_live():
        from tacit.live.admin import Operated
    if config is not None:
        told = _configured(config, "coordinator")
        return Operated((url or _listening(told)).rstrip("/"), told.admin_token)
    token = os.environ.get("TACIT_ADMIN_TOKEN", "")
    if token_file is not None:
        token = _secret(token_file)
    if url is None:
        raise TacitError(
            "which coordinator is not said: give --config coordinator/party.toml, or --url with "
            "the admin token in TACIT_ADMIN_TOKEN"
        )
    return Operated(url.rstrip("/"), token)


def _secret(file: Path) -> str:
    if file.stat().st_mode & 0o077:
        raise TacitError(f"{file} can be read by others: chmod 600 {file}")
    return file.read_text(encoding="utf-8").strip()


def _configured(config: Path, role: str) -> PartyConfig:
    with needs_live():
        from tacit.live.config import load
    told = load(config)
    if told.role != role:
        raise TacitError(f"{config} is that of a {told.role}; give that of the {role}")
    return told


def _listening(told: PartyConfig) -> str:
    """Where a process of this machine reaches the party."""
    host, port = told.listen
    near = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{near}:{port}"


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"{question} Type yes: ").strip().lower() == "yes"


GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "experiment": (
        "Live experiments: define, publish, watch, end.",
        {
            "new": new,
            "check": check,
            "create": create,
            "status": status,
            "estimates": estimates,
            "pause": pause,
            "resume": resume,
            "stop": stop,
            "export": export,
        },
    ),
    "terms": ("What people are promised: read and sign it.", {"show": show, "cosign": sign}),
    "party": ("The two servers of live experiments.", {"new": found, "rotate": rotate}),
    "invitations": ("Invitations to take part.", {"make": make}),
}
"""Groups of commands: what they are about, and the commands by name."""
