"""Bypass HTTP proxies for loopback addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

NEARBY: Mapping[str, None] = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))
"""Value for the `mounts` argument of httpx clients."""


def is_loopback(url: str) -> bool:
    """Whether the URL is a loopback address, so that requests never leave the machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
