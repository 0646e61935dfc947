"""Runs every mutant against the tests that should catch it, two at a time.

    python -m tests.mutants [--only TEXT] [--workers 2] [--list] [--fresh]

A mutant is a copy of the package with one change. The tests of its target are first run on an
unchanged copy, then on the mutant, and must fail there. Results are kept in `.mutants.json` and are
used again as long as neither the package nor the tests change, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import EQUIVALENT, TARGETS, Target
from tests.mutants.operators import HELPERS, variants

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tacit"
KEPT = ROOT / ".mutants.json"
LIMIT = 150.0  # seconds; a mutant that hangs has been noticed
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
        made = [found for rewrite in target.how for found in variants(function, rewrite)]
        made = [(label, node) for label, node in made if target.takes(label)]
        if not made:
            sys.exit(f"{target.path}: {target.function} offers nothing to break: name another")
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


def run(copy: Path, tests: tuple[str, ...]) -> int:
    """pytest's exit code on a copy of the package; -1 where it took too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [*command, *tests],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Bench:
    """Copies of the package to break, one for each worker."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.free: queue.Queue[Path] = queue.Queue()
        for k in range(workers):
            copy = folder / str(k)
            shutil.copytree(PACKAGE, copy / "tacit", ignore=shutil.ignore_patterns("__pycache__"))
            self.free.put(copy)

    def sound(self, tests: tuple[str, ...]) -> str:
        """Nothing, or why these tests say nothing about mutants."""
        copy = self.free.get()
        try:
            code = run(copy, tests)
            return "" if code == 0 else f"fails without any change (pytest says {code})"
        finally:
            self.free.put(copy)

    def attack(self, mutant: Mutant) -> str:
        """'caught', 'hangs' or 'SURVIVES'."""
        copy = self.free.get()
        module = copy / "tacit" / mutant.path
        try:
            module.write_text(mutant.source, encoding="utf-8")
            code = run(copy, mutant.tests)
        finally:
            shutil.copyfile(PACKAGE / mutant.path, module)
            self.free.put(copy)
        if code not in (0, -1, *CAUGHT):
            raise RuntimeError(f"pytest ended with {code} on {mutant.name}")
        return {0: "SURVIVES", -1: "hangs"}.get(code, "caught")


def digest() -> str:
    """Of everything that a result rests on."""
    whole = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def kept(fresh: bool) -> dict[str, str]:
    """Results of a run on this very tree that was interrupted."""
    if fresh or not KEPT.exists():
        return {}
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    return dict(data["results"]) if data["tree"] == digest() else {}


def work(chosen: list[Mutant], results: dict[str, str], workers: int) -> None:
    """Fills in `results`; whatever happens, what was found out is kept."""
    tree, started = digest(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder), workers)
        pool = ThreadPoolExecutor(workers)
        waiting: dict[Future[str], str] = {}
        try:
            for tests in dict.fromkeys(m.tests for m in chosen if m.name not in results):
                waiting[pool.submit(bench.sound, tests)] = " ".join(tests)
            for future, tests_ in waiting.items():
                if reason := future.result():
                    sys.exit(f"{tests_} {reason}")
            waiting = {
                pool.submit(bench.attack, mutant): mutant.name
                for mutant in chosen
                if mutant.name not in results
            }
            pending = set(waiting)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    name = waiting[future]
                    results[name] = future.result()
                    passed = time.monotonic() - started
                    print(f"{passed:6.0f} s  {results[name]:8}  {name}", flush=True)
                KEPT.write_text(json.dumps({"tree": tree, "results": results}), encoding="utf-8")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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
    results = kept(options.fresh)
    try:
        work(chosen, results, options.workers)
    except KeyboardInterrupt:
        table(chosen, results)
        print("interrupted; the same command goes on where this one stopped")
        return 130
    return int(table(chosen, results) > 0)


if __name__ == "__main__":
    sys.exit(main())
