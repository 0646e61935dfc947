"""Recomputes the numbers and pictures of README and documentation, and fails where a page differs.

`make claims` runs everything (about an hour on two cores), `python docs/claims.py --quick` what
takes seconds, `python docs/claims.py --list` prints the claims. Four kinds are recomputed:

- commands whose output a page shows: every shown line must be printed;
- numbers of `claims.toml`: a page says one, a command prints it;
- pages that scripts print;
- pictures that scripts draw, compared pixel by pixel; a picture that differs is left as drawn anew.

Commands with the randomness of the operating system (live experiments, audits) are left out: their
output differs from run to run. Timings are left out; `make bench` prints those of your machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = ROOT / "docs"
QUICK = ("calibrate", "privacy", "compose", "amplify", "algorithms", "corrections")
COMPARED = (*QUICK, "plan", "simulate", "compare", "demo noise")
PRINTED = ("explanation/walks", "reference/configuration", "reference/http_api")
DRAWN = {
    "report.py": ("report.png",),
    "poisoning.py": ("poisoning.png",),
    "own_figure.py": ("own-figure.png",),
    "trust.py": tuple(
        f"trust-{name}.svg"
        for name in (
            "central",
            "two-servers",
            "verified",
            "secure-aggregation",
            "shuffler",
            "local",
        )
    ),
    "exhibits.py": (
        "exhibit-attack.png",
        "exhibit-schedules.png",
        "zc24-super.png",
        "zc24-budgets.png",
    ),
}
# OpenBLAS multiplies matrices in another order on every kind of processor, which changes the last
# bit of a sum and from there decisions: recomputed with the instructions that all have
ARITHMETIC = {"OPENBLAS_CORETYPE": "Haswell"}
TOLERANCE = 2.0  # mean difference of a pixel, of 255: fonts differ a little between machines


@dataclass(frozen=True)
class Claim:
    """Something a page says, and a check that returns what is wrong with it, or an empty text."""

    page: str
    about: str
    quick: bool
    check: Callable[[], str]


def printed_by(command: str) -> str:
    """What a command of tacit prints, as a page would show it."""
    words = shlex.split(command)
    start = [sys.executable, "-m", *words] if words[0] == "tacit" else [sys.executable, *words[1:]]
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run(
            start,
            cwd=directory,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **ARITHMETIC},
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode:
        raise RuntimeError(f"exit code {ended.returncode}: {ended.stderr.strip()}")
    return ended.stdout


def collapsed(text: str) -> str:
    return " ".join(text.split())


def lines_shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands of a page's console blocks, each with the lines shown after it."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^ *```console\n(.*?)^ *```$", text, re.M | re.S):
        command, shown = "", list[str]()
        for line in [*map(str.strip, block.splitlines()), "$ "]:
            if line.startswith("$"):
                if command and shown:
                    yield command, shown
                command, shown = line[1:].partition(" #")[0].strip(), []
            elif line.strip(" .…"):
                shown.append(line)


def without_timings(lines: list[str]) -> list[str]:
    """The lines, without seconds: rows of that name, and columns of tables."""
    kept, column, width = list[str](), -1, 0
    for line in lines:
        cells = re.split(r" {2,}", line.strip())
        if cells[0] == "seconds":
            continue
        if "seconds" in cells:
            column, width = cells.index("seconds"), len(cells)
        if len(cells) == width:
            del cells[column]
        kept.append(collapsed(" ".join(cells)))
    return kept


def missing_lines(command: str, shown: list[str]) -> str:
    """The first shown line that the command does not print."""
    found = without_timings(printed_by(command).splitlines())
    for line in without_timings(shown):
        if line not in found:
            return f"is not printed: {line}"
    return ""


def pages() -> list[Path]:
    found = [ROOT / "README.md", *HERE.rglob("*.md")]
    return sorted(page for page in found if not {"_build", "gallery"} & set(page.parts))


def shown_claims() -> Iterator[Claim]:
    """Commands whose output a page shows."""
    for page in pages():
        for command, shown in lines_shown(page):
            name = command.removeprefix("tacit ")
            if command.startswith("tacit ") and name.startswith(COMPARED):
                yield Claim(
                    str(page.relative_to(ROOT)),
                    command,
                    name.startswith(QUICK),
                    lambda command=command, shown=shown: missing_lines(command, shown),
                )


def number_claims() -> Iterator[Claim]:
    """The numbers of claims.toml."""
    for entry in tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]:
        yield Claim(
            entry["page"],
            f"{entry['says']}: {entry['command']}",
            not entry.get("minutes"),
            lambda entry=entry: wrong_number(entry),
        )


def wrong_number(entry: dict[str, str]) -> str:
    """Whether the page says it and the command prints it."""
    page = collapsed((ROOT / entry["page"]).read_text(encoding="utf-8"))
    if collapsed(entry["says"]) not in page:
        return f"the page does not say {entry['says']!r}"
    out = printed_by(entry["command"])
    if "prints" in entry:
        return "" if entry["prints"] in collapsed(out) else f"does not print {entry['prints']!r}"
    value = json.loads(out)
    for part in entry["key"].split("."):
        value = value[int(part)] if part.isdigit() else value[part]
    digits = len(entry["value"].partition(".")[2])
    found = f"{float(value):.{digits}f}"
    return "" if found == entry["value"] else f"is {found}, the page has {entry['value']}"


def page_claims() -> Iterator[Claim]:
    """Pages that scripts print."""
    for name in PRINTED:
        yield Claim(f"docs/{name}.md", "printed by its script", True, lambda n=name: reprinted(n))


def reprinted(name: str) -> str:
    page = (HERE / f"{name}.md").read_text(encoding="utf-8")
    return "" if runpy.run_path(str(HERE / f"{name}.py"))["page"]() == page else "make reference"


def picture_claims() -> Iterator[Claim]:
    """Pictures that scripts draw."""
    for script, names in DRAWN.items():
        about = ", ".join(names)
        quick = script == "trust.py"
        yield Claim(
            "docs/pictures", about, quick, lambda s=script, n=names: drawn_differently(s, n)
        )


def drawn_differently(script: str, names: tuple[str, ...]) -> str:
    """Draw anew, in place; the names of pictures that differ."""
    directory = HERE / "pictures"
    before = {name: (directory / name).read_bytes() for name in names}
    subprocess.run([sys.executable, str(directory / script)], check=True, capture_output=True)
    differ = []
    for name in names:
        if difference(before[name], (directory / name).read_bytes()) > TOLERANCE:
            differ.append(name)
        else:
            (directory / name).write_bytes(before[name])
    return f"{', '.join(differ)} differ; drawn anew" if differ else ""


def difference(one: bytes, other: bytes) -> float:
    """Mean difference of two pictures' pixels, of 255; 255 if sizes differ."""
    if one == other:
        return 0.0
    if b"<svg" in one[:2000]:
        return 255.0
    import io

    import numpy as np
    from PIL import Image

    first, second = (
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=float)
        for data in (one, other)
    )
    return 255.0 if first.shape != second.shape else float(np.abs(first - second).mean())


def claims() -> list[Claim]:
    """All claims, quick ones first."""
    found = [*shown_claims(), *number_claims(), *page_claims(), *picture_claims()]
    return sorted(found, key=lambda claim: not claim.quick)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Recompute numbers and pictures of the pages.")
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    parser.add_argument("--list", action="store_true", help="print the claims and stop")
    parser.add_argument("--only", default="", help="only claims whose page or text contains this")
    asked = parser.parse_args(words)
    chosen = [
        claim
        for claim in claims()
        if (claim.quick or not asked.quick) and asked.only in f"{claim.page} {claim.about}"
    ]
    wrong = 0
    for claim in chosen:
        if asked.list:
            print(claim.page, claim.about, "(quick)" if claim.quick else "", sep="  ")
            continue
        began = time.monotonic()
        try:
            problem = claim.check()
        except (RuntimeError, subprocess.CalledProcessError, KeyError, ValueError) as error:
            problem = str(error)
        wrong += bool(problem)
        verdict = f"DIFFERS: {problem}" if problem else "holds"
        took = time.monotonic() - began
        print(f"{claim.page}: {claim.about[:90]}: {verdict} ({took:.0f} s)", flush=True)
    if not asked.list:
        print(f"{len(chosen)} claims, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
