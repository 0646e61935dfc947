"""Runs every benchmark in this folder, prints one table, and writes `results.json` next to it.

This is `make bench`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"machine", "collect"}


def scripts() -> dict[str, Path]:
    """The benchmarks by name."""
    return {
        path.stem: path for path in sorted(HERE.glob("*.py")) if path.stem not in NOT_BENCHMARKS
    }


def run(path: Path) -> dict[str, Any] | str:
    """What a script printed, or in one line why there is nothing."""
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return f"exit code {done.returncode}: {last[0]}"
    try:
        report: dict[str, Any] = json.loads(done.stdout)
        for row in report["rows"]:
            row["name"], row["value"], row["unit"]
        report["machine"]
    except (ValueError, KeyError, TypeError) as error:
        return f"did not print one JSON object with rows and machine: {error!r}"
    return report


def main(arguments: list[str] | None = None) -> int:
    """0 if every benchmark ran, 1 if one failed, 2 if there is none of that name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="run this benchmark only; may be repeated"
    )
    only = parser.parse_args(arguments).only
    console = Console()
    available = scripts()
    unknown = sorted(set(only or ()) - set(available))
    if unknown:
        print(
            f"no benchmark named {', '.join(unknown)}; there are: {', '.join(available)}",
            file=sys.stderr,
        )
        return 2

    table = Table("benchmark", "measured", "value", "unit")
    table.columns[2].justify = "right"
    results: dict[str, Any] = {"rows": [], "failures": {}}
    for name, path in available.items():
        if only and name not in only:
            continue
        with console.status(f"running {name}"):
            report = run(path)
        if isinstance(report, str):
            results["failures"][name] = report
            continue
        results["machine"] = report["machine"]
        for row in report["rows"]:
            results["rows"].append({"benchmark": name, **row})
            table.add_row(name, str(row["name"]), _readable(row["value"]), str(row["unit"]))

    console.print(table)
    for name, failure in results["failures"].items():
        print(f"{name} failed: {failure}", file=sys.stderr)
    (HERE / "results.json").write_text(
        json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return 1 if results["failures"] else 0


def _readable(value: object) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
