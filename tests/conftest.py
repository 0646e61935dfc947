"""What all tests share: how property-based tests search."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: a busy machine is not a bug. Where changes are judged the search is the same every
# time; elsewhere it goes on looking.
settings.register_profile(
    "tacit",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("tacit")
