"""Secure aggregation rounds on a plain ring graph, for tests that need to know the neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.aggregation import MaskingPlan, MaskingSession, Neighbourhood
from tacit.aggregation.interface import SYSTEM, Source


def ring_session(
    reports: Sequence[int | Sequence[int]],
    minimum: int,
    modulus: int,
    among: Neighbourhood,
    source: Source = SYSTEM,
    participants: int | None = None,
) -> MaskingSession:
    """A session whose server does not shuffle; with a fixed source, always the same one."""
    plan = MaskingPlan(minimum, modulus, among, participants, lambda _: None, source)
    return MaskingSession(reports, plan)
