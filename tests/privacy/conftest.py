"""Run the command line in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tacit.cli import main

Tacit = Callable[..., dict[str, Any]]


@pytest.fixture
def tacit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tacit:
    """`tacit("privacy", noise="skellam", delta=1e-5)`: the JSON object that the command prints."""

    def run(command: str, **options: object) -> dict[str, Any]:
        words = [
            word
            for name, value in options.items()
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]
        monkeypatch.setattr(sys, "argv", ["tacit", command, *words, "--json"])
        main()
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run
