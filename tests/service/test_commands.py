"""The commands of live experiments, against two parties that are served on loopback."""

from __future__ import annotations

import csv
import json
import re
import stat
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.commands import Command, rejected, result
from tests.cli.conftest import command as command
from tests.cli.test_start import of_commands
from tests.service.deployed import definition_of
from tests.service.served import TOKEN, Joined, Threads, served, wait_for

from tacit.aggregation.two_servers import split
from tacit.cli.operating import SelectedExperiment, party_client
from tacit.cli.running import print_status
from tacit.client import Device, Ledger, Pins
from tacit.keyfiles import load_signing_keys
from tacit.service.admin import PartyClient
from tacit.service.bootstrap import read_card
from tacit.service.config import load as load_config
from tacit.service.definition_files import load, write
from tacit.signatures import fingerprint, public_key
from tacit.terms import Terms

QUICK = ("--participants", 160, "--window", "1 second", "--joining", "1 hour")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("commands")) as made:
        yield made


@pytest.fixture
def defined(servers: Threads, command: Command, tmp_path: Path) -> Path:
    """A definition that names the helper that is served."""
    card = tmp_path / "card.toml"
    key = servers.keys[1].hex()
    card.write_text(f'role = "helper"\naddress = "{servers.urls[1]}"\nkey = "{key}"\n')
    file = tmp_path / "greeting.toml"
    assert command("experiment", "new", file, "--helper", card, *QUICK)[0] == 0
    return file


def config(servers: Threads, role: int) -> tuple[str, Path]:
    return "--config", servers.members[role].path


def published(servers: Threads, command: Command, file: Path, question: str) -> str:
    """A new experiment, by its digest."""
    text = file.read_text().replace("Which greeting do people like best?", question)
    file.write_text(text)
    made = result(command("experiment", "create", file, *config(servers, 0), "--json"))
    return str(made["digest"])


def cosigned(servers: Threads, command: Command, digest: str) -> None:
    where = f"{servers.urls[0]}/experiments/{digest}"
    ended = command("terms", "cosign", where, *config(servers, 1), "--yes", "--json")
    assert result(ended)["state"] == "running"


def test_a_definition_is_written_with_comments_and_never_overwrites(
    command: Command, tmp_path: Path
) -> None:
    for name in ("one.toml", "one.yaml"):
        file = tmp_path / name
        code, out, _ = command("experiment", "new", file, "--option", "A", "--option", "B")
        assert code == 0
        assert "fill in [helper]" in out
        assert file.read_text().count("# ") > 20
        assert "is not overwritten" in rejected(command("experiment", "new", file))
        said = rejected(command("experiment", "check", file))
        assert "helper.key is missing" in said


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (
            ("--context", "device phone"),
            '--context is "device phone": must be a field with at least',
        ),
        (("--context", "age: 90 to 18"), "age from 90 to 18: must go from a smaller number"),
        (("--helper", "nix.toml"), "name the card.toml that the other operator sends"),
    ],
)
def test_an_option_of_a_definition_is_named_as_given(
    command: Command, tmp_path: Path, given: tuple[str, ...], rule: str
) -> None:
    said = rejected(command("experiment", "new", tmp_path / "one.toml", *given))
    assert rule in said
    assert not (tmp_path / "one.toml").exists()


def test_check_prints_the_terms_in_words_and_a_forecast(command: Command, defined: Path) -> None:
    code, out, err = command("experiment", "check", defined, "--runs", 2)
    assert (code, err) == (0, "")
    for words in (
        "What people read before they take part",
        "It assumes that at least 1 of the 2 servers is honest, whichever.",
        "Who sees what",
        "How long it takes",
        "of 2 simulated experiments",
        "say in [expected] what you expect",
        "one operator has both",
    ):
        assert words in " ".join(out.split())
    found = result(command("experiment", "check", defined, "--no-forecast", "--json"))
    assert found["forecast"] is None
    assert found["definition"]["promise.epsilon"] == "1"


def test_check_reports_each_problem_on_its_own_line(command: Command, defined: Path) -> None:
    text = defined.read_text().replace('window = "1 second"', "window = 5")
    defined.write_text(text.replace("epsilon = 1", "epsilon = 0"))
    code, out, err = command("experiment", "check", defined)
    assert (code, out) == (2, "")
    assert [line.split()[0] for line in err.splitlines()] == [
        "tacit:",
        "answer.window",
        "promise.epsilon",
    ]


def test_check_rejects_what_a_coordinator_does_not_publish(
    command: Command, tmp_path: Path
) -> None:
    wasteful = {"epsilon": Fraction(1, 10), "levels": 10, "participations": 3}
    file = tmp_path / "shuffled.toml"
    file.write_text(write(definition_of("shuffler", algorithm="vb-sdp-ae", **wasteful)))
    said = rejected(command("experiment", "check", file, "--no-forecast"))
    assert "number of messages of a report is 393763: must be at most" in said


def test_check_prints_nothing_before_the_forecast_is_possible(
    command: Command, defined: Path
) -> None:
    assert "runs is 0" in rejected(command("experiment", "check", defined, "--runs", 0))


def test_a_byte_order_mark_is_accepted(command: Command, defined: Path) -> None:
    defined.write_text(defined.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert result(command("experiment", "check", defined, "--no-forecast", "--json"))["words"]


def test_nothing_is_published_if_the_app_file_cannot_be_written(
    servers: Threads, command: Command, defined: Path
) -> None:
    made = ("experiment", "create", defined, *config(servers, 0), "--app", defined)
    assert "is not overwritten" in rejected(command(*made))
    assert "no experiment" in rejected(command("experiment", "status", *config(servers, 0)))


def test_an_experiment_runs_from_a_definition_to_estimates(
    servers: Threads, command: Command, defined: Path, tmp_path: Path
) -> None:
    made = result(command("experiment", "create", defined, *config(servers, 0), "--json"))
    digest = made["digest"]
    assert made["fingerprints"]["helper"] == fingerprint(servers.keys[1])
    which = (digest[:10], *config(servers, 0))
    assert "the helper's operator must sign" in command("experiment", "status", *which)[1]
    code, out, _ = command("terms", "show", f"{servers.urls[0]}/experiments/{digest}")
    assert code == 0
    assert "signed: not by both parties yet (unsigned)" in out
    assert fingerprint(servers.keys[0]) in out
    cosigned(servers, command, digest)
    cosigned(servers, command, digest)  # again, which changes nothing
    _, out, _ = command("experiment", "status", *which)
    assert f"next: tacit experiment estimates {' '.join(map(str, which))}" in " ".join(out.split())
    shown = result(command("terms", "show", f"{servers.urls[1]}/experiments/{digest}", "--json"))
    assert shown["signed"]
    assert shown["digest"] == digest
    told, kept = shown["guarantee"], result(command("experiment", "status", *which, "--json"))
    same = ("epsilon", "delta", "view", "neighbours", "participations")
    assert [told[key] for key in same] == [kept["guarantee"][key] for key in same]
    assert {"id": "honest-servers", "count": 1, "of": 2} in told["assumptions"]
    assert told["assumptions"] == kept["guarantee"]["assumptions"]
    checked = result(command("experiment", "check", defined, "--no-forecast", "--json"))
    assert checked["guarantee"] == kept["guarantee"]
    best = load(defined).options[1]
    assert "nothing is known yet" in command("experiment", "estimates", *which)[1]
    came = len(servers.hold(bytes.fromhex(digest), lambda option: int(option == best)))
    people = ("experiment", "status", *which, "--json")
    wait_for(lambda: result(command(*people))["people"]["reported"] == came)
    found = result(command("experiment", "estimates", *which, "--json"))
    assert found["best"] == best
    code, out, _ = command("experiment", "estimates", *which)
    assert code == 0
    assert best in out.split("which is best:")[1]
    for name, state in (("pause", "paused"), ("resume", "running")):
        assert result(command("experiment", name, *which, "--json"))["state"] == state
    table, whole = tmp_path / "out.csv", tmp_path / "out.json"
    for file in (table, whole):
        assert command("experiment", "export", file, *which)[0] == 0
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    exported, options = json.loads(whole.read_text()), list(load(defined).options)
    assert [row["option"] for row in rows] == options * len(exported["history"])
    assert [row["mean"] for row in rows[-len(options) :]] == [
        str(one["mean"]) for one in exported["history"][-1]["options"]
    ]
    assert len({row["round"] for row in rows}) == len(exported["history"]) > 0
    assert exported["definition"] == defined.read_text()
    assert "give --yes" in rejected(command("experiment", "stop", *which))
    assert result(command("experiment", "stop", *which, "--yes", "--json"))["state"] == "stopped"
    assert "to become running" in rejected(command("experiment", "resume", *which))


def test_published_terms_match_the_definition(
    servers: Threads, command: Command, defined: Path
) -> None:
    digest = published(servers, command, defined, "Which is published?")
    said = servers.get(0, f"/experiments/{digest}/terms").json()
    terms = Terms.decode(said["terms"].encode())
    assert terms == load(defined).terms(servers.urls[0], servers.keys[0])
    again = result(command("experiment", "create", defined, *config(servers, 0), "--json"))
    assert again["digest"] == digest


def test_errors_are_one_line_with_a_remedy(
    servers: Threads, command: Command, defined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_ADMIN_TOKEN", raising=False)
    url = ("--url", servers.urls[0])
    digest = published(servers, command, defined, "Which is rejected?")
    where = f"{servers.urls[0]}/experiments/{digest}"
    for words, fix in (
        (("experiment", "create", defined), "give --config"),
        (("experiment", "create", defined, *url), "TACIT_ADMIN_TOKEN"),
        (("experiment", "status", digest, *url), "TACIT_ADMIN_TOKEN"),
        (("experiment", "status", "--url", "http://127.0.0.1:9"), "start it with tacit serve"),
        (("experiment", "status", "--url", "nowhere"), "must be a URL such as"),
        (("experiment", "status", "ffffffffffff", *config(servers, 0)), "must match one digest"),
        (
            ("experiment", "status", digest, *config(servers, 1)),
            "give the party.toml of the coordinator",
        ),
        (
            ("experiment", "export", "out.txt", digest, *config(servers, 0)),
            "must end in .json or .csv",
        ),
        (("experiment", "check", "nothing.toml"), "tacit experiment new nothing.toml"),
        (("terms", "cosign", where, *config(servers, 0)), "give the party.toml of the helper"),
        (("terms", "cosign", where, *config(servers, 1), "--json"), "no terminal: nobody can be"),
        (("terms", "show", "nothing.json"), "https://coordinator.example"),
        (("invitations", "make", 3, "--experiment", digest, *config(servers, 0)), "is open"),
    ):
        said = rejected(command(*words))
        assert fix in said
        assert TOKEN not in said


def test_experiments_are_listed_and_an_ambiguous_one_must_be_named(
    servers: Threads, command: Command, defined: Path
) -> None:
    other = defined.with_name("other.toml")
    other.write_text(defined.read_text())
    digests = [published(servers, command, file, f"Which of {file}?") for file in (defined, other)]
    known = result(command("experiment", "list", *config(servers, 0), "--json"))["experiments"]
    assert set(digests) <= {one["digest"] for one in known}
    assert digests[0][:12] in command("experiment", "list", *config(servers, 0))[1]
    for words in (
        ("experiment", "status", *config(servers, 0)),
        ("experiment", "status", "none", *config(servers, 0)),
        ("terms", "show", servers.urls[0]),
        ("invitations", "make", 1, *config(servers, 0)),
    ):
        said = rejected(command(*words))
        assert "ive the first digits of one digest" in said
        assert digests[1][:12] in said


def test_create_distinguishes_new_running_and_ended_experiments(
    servers: Threads, command: Command, defined: Path
) -> None:
    digest = published(servers, command, defined, "Which is created again?")
    create = ("experiment", "create", defined, *config(servers, 0))
    assert "published: Which" in command(*create)[1]
    cosigned(servers, command, digest)
    assert "published earlier: Which" in command(*create)[1]
    code, out, _ = command("experiment", "stop", digest, *config(servers, 0), "--yes")
    assert (code, out.count("is stopped")) == (0, 1)
    assert (
        " ".join(out.split()).split("next: ")[1].startswith("tacit experiment export results.csv")
    )
    said = rejected(command(*create))
    assert "exists and is stopped: change its question" in said


def test_a_server_that_is_not_tacit_is_not_reported_as_a_wrong_token(
    command: Command, defined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = httpx.Response(401, json={"error": "who are you?"})
    monkeypatch.setattr(PartyClient, "_answer", lambda *_: answer)
    monkeypatch.setenv("TACIT_ADMIN_TOKEN", TOKEN)
    said = rejected(command("experiment", "create", defined, "--url", "http://127.0.0.1:1"))
    assert "is not a tacit server" in said


def test_the_admin_token_is_read_from_the_environment_or_a_private_file(
    servers: Threads,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    defined: Path,
) -> None:
    digest = published(servers, command, defined, "Which token?")
    url = (digest, "--url", servers.urls[0])
    file = tmp_path / "token"
    file.write_text(TOKEN)
    assert "chmod 600" in rejected(command("experiment", "status", *url, "--token-file", file))
    file.chmod(0o600)
    assert command("experiment", "status", *url, "--token-file", file)[0] == 0
    monkeypatch.setenv("TACIT_ADMIN_TOKEN", TOKEN)
    assert command("experiment", "status", *url)[0] == 0


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://coordinator.invalid", True),
        ("HTTP://192.0.2.1:8700/", True),
        ("https://coordinator.invalid", False),
        ("http://127.0.0.1:8700", False),
        ("http://[::1]:8700", False),
        ("http://localhost:8700", False),
    ],
)
def test_a_token_over_plain_http_causes_a_warning(
    url: str, warned: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_ADMIN_TOKEN", TOKEN)
    assert party_client(None, url, None).url == url.rstrip("/")
    said = capsys.readouterr().err
    assert ("use https://" in said) is warned
    assert TOKEN not in said
    monkeypatch.delenv("TACIT_ADMIN_TOKEN")
    party_client(None, url, None)
    assert capsys.readouterr().err == ""  # nothing secret is sent


def test_a_helper_signs_only_terms_that_name_it(
    servers: Threads, command: Command, defined: Path
) -> None:
    text = defined.read_text()
    other = text.replace(servers.keys[1].hex(), "ab" * 32).replace("best?", "other key?")
    elsewhere = text.replace(servers.urls[1], "https://elsewhere.example").replace(
        "best?", "where?"
    )
    for changed, reason in ((other, "another helper's key"), (elsewhere, "correct one of the two")):
        defined.write_text(changed)
        made = result(command("experiment", "create", defined, *config(servers, 0), "--json"))
        where = f"{servers.urls[0]}/experiments/{made['digest']}"
        ended = command("terms", "cosign", where, *config(servers, 1), "--yes", "--json")
        assert reason in rejected(ended)


def test_options_change_by_successor_terms_signed_by_both(
    servers: Threads, command: Command, defined: Path
) -> None:
    digest = published(servers, command, defined, "Which changes?")
    cosigned(servers, command, digest)
    old = servers.pinned(bytes.fromhex(digest))
    text = defined.read_text()
    text = text.replace("participants = 160", "participants = 400")
    changed = f'succeeds = "{digest}"\n' + text.replace('"Good day"]', '"Good day", "Hey"]')
    defined.write_text(changed.replace("epsilon = 1", "epsilon = 2"))
    weaker = command("experiment", "create", defined, *config(servers, 0))
    assert "epsilon of successor terms is 2" in rejected(weaker)
    defined.write_text(changed)
    made = result(command("experiment", "create", defined, *config(servers, 0), "--json"))
    cosigned(servers, command, made["digest"])
    for url in servers.urls:
        shown = result(command("terms", "show", f"{url}/experiments/{made['digest']}", "--json"))
        assert shown["signed"]
    said = servers.get(0, f"/experiments/{digest}/terms").json()["successor"]
    terms = Terms.decode(said["terms"].encode())
    signatures, approvals = (
        tuple(bytes.fromhex(one) for one in said[name]) for name in ("signatures", "approvals")
    )
    assert old.succeeded_by(terms, signatures, approvals).terms.options[-1] == "Hey"
    which = (made["digest"][:12], *config(servers, 0), "--json")
    status = result(command("experiment", "status", *which))
    assert (status["options"][-1], status["people"]["planned"]) == ("Hey", 400)


@pytest.mark.extended
def test_a_guardrail_pauses_an_option_and_the_estimates_say_why(
    servers: Threads, command: Command, defined: Path
) -> None:
    text = defined.read_text().replace('# metric = "complaints"', 'metric = "complaints"')
    defined.write_text(text.replace("epsilon = 1", "epsilon = 8"))
    digest = published(servers, command, defined, "Which is guarded?")
    cosigned(servers, command, digest)
    name = bytes.fromhex(digest)
    pinned, came = servers.pinned(name), 0
    joined: Joined | None = servers.place(name)
    while joined is not None:
        bad = int(joined.option == "Hi")
        for role, half in enumerate(split(pinned, joined.announcement, joined.place, [1, bad])):
            servers.put(role, joined.path, half).raise_for_status()
        came, joined = came + 1, servers.join(name)
    words = ("experiment", "estimates", digest[:12], *config(servers, 0))

    def learned() -> bool:
        options = result(command(*words, "--json"))["options"]
        return bool(sum(row["participants"] for row in options) == came)

    wait_for(learned)
    code, out, _ = command(*words)
    assert code == 0
    assert "Hi is paused: complaints" in out
    assert " guard " in out


def test_invitations_admit_participants_once(
    servers: Threads,
    command: Command,
    defined: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = defined.read_text().replace('admission = "open"', 'admission = "invitation"')
    defined.write_text(text)
    digest = published(servers, command, defined, "Who is invited?")
    cosigned(servers, command, digest)
    out = tmp_path / "invitations.txt"
    words = ("invitations", "make", 3, "--experiment", digest, "--out", out)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # nobody could read them before, either
    assert command(*words, *config(servers, 0))[0] == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    made = out.read_text().split()
    assert len(set(made)) == 3
    path = f"/experiments/{digest}/places"

    def join(invitation: str | None, nonce: str = "ab" * 16) -> tuple[int, bool | None]:
        said = servers.post(0, path, json={"nonce": nonce, "invitation": invitation})
        return said.status_code, said.json().get("asked")

    assert join(None) == (403, None)
    wait_for(lambda: join(made[0]) == (200, True))
    assert join(made[0], "cd" * 16) == join(None) == (403, None)


def test_a_partys_secrets_are_readable_by_their_owner_only(
    command: Command, tmp_path: Path
) -> None:
    directory = tmp_path / "helper"
    words = ("party", "new", "helper", directory, "--address", "https://helper.example/")
    made = result(command(*words, "--json"))
    card = read_card(directory / "card.toml")
    assert (card.address, card.key.hex()) == ("https://helper.example", made["key"])
    assert made["fingerprint"] == fingerprint(card.key)
    private = {"party.toml", "lock", "admin-token", "helper.key", "helper-records"}
    for name in private:
        assert stat.S_IMODE((directory / name).stat().st_mode) & 0o077 == 0
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    assert "never overwritten" in rejected(command(*words))
    wrong = rejected(
        command("experiment", "new", tmp_path / "one.toml", "--helper", directory / "party.toml")
    )
    assert "party.toml has no key: must be a party's card. Name the card.toml" in wrong
    assert before == {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}
    assert "https://helper.example" in rejected(
        command("party", "new", "helper", tmp_path / "other", "--address", "helper")
    )


@pytest.mark.extended
def test_a_rotated_key_is_on_the_card_and_the_old_one_kept(
    command: Command, tmp_path: Path
) -> None:
    directory = tmp_path / "helper"
    address = ("--address", "https://helper.example")
    before = result(command("party", "new", "helper", directory, *address, "--json"))
    rotated = ("party", "rotate", "--config", directory / "party.toml", "--json")
    keys = [before["key"], *(result(command(*rotated))["key"] for _ in range(2))]
    card = read_card(directory / "card.toml")
    assert (card.role, card.address, card.key.hex()) == ("helper", address[1], keys[-1])
    told = load_config(directory / "party.toml")
    present, *former = load_signing_keys(told.signing_key, told.lock)
    assert public_key(present).hex() == keys[-1]
    assert {public_key(one).hex() for one in former} == set(keys[:2])
    for path in directory.glob("helper.key*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert "tacit party new" in rejected(command("party", "rotate", "--config", tmp_path / "none"))


def test_help_of_live_commands_imports_no_server() -> None:
    heavy = {"fastapi", "sqlalchemy", "httpx", "cryptography", "numpy"}
    assert not heavy & of_commands("--help", "experiment --help", "doctor --help")


@pytest.mark.extended
def test_loopback_requests_bypass_the_environments_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, the coordinator that asks its helper, and a device."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    with served(tmp_path) as made, httpx.Client(trust_env=False) as made.client:
        digest = made.begin()
        made.place(digest)
        assert PartyClient(made.urls[0]).experiment(None) == digest.hex()
        pins = Pins(made.urls[0], *(key.hex() for key in made.keys))
        with closing(Ledger(":memory:")) as ledger, Device(ledger, pins) as device:
            assert device.join(digest).asked


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/experiments", 200, [7]),
        ("/experiments", 200, [{"digest": "a"}]),
        ("/experiments", 422, {"error": "\x1b[2Jfine\x9b1A"}),
        ("/terms", 200, {"state": "\x1b[2J\u202efine"}),
    ],
)
def test_a_coordinators_answers_cannot_control_the_helpers_terminal(
    servers: Threads,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    status: int,
    told: Any,
) -> None:
    """Terms are shown in a terminal, which would obey what a liar puts behind them."""
    digest, honest = servers.begin().hex(), PartyClient._answer

    def lie(party: PartyClient, method: str, asked: str, body: Any = None) -> httpx.Response:
        answer = honest(party, method, asked, body)
        if not asked.endswith(path):
            return answer
        said = answer.json() | told if path == "/terms" else told
        return httpx.Response(status, json=said)

    monkeypatch.setattr(PartyClient, "_answer", lie)
    code, out, err = command("terms", "show", f"{servers.urls[0]}/experiments/{digest}")
    assert (code, out) == (2, "")
    assert not re.search(r"[\x1b\x9b\u202e]", err)


def test_status_explains_rounds_that_wait_for_a_helper(capsys: pytest.CaptureFixture[str]) -> None:
    people = {"asked": 0, "reported": 0, "served": 0, "planned": 600}
    round_ = {"number": 0, "option": "Hi", "places": 39, "given": 0, "reports": None, "closes": 0}
    for stage, waits in (("preparing", True), ("open", False)):
        said: dict[str, Any] = {
            "question": "Which?",
            "state": "running",
            "digest": "ab",
            "ended": None,
        }
        said |= {"contexts": None, "linear": False, "people": people}
        print_status(said | {"rounds": [round_ | {"stage": stage}]}, SelectedExperiment())
        out = " ".join(capsys.readouterr().out.split())
        assert ("wait for a helper that does not answer: tacit doctor" in out) == waits
