"""Runs every mutant against the tests that should catch it, two at a time.

    python -m tests.mutants [--only TEXT] [--workers 2] [--list] [--fresh]

A mutant is a copy of the package with one change. The tests of its target are first run on an
unchanged copy, then on the mutant, and must fail there. Results are kept in `.mutants.json` and are
used again as long as neither the package nor the tests change, so an interrupted run goes on;
afterwards the test that noticed a mutant is tried on it before all others.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import queue
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import EQUIVALENT, TARGETS, Target
from tests.mutants.operators import HELPERS, variants
from tests.mutants.running import HANGS, ROOT, Runner

PACKAGE = ROOT / "src" / "tacit"
KEPT = ROOT / ".mutants.json"
CAUGHT = (1, 2)  # pytest: a test failed, or a module of tests could not even be loaded


@dataclass(frozen=True)
class Mutant:
    """One change: `source` is the whole changed module."""

    name: str
    path: str
    source: str
    tests: tuple[str, ...]


def mutants(targets: Iterable[Target]) -> Iterator[Mutant]:
    """All of them; a target that no longer exists, or that nothing can be done to, is an error."""
    seen: dict[str, int] = {}
    for target in targets:
        text = (PACKAGE / target.path).read_text(encoding="utf-8")
        function = find(ast.parse(text), target)
        ways = [list(variants(function, rewrite)) for rewrite in target.how]
        made = [(label, node) for way in ways for label, node in way if target.takes(label)]
        if not made or not all(ways):
            place = ways.index([]) if [] in ways else 0
            sys.exit(
                f"{target.path}: {target.function} offers operator {place + 1} nothing to break: "
                "name another"
            )
        for label, node in made:
            name = f"{target.path}: {target.function}: {label}"
            seen[name] = seen.get(name, 0) + 1
            numbered = name if seen[name] == 1 else f"{name} ({seen[name]})"
            source = replaced(text, function, node)
            compile(source, target.path, "exec")
            yield Mutant(numbered, target.path, source, target.tests)


def find(tree: ast.AST, target: Target) -> ast.stmt:
    """The function of this dotted name."""
    node: ast.AST = tree
    for part in target.function.split("."):
        inside = [
            child for child in getattr(node, "body", ()) if getattr(child, "name", "") == part
        ]
        if not inside:
            sys.exit(
                f"{target.path} has no {target.function}: it was renamed, so rename the target"
            )
        node = inside[-1]  # overloads come before the function itself
    assert isinstance(node, ast.stmt)
    return node


def replaced(text: str, function: ast.stmt, node: ast.AST) -> str:
    """The module with the function replaced, and what it may call appended."""
    lines = text.splitlines()
    decorators = getattr(function, "decorator_list", [])
    first = min([function.lineno, *(one.lineno for one in decorators)]) - 1
    new = textwrap.indent(ast.unparse(node), " " * function.col_offset).splitlines()
    assert function.end_lineno is not None
    return "\n".join([*lines[:first], *new, *lines[function.end_lineno :], HELPERS])


class Bench:
    """Copies of the package to break, each with a process that runs tests on it."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.free: queue.Queue[tuple[Path, Runner]] = queue.Queue()
        self.edits = itertools.count(1)
        for k in range(workers):
            copy = folder / str(k)
            shutil.copytree(PACKAGE, copy / "tacit", ignore=shutil.ignore_patterns("__pycache__"))
            self.free.put((copy, Runner(copy)))

    def end(self) -> None:
        """Ends the processes of workers that are free."""
        while not self.free.empty():
            self.free.get()[1].end()

    def sound(self, tests: tuple[str, ...]) -> str:
        """Nothing, or why these tests say nothing about mutants."""
        copy, runner = self.free.get()
        try:
            code, first = runner.run(tests)
            return "" if code == 0 else f"fails without any change: {first} (pytest says {code})"
        finally:
            self.free.put((copy, runner))

    def attack(self, mutant: Mutant, before: str) -> tuple[str, str]:
        """'caught', 'hangs' or 'SURVIVES', and the test that noticed: the one that did `before` is
        asked first.
        """
        copy, runner = self.free.get()
        module = copy / "tacit" / mutant.path
        try:
            self.write(module, mutant.source)
            code, first = runner.run((before,)) if before else (0, "")
            if code not in CAUGHT:
                code, first = runner.run(mutant.tests)
        finally:
            self.write(module, (PACKAGE / mutant.path).read_text(encoding="utf-8"))
            self.free.put((copy, runner))
        if code not in (0, HANGS, *CAUGHT):
            raise RuntimeError(f"pytest ended with {code} on {mutant.name}")
        return {0: "SURVIVES", HANGS: "hangs"}.get(code, "caught"), first

    def write(self, module: Path, source: str) -> None:
        """Every time with another date, by which Python knows that compiled code is old."""
        module.write_text(source, encoding="utf-8")
        date = 1_000_000_000 + 10 * next(self.edits)
        os.utime(module, (date, date))


def digest() -> str:
    """Of everything that a result rests on."""
    whole = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        whole.update(path.read_bytes())
    return whole.hexdigest()


@dataclass
class Results:
    """What became of mutants on this very tree, and which test noticed each, on whatever tree."""

    found: dict[str, str]
    noticed: dict[str, str]

    @staticmethod
    def kept(fresh: bool) -> Results:
        """Those of the last run: what became of them only if nothing has changed since."""
        if fresh or not KEPT.exists():
            return Results({}, {})
        data = json.loads(KEPT.read_text(encoding="utf-8"))
        return Results(data["found"] if data["tree"] == digest() else {}, data["noticed"])

    def keep(self, tree: str) -> None:
        """Writes them down."""
        data = {"tree": tree, "found": self.found, "noticed": self.noticed}
        KEPT.write_text(json.dumps(data, indent=1), encoding="utf-8")


def work(chosen: list[Mutant], results: Results, workers: int) -> None:
    """Fills in `results`; whatever happens, what was found out is kept."""
    tree, started = digest(), time.monotonic()
    left = [mutant for mutant in chosen if mutant.name not in results.found]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder), workers)
        pool = ThreadPoolExecutor(workers)
        try:
            sets = list(dict.fromkeys(mutant.tests for mutant in left))
            for tests, reason in zip(sets, pool.map(bench.sound, sets), strict=True):
                if reason:
                    sys.exit(f"{' '.join(tests)} {reason}")
            waiting = {
                pool.submit(bench.attack, mutant, results.noticed.get(mutant.name, "")): mutant.name
                for mutant in left
            }
            for future in as_completed(waiting):
                name = waiting[future]
                results.found[name], first = future.result()
                if first:
                    results.noticed[name] = first
                passed = time.monotonic() - started
                print(f"{passed:6.0f} s  {results.found[name]:8}  {name}", flush=True)
                results.keep(tree)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            bench.end()


def table(chosen: list[Mutant], results: dict[str, str]) -> int:
    """Prints what became of them by module, and each survivor; how many have no excuse."""
    print(f"\n{'module':42}{'mutants':>8}{'caught':>8}{'equivalent':>12}{'survive':>9}")
    total = [0, 0, 0, 0]
    for path in dict.fromkeys(mutant.path for mutant in chosen):
        found = [(m.name, results.get(m.name)) for m in chosen if m.path == path]
        survivors = {name for name, result in found if result == "SURVIVES"}
        excused = survivors & set(EQUIVALENT)
        row = [len(found), sum(r in ("caught", "hangs") for _, r in found)]
        row += [len(excused), len(survivors - excused)]
        total = [a + b for a, b in zip(total, row, strict=True)]
        print(f"{path:42}{row[0]:8}{row[1]:8}{row[2]:12}{row[3]:9}")
    print(f"{'all':42}{total[0]:8}{total[1]:8}{total[2]:12}{total[3]:9}\n")
    for mutant in chosen:
        if results.get(mutant.name) == "SURVIVES":
            print(f"{EQUIVALENT.get(mutant.name, 'SURVIVES')}: {mutant.name}")
    for name in sorted(set(EQUIVALENT) & {n for n, r in results.items() if r != "SURVIVES"}):
        print(f"listed as equivalent, but caught: {name}")
    return total[3] + (total[0] - total[1] - total[2] - total[3])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="name them, run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget an interrupted run")
    options = parser.parse_args()
    every = list(mutants(TARGETS))
    if gone := set(EQUIVALENT) - {mutant.name for mutant in every}:
        sys.exit("listed as equivalent, but no longer made: " + "; ".join(sorted(gone)))
    chosen = [mutant for mutant in every if options.only in mutant.name]
    if options.list:
        print("\n".join(mutant.name for mutant in chosen), f"\n{len(chosen)} mutants")
        return 0
    results = Results.kept(options.fresh)
    try:
        work(chosen, results, options.workers)
    except KeyboardInterrupt:
        table(chosen, results.found)
        print("interrupted; the same command goes on where this one stopped")
        return 130
    return int(table(chosen, results.found) > 0)


if __name__ == "__main__":
    sys.exit(main())
