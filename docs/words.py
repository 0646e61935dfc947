"""Counts the words of the documentation, by page and in all, without generated reference.

Run it as `python docs/words.py`. Words outside of code blocks count, tables and footnotes too.
What commands print is left out: the pages on commands, configuration, HTTP API and the path of a
command, and tables of measurements, which stand between `<!-- measured -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
MOST, MOST_OF_A_PAGE = 30_000, 1_500
PRINTED = re.compile(r"^ *```.*?^ *```$|^<!-- measured -->.*?^<!-- end -->$", re.M | re.S)
GENERATED = {
    "reference/commands.md",
    "reference/configuration.md",
    "reference/http_api.md",
    "explanation/walks.md",
}


def counted() -> dict[str, int]:
    """Words of every page that is written by hand."""
    pages = {page.relative_to(HERE).as_posix(): page for page in sorted(HERE.rglob("*.md"))}
    return {
        name: len(PRINTED.sub("", page.read_text(encoding="utf-8")).split())
        for name, page in pages.items()
        if name not in GENERATED and not name.startswith(("_build/", "gallery/"))
    }


if __name__ == "__main__":
    found = counted()
    for name, words in sorted(found.items(), key=lambda item: item[1]):
        print(f"{words:6,}  {name}{'  too long' if words > MOST_OF_A_PAGE else ''}")
    total = sum(found.values())
    print(f"{total:6,}  words of {MOST:,}")
    sys.exit(total > MOST or max(found.values()) > MOST_OF_A_PAGE)
