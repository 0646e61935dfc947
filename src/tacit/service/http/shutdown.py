"""Whether the server of an application is about to stop."""

from __future__ import annotations

from collections.abc import Callable


class Shutdown:
    """Whether the server is about to stop; streaming responses end then.

    `begun` is set by the server; until then nothing stops.
    """

    def __init__(self, begun: Callable[[], bool] = lambda: False) -> None:
        self.begun = begun

    def is_set(self) -> bool:
        """Whether the server is about to stop."""
        return self.begun()
