"""Pictures of every state of both pages: `python -m tests.browser.shots DIRECTORY`.

On desktop and phone, in light and dark, in few colours so that they are small.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from PIL import Image
from tests.browser.conftest import chromium
from tests.browser.staging import Stage, scenes, staged, steps
from tests.service.test_linear_live import offers

from tacit.service.http import pages
from tacit.service.pages import style_sheet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
ALL = tuple((size, scheme) for size in SIZES for scheme in SCHEMES)
COLOURS = 40
SCALE = 0.75


@contextmanager
def fresh_window(
    browser: Browser, size: str, scheme: Scheme, scale: float = SCALE
) -> Iterator[Page]:
    """A fresh window."""
    wide, high = SIZES[size]
    context = browser.new_context(
        viewport={"width": wide, "height": high}, color_scheme=scheme, device_scale_factor=scale
    )
    try:
        yield context.new_page()
    finally:
        context.close()


def keep(page: Page, path: Path) -> None:
    """A picture of the whole page, small."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    few = picture.convert("RGB").quantize(palette=_palette(picture), dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def _palette(picture: Image.Image) -> Image.Image:
    """The colours of the pages' style, and those that a picture has most of."""
    counted = picture.convert("RGB").getcolors(1 << 24) or []
    named = [tuple(bytes.fromhex(one)) for one in re.findall("#([0-9a-f]{6})", style_sheet())]
    common = [colour for _, colour in sorted(counted, reverse=True)[:COLOURS]]
    made = Image.new("P", (1, 1))
    made.putpalette([part for colour in (*named, *common) for part in _rgb(colour)])
    return made


def _rgb(colour: object) -> tuple[int, int, int]:
    assert isinstance(colour, tuple)
    return colour[0], colour[1], colour[2]


def keep_all(page: Page, directory: Path, name: str) -> None:
    """The page as it is, in all sizes and schemes."""
    for size, scheme in ALL:
        wide, high = SIZES[size]
        page.set_viewport_size({"width": wide, "height": high})
        page.emulate_media(color_scheme=scheme)
        keep(page, directory / f"{name}-{size}-{scheme}.png")


def experimenter(browser: Browser, stage: Stage, directory: Path) -> None:
    """The experimenter's page in every state."""
    for name, address in scenes(stage):
        with fresh_window(browser, "desktop", "light") as page:
            page.goto(address)
            page.wait_for_selector(".live[data-state=live]")
            keep_all(page, directory, name)
            if name == "leading":
                page.route("**/live?*", lambda route: route.abort())
                with mock.patch.object(pages, "LONGEST", 0.0):
                    page.wait_for_selector(".live[data-state=lost]")
                keep_all(page, directory, "lost")


def without_script(browser: Browser, stage: Stage, directory: Path) -> None:
    """Both pages in a browser that runs no script."""
    stage.begin()
    stage.hold()
    context = browser.new_context(java_script_enabled=False, device_scale_factor=SCALE)
    page = context.new_page()
    for name, address in (("no-script", ""), ("part-no-script", "/take-part")):
        page.goto(f"{stage.page}{address}")
        keep_all(page, directory, name)
    context.close()


def participant(browser: Browser, stage: Stage, directory: Path) -> None:
    """The participant's page, step by step."""
    with fresh_window(browser, "desktop", "light") as page:
        for name in steps(page, stage):
            keep_all(page, directory, f"part-{name}")


def trust_models(browser: Browser, stage: Stage, directory: Path) -> None:
    """Both pages under other trust models than two servers without proofs."""
    for trust in ("local", "shuffler", "secure-aggregation", "two-servers"):
        proofs = trust == "two-servers"
        stage.begin_with(trust, proofs=proofs)
        with fresh_window(browser, "desktop", "light") as page:
            page.goto(stage.page)
            page.wait_for_selector(".live[data-state=live]")
            name = "proofs" if proofs else trust
            keep_all(page, directory, name)
            page.goto(f"{stage.page}/take-part")
            page.wait_for_selector("text=/I agree|Browsers cannot take part/")
            keep_all(page, directory, f"part-{name}")


def contextual(browser: Browser, stage: Stage, directory: Path) -> None:
    """Both pages where devices choose by context, and the experimenter's with 1,000 options."""
    fields = ("shift: day, night", "ward: surgery, paediatrics")
    chosen = {"algorithm": "private-contextual", "context_fields": fields, "min_batch_size": 10}
    stage.begin_with("two-servers", **chosen, **LONG, evaluation=Fraction(1, 4))
    with fresh_window(browser, "desktop", "light") as page:
        page.goto(f"{stage.page}/take-part")
        page.wait_for_selector("text=I agree")
        keep_all(page, directory, "part-contextual")
        for name, value in (("shift", "day"), ("ward", "surgery")):
            page.select_option(f"select[name={name}]", value)
        page.click("text=I agree")
        page.wait_for_selector("text=Keep my answer")
        keep_all(page, directory, "part-contextual-waiting")
        stage.hold(0.99)  # the page's own report is missing
        page.goto(stage.page)
        page.wait_for_selector(".live[data-state=live]")
        keep_all(page, directory, "contextual")
    table, means = offers(1000)
    stage.begin_with("two-servers", options=None, options_table=table, participants=3000, **LONG)
    stage.liked, liked = lambda option, n: int(n % 100 < 100 * means[option]), stage.liked
    with fresh_window(browser, "desktop", "light") as page:
        stage.hold()
        page.goto(stage.page)
        page.wait_for_selector(".live[data-state=live]")
        keep_all(page, directory, "many-options")
    stage.liked = liked


LONG: dict[str, Any] = {"window": 3600, "joining": 3600, "margin": 600}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with (
        mock.patch.multiple(pages, PULSE=0.0, FRESH=0.0),
        tempfile.TemporaryDirectory() as parties,
        chromium() as browser,
        staged(Path(parties)) as stage,
    ):
        contextual(browser, stage, directory)
        without_script(browser, stage, directory)
        trust_models(browser, stage, directory)
        participant(browser, stage, directory)
        experimenter(browser, stage, directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
