"""Draws page-experimenter.png, its upper part page-top.png, and page-participant.png: real pages.

Run it as `python docs/pictures/pages.py`; it needs the extra `dev` and Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.browser.conftest import chromium  # noqa: E402
from tests.browser.shots import fresh_window, keep  # noqa: E402
from tests.browser.staging import scenes, staged, steps  # noqa: E402


def draw(directory: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as parties,
        chromium() as browser,
        staged(Path(parties)) as stage,
        fresh_window(browser, "desktop", "light") as page,
    ):
        next(step for step in steps(page, stage) if step == "sent")
        keep(page, directory / "page-participant.png")
        address = next(address for name, address in scenes(stage) if name == "decided")
        page.goto(address)
        page.wait_for_selector(".live[data-state=live]")
        keep(page, directory / "page-experimenter.png")
    for name in ("experimenter", "participant"):
        without_margins(directory / f"page-{name}.png")
    crop(directory / "page-experimenter.png", directory / "page-top.png")


def without_margins(picture: Path) -> None:
    """Cut off a fifth of the width at both sides, so that words are legible on a phone."""
    with Image.open(picture) as page:
        wide, high = page.size
        inner = page.crop((wide // 5, 0, wide - wide // 5, high))
    inner.save(picture)


def crop(whole: Path, part: Path) -> None:
    """The three answers of the experimenter's page."""
    with Image.open(whole) as page:
        wide, high = page.size
        page.crop((0, 0, wide, min(high, round(0.89 * wide)))).save(part)


if __name__ == "__main__":
    draw(HERE)
