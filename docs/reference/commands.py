"""Prints docs/reference/commands.md with tables of options renewed from the commands.

Everything between `<!-- options: NAME -->` and `<!-- end -->` is written by this script, the rest
by hand. `python docs/reference/commands.py` rewrites the page; a test compares the two.
`python docs/reference/commands.py simulate plan` also runs the samples of these commands again.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.cli import HOMES, built

PAGE = Path(__file__).with_suffix(".md")
MARKED = re.compile(r"(<!-- options: ([\w ]+) -->\n).*?(<!-- end -->)", re.S)
SAMPLE = re.compile(r"(```console\n\$ tacit (\w+)([^\n]*)\n).*?(```\n)", re.S)


def options(command: Any) -> str:
    """A table of a command's options."""
    rows = ["| option | meaning | default |", "|---|---|---|"]
    for option in command.params:
        if option.name == "help":
            continue
        spelled = option.opts[0] if option.opts[0].startswith("-") else option.name.upper()
        text = " ".join(str(getattr(option, "help", "") or "").split()).replace("|", "\\|")
        rows.append(f"| `{spelled}` | {text} | {default(option)} |")
    return "\n".join(rows)


def default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    return "" if value is None or value is False or value == "" else f"`{value}`"


def named(commands: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Commands by their names, those of a group after the group's."""
    for name, command in commands.items():
        if getattr(command, "invoke_without_command", False):
            yield name, command
        if hasattr(command, "commands"):
            yield from ((f"{name} {inner}", one) for inner, one in named(command.commands))
        else:
            yield name, command


def section(name: str, command: Any) -> str:
    """The section of a command that the page does not describe yet."""
    about = " ".join(str(command.help or "").split())
    return f"## tacit {name}\n\n{about}\n\n<!-- options: {name} -->\n<!-- end -->\n"


def page() -> str:
    """The page as it should be."""
    commands = dict(named({name: built(name) for name in HOMES}))
    text = PAGE.read_text(encoding="utf-8")
    told = set(re.findall(r"<!-- options: ([\w ]+) -->", text))
    if gone := told - set(commands):
        raise SystemExit(f"the page describes {sorted(gone)}, which do not exist: remove them")
    text = "\n".join(
        [text, *(section(name, commands[name]) for name in commands if name not in told)]
    )
    return MARKED.sub(lambda m: f"{m[1]}{options(commands[m[2]])}\n{m[3]}", text)


def sampled(text: str, names: set[str]) -> str:
    """The page with what these commands print today."""

    def again(sample: re.Match[str]) -> str:
        if sample[2] not in names:
            return sample[0]
        words = [sys.executable, "-m", "tacit", sample[2], *shlex.split(sample[3])]
        run = subprocess.run(words, capture_output=True, check=True, text=True)
        printed = "\n".join(line.rstrip() for line in run.stdout.rstrip().splitlines())
        return f"{sample[1]}{printed}\n{sample[4]}"

    return SAMPLE.sub(again, text)


if __name__ == "__main__":
    PAGE.write_text(sampled(page(), set(sys.argv[1:])), encoding="utf-8")
