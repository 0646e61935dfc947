"""Shared by the tests of the command line: the result of a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

Ended = tuple[int, str, str]
Command = Callable[..., Ended]


def result(ended: Ended) -> dict[str, Any]:
    """The JSON object of a command that went well."""
    code, out, err = ended
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def rejected(ended: Ended) -> str:
    """The one line of a rejection."""
    code, out, err = ended
    assert code == 2, err
    assert out == ""
    assert err.startswith("tacit: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert "Value error" not in err
    return err


def program(*words: object, **environment: str) -> Ended:
    """A command in a new interpreter."""
    call = [sys.executable, "-m", "tacit", *map(str, words)]
    ended = subprocess.run(
        call, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    return ended.returncode, ended.stdout, ended.stderr
