"""Cache that coalesces identical reads for 100 ms.

Every device reads the terms from both parties before it joins; the party checks them again at
joining. Changes through this process take effect at once, changes through another process up to 100
ms later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRESH = 0.1  # seconds that a result is cached
MOST = 256  # maximum number of cached results


class CoalescingCache:
    """Cache of the results of `look`, by name."""

    def __init__(self, look: Callable[[str], bytes]) -> None:
        self._look = look
        self._found: dict[str, tuple[float, asyncio.Future[bytes]]] = {}

    async def __call__(self, name: str) -> bytes:
        """Return the result of `look`; its exception goes to all waiting callers and is not
        cached.
        """
        now = asyncio.get_running_loop().time()
        when, found = self._found.get(name, (now, None))
        if found is None or now - when >= FRESH:
            if len(self._found) >= MOST:
                self.forget()
            found = asyncio.ensure_future(run_in_threadpool(self._look, name))
            self._found[name] = (now, found)
        if not found.done():
            await asyncio.wait([found])
        if found.exception() is not None:
            self._found.pop(name, None)
        return found.result()

    def forget(self) -> None:
        """Clear the cache."""
        self._found.clear()


class CacheInvalidation:
    """Middleware that clears the cache on requests that may change an experiment.

    Joining changes none.
    """

    def __init__(self, app: ASGIApp, cache: CoalescingCache) -> None:
        self._app, self._cache = app, cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request; clear the cache before the response is sent."""
        asks = scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS")

        async def answer(message: Message) -> None:
            self._cache.forget()
            await send(message)

        same = asks or scope["path"].endswith("/places")
        await self._app(scope, receive, send if same else answer)
