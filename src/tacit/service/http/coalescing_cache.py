"""An answer that very many ask for, looked up once for all who ask within a tenth of a second.

Every device reads the terms of both parties before it joins; what it acts on is checked again when
it does. Whatever changes an experiment through this process is seen at once, what another process
changed a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRESH = 0.1  # seconds that an answer is not looked up again
MOST = 256  # answers that are remembered


class Lately:
    """What `look` said of a name a moment ago."""

    def __init__(self, look: Callable[[str], bytes]) -> None:
        self._look = look
        self._found: dict[str, tuple[float, asyncio.Future[bytes]]] = {}

    async def __call__(self, name: str) -> bytes:
        """What it says; what it raised is raised for all who waited, and then tried anew."""
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
        """Everything is looked up anew from now on."""
        self._found.clear()


class Changing:
    """An application of which requests that may change an experiment make forget what was said
    before; joining changes none.
    """

    def __init__(self, app: ASGIApp, lately: Lately) -> None:
        self._app, self._lately = app, lately

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; what it changed is known before its answer is."""
        asks = scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS")

        async def answer(message: Message) -> None:
            self._lately.forget()
            await send(message)

        same = asks or scope["path"].endswith("/places")
        await self._app(scope, receive, send if same else answer)
