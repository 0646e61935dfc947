"""Draws report.png: the upper part of the report of examples/study.toml.

Run it as `python docs/pictures/report.py`; it needs the extra `dev`, Chromium and some minutes.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.conftest import chromium  # noqa: E402

STUDY = ROOT / "examples" / "study.toml"
WIDE, HIGH = 1180, 1720


def draw(picture: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "study"
        for words in (["sweep", str(STUDY), "--out", str(out)], ["report", str(out)]):
            subprocess.run([sys.executable, "-m", "tacit", *words], check=True, capture_output=True)
        with chromium() as browser:
            page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
            page.goto((out / "report.html").as_uri())
            shot = Image.open(io.BytesIO(page.screenshot()))
    shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    draw(HERE / "report.png")
