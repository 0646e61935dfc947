"""Keys of shuffler and analyzer, for tests that impersonate them."""

from __future__ import annotations

from tacit.aggregation import ServerKeys, ShufflerSession


def keys_of(session: ShufflerSession) -> tuple[ServerKeys, ServerKeys]:
    """The shuffler's and the analyzer's."""
    first, second = session.shuffler._keys, session.analyzer._keys
    assert first is not None
    assert second is not None
    return first, second
