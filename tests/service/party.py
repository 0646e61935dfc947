"""A party's process with test sources: `python -m tests.service.party --config …`.

The noise follows from a seed, by round and role, so that sums can be recomputed. The clock is as
far ahead as a file says. No configuration can do this.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.aggregation.aggregator_context import Draw
from tacit.service.config import load
from tacit.service.http.serve import serve


def sources(role: str, seed: int) -> dict[str, Any]:
    """Noise from -3 to 3 by round."""

    def noise(identity: bytes) -> Draw:
        said = f"{seed}/{role}/noise/{identity.hex()}"
        number = int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "big")
        return lambda _scale: number % 7 - 3

    return {"noise": noise}


def clock(path: Path) -> Callable[[], float]:
    """The machine's clock plus the offset in the file beside the configuration."""

    def now() -> float:
        ahead = path.with_name("ahead")
        return time.time() + (float(ahead.read_text()) if ahead.exists() else 0.0)

    return now


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--config", type=Path, required=True)
    words.add_argument("--seed", type=int)
    said = words.parse_args()
    run(said.config, said.seed)


def run(path: Path, seed: int | None) -> None:
    """Serves the party of this configuration."""
    config = load(path)
    chosen = {} if seed is None else {"clock": clock(path)} | sources(config.role, seed)
    serve(config, **chosen)


if __name__ == "__main__":
    main()
