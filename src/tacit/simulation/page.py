"""HTML page and style of a report: the colours of the service's pages, light and dark,
responsive.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

COLOURS = tuple(f"var(--o{place})" for place in range(7))
"""After Okabe and Ito: distinguishable with colour blindness."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b2227; --soft: #566069; --line: #dcdfe1;
  --ground: #fbfbf9; --accent: #0b5a7a; --o0: #0068a8; --o1: #cf5500; --o2: #00805f;
  --o3: #b04f88; --o4: #8f6a00; --o5: #3a8fc4; --o6: #6d747a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9eb; --soft: #a2acb4; --line: #333b41;
  --ground: #12171a; --accent: #7cc3e0; --o0: #4d9fe0; --o1: #ee8137; --o2: #35b88f;
  --o3: #dd8fbd; --o4: #e0b03a; --o5: #9bd3f5; --o6: #9aa1a7; } }
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
ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
p.note { color: var(--soft); font-size: .95rem; }
"""


def page(title: str, parts: Sequence[str], style: str = "", script: str = "") -> str:
    """A whole HTML page in the common style, with additional style and script."""
    added = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>"
        + "\n".join(parts)
        + f"</main>{added}</body></html>\n"
    )
