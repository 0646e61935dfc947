"""Paths of the vectors that the browser device is tested against."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
COPY = Path(os.environ.get("TACIT_BROWSER_COPY", ROOT))
"""Where Node reads the device; mutation tests name a broken copy."""

CLIENT = COPY / "clients" / "js"
RUNNER = COPY / "tests" / "browser" / "node.mjs"


def known() -> dict[str, Any]:
    """All vectors, as `failures` of check.mjs takes them."""
    shared = ROOT / "tests" / "aggregation" / "vectors"
    files = {
        "device": CLIENT / "vectors" / "device.json",
        "terms": ROOT / "tests" / "terms" / "vectors" / "terms.json",
        "primitives": shared / "primitives.json",
        "plain": shared / "two-servers-x25519_aes.json",
        "seeded": shared / "two-servers-seed.json",
        "proven": shared / "two-servers-verified.json",
        "contextual": CLIENT / "vectors" / "contextual.json",
    }
    read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    read["twoServers"] = [read.pop(name) for name in ("plain", "seeded", "proven")]
    return read
