"""Who is on this machine is asked directly, whatever proxy the environment names for others."""

from __future__ import annotations

from collections.abc import Mapping

NEARBY: Mapping[str, None] = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))
"""For `mounts` of httpx's clients."""
