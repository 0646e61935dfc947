"""The command that serves a party."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.cli.commands import Command, rejected
from tests.service.served import member

from tacit.errors import TacitError
from tacit.service.http.serve import listening


def test_a_missing_party_is_reported_with_its_remedy(tmp_path: Path, command: Command) -> None:
    said = rejected(command("serve", "helper", "--config", str(tmp_path / "party.toml")))
    assert "make one with `tacit party new`" in said


def test_the_other_partys_configuration_is_not_served(tmp_path: Path, command: Command) -> None:
    told = member(tmp_path, "helper")
    assert told.bound is not None
    told.bound.close()
    said = rejected(command("serve", "coordinator", "--config", str(told.path)))
    assert "configures a helper: run tacit serve helper" in said


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    told = member(tmp_path, "helper")
    assert isinstance(told.bound, socket.socket)
    told.bound.listen()
    with pytest.raises(TacitError, match=r"listen is 127.0.0.1:\d+, which is not available"):
        listening(told.config)
    told.bound.close()


def test_a_starting_party_reserves_its_port(tmp_path: Path) -> None:
    told = member(tmp_path, "helper")
    assert told.bound is not None
    told.bound.close()
    with listening(told.config), pytest.raises(TacitError, match="which is not available"):
        listening(told.config)
