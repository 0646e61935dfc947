"""HTML pages of a live experiment, for experimenters and participants.

Functions render plain data by templates to HTML that is readable without a script; templates escape
all text. The package has no HTTP code, so the demonstration's report uses the same functions.
"""

from __future__ import annotations

from importlib.resources import files

STATIC = files("tacit.service") / "static"


def style_sheet() -> str:
    """The style sheet of all pages."""
    return (STATIC / "page.css").read_text(encoding="utf-8")
