"""Builds dist/: wheel, source distribution, their SHA-256 hashes, and a bill of materials.

Run it as `make dist`. The same commit gives the same bytes: times are those of the last commit. The
bill of materials (CycloneDX 1.6, JSON) lists what the environment of the tests has, with versions
and licences.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def last_commit() -> str:
    """Seconds since 1970 of the last commit; a fixed time outside a repository."""
    ended = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return ended.stdout.strip() or "1767225600"


def build(into: Path) -> list[Path]:
    """Wheel and source distribution."""
    shutil.rmtree(into, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(into)],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": last_commit()},
        check=True,
    )
    return sorted(into.iterdir())


def component(one: metadata.Distribution) -> dict[str, Any]:
    """One installed package."""
    name = re.sub(r"[-_.]+", "-", one.name).lower()
    licence = one.metadata.get("License-Expression")
    return {
        "type": "library",
        "name": name,
        "version": one.version,
        "purl": f"pkg:pypi/{name}@{one.version}",
        **({"licenses": [{"expression": licence}]} if licence else {}),
    }


def materials(version: str) -> dict[str, Any]:
    """The bill of materials."""
    installed = {one.name.lower(): one for one in metadata.distributions() if one.name != "tacit"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "library", "name": "tacit", "version": version},
        },
        "components": [component(installed[name]) for name in sorted(installed)],
    }


def main() -> None:
    files = build(DIST)
    version = metadata.version("tacit")
    sbom = DIST / f"tacit-{version}.cdx.json"
    sbom.write_text(json.dumps(materials(version), indent=1) + "\n", encoding="utf-8")
    hashes = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in [*files, sbom]
    ]
    (DIST / "SHA256SUMS").write_text("\n".join(hashes) + "\n", encoding="utf-8")
    print("\n".join(hashes))


if __name__ == "__main__":
    main()
