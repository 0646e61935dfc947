"""What all tests share: how property-based tests search, and where devices' draws come from."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.source import repeated

# Where changes are judged every run is the same: a sound change is not refused by chance. Elsewhere
# searches go on looking, and draws are the operating system's, at the false-alarm rates stated.
JUDGED = bool(os.environ.get("CI"))

# No deadline: a busy machine is not a bug.
settings.register_profile(
    "tacit",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=JUDGED,
)
settings.load_profile("tacit")


@pytest.fixture(autouse=True)
def same_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where changes are judged, the operating system's randomness is a function of the test."""
    if not JUDGED:
        yield
        return
    with repeated(request.node.nodeid):
        yield
