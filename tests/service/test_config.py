"""Configuration of a party's process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from tacit.errors import InvalidFile, TacitError
from tacit.keyfiles import KeyFile, Passphrase
from tacit.service.config import Limits, PartyConfig, load

TOKEN = "c0ffee" * 8
SECRETS = {"TACIT_PASSPHRASE": "correct horse battery", "TACIT_ADMIN_TOKEN": TOKEN}
LEAST = 'role = "coordinator"\naddress = "https://c.example"\n'


def write_config(directory: Path, text: str) -> Path:
    path = directory / "party.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_two_entries_and_two_secrets_suffice(tmp_path: Path) -> None:
    config = load(write_config(tmp_path, LEAST), SECRETS)
    assert config == PartyConfig.model_validate(
        {
            "role": "coordinator",
            "address": "https://c.example",
            "signing_key": tmp_path / "coordinator.key",
            "lock": Passphrase("correct horse battery"),
            "admin_token": SecretStr(TOKEN),
            "database": f"sqlite:///{tmp_path}/coordinator.db",
            "records": tmp_path / "coordinator-records",
            "listen": "127.0.0.1:8700",
        }
    )


def test_every_entry_can_be_set_in_the_file(tmp_path: Path) -> None:
    for name in ("lock", "token"):
        (tmp_path / name).write_text(TOKEN + "\n")
        (tmp_path / name).chmod(0o600)
    config = load(
        write_config(
            tmp_path,
            'role = "helper"\naddress = "http://h.example/"\nlisten = "[::1]:9"\n'
            'database = "postgresql://me@db/x"\nrecords = "/r"\nsigning_key = "k"\n'
            'lock_file = "lock"\nadmin_token_file = "token"\ncors_origins = ["https://a.example"]\n'
            'log_level = "debug"\n[limits]\nrate = 3\naddress_header = "X-Real-IP"\n',
        ),
        {},
    )
    assert (config.role, config.address, config.listen) == (
        "helper",
        "http://h.example",
        ("::1", 9),
    )
    assert config.database == "postgresql+psycopg://me@db/x"
    assert (config.records, config.signing_key) == (Path("/r"), tmp_path / "k")
    assert (config.lock, config.admin_token) == (KeyFile(tmp_path / "lock"), TOKEN)
    assert config.limits == Limits(rate=3, address_header="X-Real-IP")
    assert (config.log_level, config.cors_origins) == ("debug", ("https://a.example",))


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    said = {
        "TACIT_LISTEN": "0.0.0.0:1",
        "TACIT_DATABASE": "sqlite:////d/x.db",
        "TACIT_CORS_ORIGINS": "https://a.example,https://b.example",
        "TACIT_LIMITS_RATE": "7",
        "TACIT_LIMITS_BEHIND_PROXY": "false",
    }
    text = LEAST + 'listen = "127.0.0.1:2"\n[limits]\nrate = 3\nburst = 5\n'
    config = load(write_config(tmp_path, text), SECRETS | said)
    assert (config.listen, config.database) == (("0.0.0.0", 1), "sqlite:////d/x.db")
    assert config.cors_origins == ("https://a.example", "https://b.example")
    assert config.limits == Limits(rate=7, burst=5, behind_proxy=False)


BAD = {
    'address = "https://c.example"': 'role is missing; add it: "coordinator" or "helper"',
    LEAST.replace("coordinator", "judge"): 'role is "judge": must be "coordinator" or "helper"',
    LEAST.replace("https://", ""): 'address is "c.example": must be a URL such as "https://',
    LEAST + "colour = 1": "colour is unknown; known are role",
    LEAST + 'adress = "x"': "adress is unknown; did you mean address?",
    LEAST + 'results = "toke"': 'must be "open" or "token"; did you mean token?',
    LEAST + "[limit]\nrate = 3": "limit is unknown; did you mean limits?",
    LEAST + 'admin_token = "x"': "admin_token is a secret and must not be in this file",
    LEAST + 'passphrase = "x"': "put it into TACIT_PASSPHRASE",
    LEAST + 'listen = "here"': 'listen is "here": must be host:port such as 127.0.0.1:8700',
    LEAST + 'listen = "h:70000"': 'listen is "h:70000": must be host:port',
    LEAST + "listen = 8700": "listen is 8700: must be host:port such as 127.0.0.1:8700",
    LEAST + 'log_level = "loud"': 'log_level is "loud": must be "debug", "info", "warning" or',
    LEAST + 'results = "all"': 'results is "all": must be "open" or "token"',
    LEAST + 'cors_origins = "*"': 'cors_origins is "*": must be a list such as ["*"]',
    LEAST + 'cors_origins = [""]': 'cors_origins is [""]: must be a list such as',
    LEAST + 'database = "mysql://x"': "database begins with 'mysql': must be sqlite:///file or",
    LEAST + "database = 5": "database is not a URL: must be sqlite:///file or postgresql://",
    LEAST + "limits = 3": "limits is 3: must be a table",
    LEAST
    + "[limits]\nspeed = 3": "limits.speed is unknown; [limits] has request_bytes, admin_bytes,",
    LEAST + "[limits]\nraet = 3": "limits.raet is unknown; did you mean limits.rate?",
    LEAST + '[limits]\nrate = "3"': 'limits.rate is "3": must be a whole number, without quotes',
    LEAST + "[limits]\nrate = true": "limits.rate is true: must be a whole number",
    LEAST + "[limits]\nrate = -1": "limits.rate is -1: must be at least 0",
    LEAST + "[limits]\nwaiting = 0": "limits.waiting is 0: must be at least 1",
    LEAST + "[limits]\nbehind_proxy = 1": "limits.behind_proxy is 1: must be true or false",
    LEAST + '[limits]\naddress_header = "a b"': 'limits.address_header is "a b": must be a header',
    LEAST + 'lock_file = "gone"': "which cannot be read (No such file or directory): name another",
    LEAST + 'records = ""': 'records is "": must be a path in quotes',
    "role = ": "is not TOML",
}
"""What is said about a configuration, by its text."""


def test_every_error_names_field_value_and_rule(tmp_path: Path) -> None:
    for text, said in BAD.items():
        with pytest.raises(TacitError) as caught:
            load(write_config(tmp_path, text), SECRETS)
        assert said in str(caught.value)
        assert "party.toml" in str(caught.value)


def test_all_errors_of_a_file_are_reported_together(tmp_path: Path) -> None:
    text = 'role = "judge"\nlisten = "x"\npassphrase = "y"\n[limits]\nrate = -1\nwaiting = 0'
    with pytest.raises(InvalidFile) as caught:
        load(write_config(tmp_path, text), SECRETS | {"TACIT_ADMIN_TOKEN": "abc"})
    starts = [problem.split()[0] for problem in caught.value.problems]
    assert starts == [
        "passphrase",
        "role",
        "address",
        "the",
        "listen",
        "limits.waiting",
        "limits.rate",
    ]


def test_missing_entries_are_requested_by_name(tmp_path: Path) -> None:
    path = write_config(tmp_path, LEAST)
    with pytest.raises(TacitError, match="tacit party new"):
        load(tmp_path / "none.toml", SECRETS)
    with pytest.raises(TacitError, match="TACIT_PASSPHRASE"):
        load(path, {"TACIT_ADMIN_TOKEN": TOKEN})
    with pytest.raises(TacitError, match="TACIT_ADMIN_TOKEN"):
        load(path, {"TACIT_PASSPHRASE": "correct horse battery"})
    with pytest.raises(TacitError, match="3 characters: must have at least 16"):
        load(path, SECRETS | {"TACIT_ADMIN_TOKEN": "abc"})


def test_readable_secret_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o640)
    path = write_config(tmp_path, LEAST + 'admin_token_file = "token"')
    with pytest.raises(TacitError, match="chmod 600"):
        load(path, {"TACIT_PASSPHRASE": "correct horse battery"})
    path = write_config(tmp_path, LEAST + 'database = "postgresql://me:hunter2@db/x"')
    assert "hunter2" in load(path, SECRETS).database
    path.chmod(0o644)
    with pytest.raises(TacitError, match="chmod 600") as caught:
        load(path, SECRETS)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_never_printed(tmp_path: Path) -> None:
    said = SECRETS | {"TACIT_DATABASE": "postgresql://me:hunter2@db/x"}
    shown = repr(load(write_config(tmp_path, LEAST), said))
    assert not any(secret in shown for secret in ("hunter2", TOKEN, "correct horse"))
    with pytest.raises(TacitError) as caught:
        load(write_config(tmp_path, LEAST), SECRETS | {"TACIT_DATABASE": "my:hunter2@db"})
    assert "hunter2" not in str(caught.value)


def test_addresses_are_rate_limited_only_where_they_identify_clients() -> None:
    assert not Limits().counted
    assert Limits(behind_proxy=False).counted
    assert Limits(address_header="X-Real-IP").counted
    assert not Limits(behind_proxy=False, rate=0).counted
