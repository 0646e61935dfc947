"""Run every mutant against the tests that should detect it, two at a time.

    python -m tests.mutants [--only PATTERN] [--workers 2] [--list] [--fresh]

A mutant is a copy of the package with one change. One of the tests of its target must fail on it,
and pass on the unchanged copy. Results are kept in `.mutants.json` and are used again as long as
neither the package nor the tests change, so an interrupted run goes on. `noticed.json` has the test
that noticed each mutant last: it is asked first, which makes the whole run many times faster.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import itertools
import json
import os
import queue
import re
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.mutants.catalogue import EQUIVALENT, TARGETS, Target
from tests.mutants.operators import HELPERS, variants
from tests.mutants.running import HANGS, ROOT, Broken, Run, Runner, named

PACKAGE = ROOT / "src" / "tacit"
KEPT = ROOT / ".mutants.json"
NOTICED = Path(__file__).with_name("noticed.json")
MEMORY = Path("/dev/shm")  # where there is one, copies and databases of tests are written there


@dataclass(frozen=True)
class Mutant:
    """One change: `source` is the whole changed module."""

    name: str
    path: str
    function: str
    line: int
    source: str
    tests: tuple[str, ...]


def mutants(targets: Iterable[Target]) -> Iterator[Mutant]:
    """All of them; a target that no longer exists, or that nothing can be done to, is an error."""
    seen: dict[str, int] = {}
    for target in targets:
        text, tree = parsed(target.path)
        function = find(tree, target)
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
            assert isinstance(node, ast.stmt)
            compile(ast.Module([node], []), target.path, "exec")
            first = first_line(function)
            yield Mutant(numbered, target.path, target.function, first, source, target.tests)


@cache
def parsed(path: str) -> tuple[str, ast.Module]:
    """A module of the package, as text and as a tree; variants are made of copies."""
    text = (PACKAGE / path).read_text(encoding="utf-8")
    return text, ast.parse(text)


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


def first_line(function: ast.stmt) -> int:
    """With its decorators, as Python counts."""
    decorators: list[ast.expr] = getattr(function, "decorator_list", [])
    return min([function.lineno, *(one.lineno for one in decorators)])


def replaced(text: str, function: ast.stmt, node: ast.AST) -> str:
    """The module with the function replaced, and what it may call appended."""
    lines = text.splitlines()
    first = first_line(function) - 1
    new = textwrap.indent(ast.unparse(node), " " * function.col_offset).splitlines()
    assert function.end_lineno is not None
    return "\n".join([*lines[:first], *new, *lines[function.end_lineno :], HELPERS])


@dataclass
class Known:
    """What runs have shown of tests: seconds of each, and whether it passes without any change."""

    seconds: dict[str, float] = field(default_factory=dict)
    sound: dict[str, bool] = field(default_factory=dict)


@dataclass
class Results:
    """Results of mutants on this tree, and the test that detected each, on any tree."""

    found: dict[str, str]
    noticed: dict[str, str]

    @staticmethod
    def kept(tree: str, fresh: bool) -> Results:
        """Results of the last run if nothing has changed since; `noticed` only orders the tests."""
        noticed = json.loads(NOTICED.read_text(encoding="utf-8")) if NOTICED.exists() else {}
        if fresh or not KEPT.exists():
            return Results({}, noticed)
        data = json.loads(KEPT.read_text(encoding="utf-8"))
        return Results(data["found"] if data["tree"] == tree else {}, noticed)

    def keep(self, tree: str) -> None:
        """Writes them down."""
        data = {"tree": tree, "found": self.found}
        KEPT.write_text(json.dumps(data, indent=1), encoding="utf-8")
        known = dict(sorted(self.noticed.items()))
        text = json.dumps(known, indent=1, ensure_ascii=False)
        NOTICED.write_text(text + "\n", encoding="utf-8")


class Bench:
    """A copy of the package to break, with a process that runs tests on it."""

    def __init__(self, folder: Path, mutants: list[Mutant], known: Known) -> None:
        self._package = folder / "tacit"
        shutil.copytree(PACKAGE, self._package, ignore=shutil.ignore_patterns("__pycache__"))
        self._runner = Runner(folder, list(dict.fromkeys(t for m in mutants for t in m.tests)))
        self._known = known
        self._edits = itertools.count(1)

    def end(self) -> None:
        """Ends the process."""
        self._runner.end()

    def attack(self, mutant: Mutant, noticed: dict[str, str]) -> tuple[str, str]:
        """'caught', 'hangs' or 'SURVIVES', and the test that noticed.

        The one that did before is asked first, then those that noticed others like it, then the
        quick ones. Whichever fails must fail alone, too, and pass without the change.
        """
        module = self._package / mutant.path
        self._write(module, mutant.source)
        broken = Broken(str(module), mutant.function, mutant.line)
        try:
            before = noticed.get(mutant.name, "")
            others = self._order(mutant, noticed)
            asked = [[before], others] if before in self._runner.tests else [others]
            for tests in asked:
                found = self._first(tests, broken)
                if found is not None:
                    return found
            failed = "" if mutant.name in EQUIVALENT else self._runner.afresh(mutant.tests)
            if failed in self._runner.tests and not self._sound(failed):
                failed = ""
        finally:
            self._write(module, (PACKAGE / mutant.path).read_text(encoding="utf-8"))
        if failed == HANGS:
            return HANGS, ""
        return ("caught" if failed else "SURVIVES"), failed

    def _first(self, tests: list[str], broken: Broken) -> tuple[str, str] | None:
        """The message of the first of these tests that fails alone; None if none does."""
        left = [test for test in tests if self._known.sound.get(test, True)]
        while left:
            run = self._run(left, broken)
            if run is None or not run.failed:
                return None
            if self._sound(run.failed):
                alone = run if len(run.took) <= 1 else self._run([run.failed], broken)
                if alone is not None and alone.failed:
                    return (HANGS if alone.hangs else "caught"), run.failed
            left = left[left.index(run.failed) + 1 :]
        return None

    def _run(self, tests: list[str], broken: Broken) -> Run | None:
        known = self._known.seconds
        run = self._runner.run(tests, broken, [20 + 5 * known.get(test, 20.0) for test in tests])
        if run is not None:
            passed = {test: took for test, took in run.took.items() if test != run.failed}
            known.update({test: min(took, known.get(test, took)) for test, took in passed.items()})
        return run

    def _sound(self, test: str) -> bool:
        """Whether a test passes on the package as it is; the copy is broken on disk meanwhile."""
        if test not in self._known.sound:
            with self._as_it_is():
                run = self._run([test], Broken())
            assert run is not None
            self._known.sound[test] = not run.failed
        return self._known.sound[test]

    @contextlib.contextmanager
    def _as_it_is(self) -> Iterator[None]:
        """Puts the broken module aside."""
        module, source = self._broken
        self._write(module, (PACKAGE / module.relative_to(self._package)).read_text("utf-8"))
        try:
            yield
        finally:
            self._write(module, source)

    def _order(self, mutant: Mutant, noticed: dict[str, str]) -> list[str]:
        function, module = f"{mutant.path}: {mutant.function}: ", f"{mutant.path}: "
        alike = {test for name, test in noticed.items() if name.startswith(function)}
        near = {test for name, test in noticed.items() if name.startswith(module)}
        tests = [t for t in self._runner.tests if any(named(t, name) for name in mutant.tests)]

        def place(test: str) -> tuple[bool, bool, float]:
            return test not in alike, test not in near, self._known.seconds.get(test, 1.0)

        return sorted(tests, key=place)

    def _write(self, module: Path, source: str) -> None:
        """Every time with another date, by which Python knows that compiled code is old."""
        self._broken = module, source
        module.write_text(source, encoding="utf-8")
        date = 1_000_000_000 + 10 * next(self._edits)
        os.utime(module, (date, date))


def digest() -> str:
    """Of everything that a result rests on."""
    whole = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def work(chosen: list[Mutant], results: Results, tree: str, workers: int) -> Known:
    """Run mutants, store each result in `results` at once, and report test times."""
    started = time.monotonic()
    left = [mutant for mutant in chosen if mutant.name not in results.found]
    known = Known()
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="mutants-", dir=memory) as folder,
        ThreadPoolExecutor(workers) as pool,
        contextlib.ExitStack() as stack,
    ):
        free: queue.Queue[Bench] = queue.Queue()
        for k in range(min(workers, len(left))):
            free.put(Bench(Path(folder) / str(k), left, known))
            stack.callback(free.queue[-1].end)

        def attack(mutant: Mutant) -> tuple[str, str]:
            bench = free.get()
            try:
                return bench.attack(mutant, dict(results.noticed))
            finally:
                free.put(bench)

        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        waiting = {pool.submit(attack, mutant): mutant.name for mutant in left}
        for future in as_completed(waiting):
            name = waiting[future]
            results.found[name], first = future.result()
            if first:
                results.noticed[name] = first
            passed = time.monotonic() - started
            print(f"{passed:6.0f} s  {results.found[name]:8}  {name}", flush=True)
            results.keep(tree)
    return known


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
    parser.add_argument("--only", default="", help="mutants whose name matches this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="name them, run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget an interrupted run")
    options = parser.parse_args()
    every = list(mutants(TARGETS))
    if gone := set(EQUIVALENT) - {mutant.name for mutant in every}:
        sys.exit("listed as equivalent, but no longer made: " + "; ".join(sorted(gone)))
    chosen = [mutant for mutant in every if re.search(options.only, mutant.name)]
    if options.list:
        print("\n".join(mutant.name for mutant in chosen), f"\n{len(chosen)} mutants")
        return 0
    tree = digest()
    results = Results.kept(tree, options.fresh)
    for name in set(results.noticed) - {mutant.name for mutant in every}:
        del results.noticed[name]
    try:
        known = work(chosen, results, tree, options.workers)
    except KeyboardInterrupt:
        table(chosen, results.found)
        print("interrupted; the same command goes on where this one stopped")
        return 130
    failing = sorted(test for test, passes in known.sound.items() if not passes)
    for test in failing:
        print(f"fails without any change, so it noticed nothing: {test}")
    return int(table(chosen, results.found) > 0 or bool(failing))


if __name__ == "__main__":
    sys.exit(main())
