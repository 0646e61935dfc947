"""Draws exhibit-*.png and zc24-*.png: the attack on a refuted schedule, and two figures of ZC24.

Run it as `python docs/pictures/exhibits.py`; it needs the extra `plot` and about ten minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = {
    "attack": {"attack.png": "exhibit-attack.png", "schedules.png": "exhibit-schedules.png"},
    "reproduce zc24-super": {"zc24-super.png": "zc24-super.png"},
    "reproduce zc24-budgets": {"zc24-budgets.png": "zc24-budgets.png"},
}


def draw(directory: Path) -> None:
    """Run the commands and keep their pictures."""
    for command, pictures in COMMANDS.items():
        with tempfile.TemporaryDirectory() as out:
            words = [sys.executable, "-m", "tacit", *command.split(), "--out", out]
            subprocess.run(words, check=True, capture_output=True)
            for drawn, kept in pictures.items():
                shutil.copy(Path(out) / drawn, directory / kept)


if __name__ == "__main__":
    draw(HERE)
