"""The frame of every page: one column, one style, no request but to where it came from."""

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
    """A whole page. `root` leads from it to the first page, so that a coordinator may live below
    any path.
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
    """A page in one file, which asks nobody for anything and runs nothing."""
    style = Safe(f"<style>{style_sheet()}</style>")
    return _whole([*_head(title), style], [tag("main", body)], foot)


def style_sheet() -> str:
    """The style of all pages."""
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
