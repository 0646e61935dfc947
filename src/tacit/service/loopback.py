"""Who is on this machine is asked directly, whatever proxy the environment names for others."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

NEARBY: Mapping[str, None] = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))
"""For `mounts` of httpx's clients."""


def on_this_machine(url: str) -> bool:
    """Whether what is sent to this address never leaves the machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
