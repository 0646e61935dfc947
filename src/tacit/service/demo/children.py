"""Child processes of the demonstration, which end with their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from tacit.client.loopback import NEARBY
from tacit.errors import TacitError

STARTING, ENDING = 180.0, 10.0
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG in prctl(2)


def free_port() -> int:
    """A free TCP port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Child:
    """Child process in its own session, unaffected by ^C in the terminal; it dies with its
    parent.
    """

    def __init__(self, command: list[str], log: Path, stdin: str = "", **environment: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
                text=True,
                env=os.environ | environment,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(stdin)
            self._process.stdin.close()

    @property
    def ended(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """Terminate it, then kill it after a timeout; idempotent."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self.ended is None:
                with suppress(ProcessLookupError):
                    self._process.send_signal(how)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(ENDING)

    def wait_for(self, url: str, watch: Callable[[], None]) -> None:
        """Wait until it answers at `url`; `watch` is called at every attempt."""
        end = time.monotonic() + STARTING
        while time.monotonic() < end:
            watch()
            if self.ended is not None:
                break
            with suppress(httpx.HTTPError), httpx.Client(timeout=2.0, mounts=NEARBY) as client:
                if client.get(url).status_code == 200:
                    return
            time.sleep(0.1)
        last = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise TacitError(f"server did not start at {url}: {' '.join(last) or 'its log is empty'}")


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGTERM)
