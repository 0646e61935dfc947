"""What a benchmark ran on, so that its numbers can be compared with others."""

from __future__ import annotations

import os
import platform


def machine() -> dict[str, str | int]:
    """Python version, platform, processor and number of cores."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a device, not a path of ours
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
