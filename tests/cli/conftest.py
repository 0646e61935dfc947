"""Run a command in this process, for speed."""

from __future__ import annotations

import sys

import pytest
from tests.cli.commands import Command, Ended

from tacit.cli import main


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("calibrate", "--noise", ...)`: exit code, standard output, standard error."""

    def run(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tacit", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
