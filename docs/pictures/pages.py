"""Draws page-experimenter.png, its upper part page-top.png, and page-participant.png: real pages.

Windows are as narrow as the layout for desktops allows, so that words are legible on a phone.
Run it as `python docs/pictures/pages.py`; it needs the extra `dev` and Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.browser.conftest import chromium  # noqa: E402
from tests.browser.shots import fresh_window, keep  # noqa: E402
from tests.browser.staging import scenes, staged, steps  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHARP = 1.5  # pixels of a picture for each of the page
NARROW, OF_A_TABLE = 690, 720  # widths of windows
MARGIN = 8


def draw(directory: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as parties,
        chromium() as browser,
        staged(Path(parties)) as stage,
        fresh_window(browser, "desktop", "light", SHARP) as page,
    ):
        next(step for step in steps(page, stage) if step == "sent")
        shoot(page, NARROW, directory / "page-participant.png")
        address = next(address for name, address in scenes(stage) if name == "decided")
        page.goto(address)
        page.wait_for_selector(".live[data-state=live]")
        shoot(page, NARROW, directory / "page-top.png")
        crop(page, directory / "page-top.png", directory / "page-top.png")
        shoot(page, OF_A_TABLE, directory / "page-experimenter.png")


def shoot(page: Page, width: int, path: Path) -> None:
    """A picture of the page in a window of this width, without margins."""
    page.set_viewport_size({"width": width, "height": 900})
    keep(page, path)
    with Image.open(path) as picture:
        wide, high = picture.size
        cut = round(SHARP * MARGIN)
        inner = picture.crop((cut, 0, wide - cut, high))
    inner.save(path, optimize=True)


def crop(page: Page, whole: Path, path: Path) -> None:
    """The question and its three answers, small enough for the beginning of a README."""
    first, last = (page.locator(name).bounding_box() for name in ("h1", "#people"))
    assert first
    assert last
    with Image.open(whole) as picture:
        top, below = (round(SHARP * y) for y in (first["y"] - 2 * MARGIN, last["y"] - 2))
        part = picture.crop((0, top, picture.width, below)).convert("RGB")
    size = (round(part.width / SHARP), round(part.height / SHARP))
    few = part.resize(size, Image.Resampling.LANCZOS).quantize(128, Image.Quantize.FASTOCTREE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    draw(HERE)
