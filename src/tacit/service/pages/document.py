"""Frame of every page: one column, one style sheet, requests to its own origin only."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from tacit.service.pages.markup import Content, Safe, tag

STATIC = files("tacit.service") / "static"


def document(
    title: str,
    root: str,
    body: Sequence[Content],
    *,
    foot: Sequence[Content] = (),
    module: str | None = None,
    crumb: bool = False,
) -> Safe:
    """Render a whole page.

    `root` is the relative URL of the index, so that a coordinator may be served below any path.
    """
    script = module and tag("script", type="module", src=f"{root}static/{module}")
    head = [
        *_head(title),
        tag("link", rel="stylesheet", href=f"{root}static/page.css"),
        tag("link", rel="icon", type="image/svg+xml", href=f"{root}static/icon.svg"),
        script,
    ]
    way = tag("nav", tag("a", "All experiments", href=root or "./"), aria_label="Up")
    return _whole(head, [tag("header", way) if crumb else None, tag("main", body)], foot)


def alone(title: str, body: Sequence[Content], foot: Sequence[Content] = ()) -> Safe:
    """Render a self-contained page: one file without scripts and requests."""
    style = Safe(f"<style>{style_sheet()}</style>")
    return _whole([*_head(title), style], [tag("main", body)], foot)


def style_sheet() -> str:
    """The style sheet of all pages."""
    return (STATIC / "page.css").read_text(encoding="utf-8")


def _head(title: str) -> list[Safe]:
    return [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
    ]


def _whole(head: Content, body: Content, foot: Sequence[Content]) -> Safe:
    bottom = tag("footer", foot) if foot else None
    html = tag("html", tag("head", head), tag("body", body, bottom), lang="en")
    return Safe(f"<!doctype html>{html}\n")
