"""Draws own-figure.png by running the programs of docs/tutorials/figure.md.

Run it as `python docs/pictures/own_figure.py`; it needs the extra `plot`. It prints what the page
shows as the output of figure.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "tutorials" / "figure.md"


def programs(page: str) -> dict[str, str]:
    """The programs of a page by their captions."""
    return dict(
        re.findall(r"^```\{code-block\} python\n:caption: (\S+)\n(.*?)^```$", page, re.M | re.S)
    )


def run(picture: Path) -> str:
    """What figure.py prints; its picture is written to `picture`."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, text in programs(PAGE.read_text(encoding="utf-8")).items():
            (directory / file).write_text(text, encoding="utf-8")
        for file in ("check.py", "figure.py"):
            ended = subprocess.run(
                [sys.executable, file],
                cwd=directory,
                env={**os.environ, "MPLBACKEND": "agg"},
                capture_output=True,
                text=True,
                check=True,
            )
        shutil.copy(directory / "figure.png", picture)
        return ended.stdout


if __name__ == "__main__":
    print(run(HERE / "own-figure.png"), end="")
