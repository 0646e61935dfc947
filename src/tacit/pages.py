"""How tacit's own HTML pages look: one style, light and dark, for a desk and for a phone; colours,
and how a page begins and ends. Pages are self-contained: no request leaves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""Okabe and Ito's, which people with colour blindness tell apart; an option keeps its own."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2126; --soft: #5b6570; --line: #d9dee3;
  --ground: #fcfcfb; --card: #ffffff; --accent: #00507d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaec; --soft: #a3adb7; --line: #343b42;
  --ground: #14181b; --card: #1b2024; --accent: #7cc4ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 3rem 1.25rem 5rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.6 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 1.1rem; font-weight: 600; color: var(--soft); margin: 0 0 2rem; }
h2 { font-size: 1.05rem; margin: 3rem 0 .75rem; }
dl.first dt { color: var(--soft); margin-top: 1.75rem; }
dl.first dd { margin: .1rem 0 0; font-size: 1.3rem; line-height: 1.4; }
dl.first dd small { display: block; font-size: .95rem; color: var(--soft); margin-top: .35rem; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { text-align: right; padding: .4rem .5rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 500; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.scroll { overflow-x: auto; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin-right: .5em; vertical-align: -.05em; }
ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
p.note { color: var(--soft); font-size: .95rem; }
"""


def page(title: str, parts: Sequence[str], style: str = "", script: str = "") -> str:
    """A whole page, in the house's style and what it adds to that."""
    added = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>"
        + "\n".join(parts)
        + f"</main>{added}</body></html>\n"
    )
