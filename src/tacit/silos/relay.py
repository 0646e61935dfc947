"""Relay of an engine's process to the agent on the same machine: bytes over an authenticated
local connection, and nothing else. Needs the standard library only.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tacit.errors import Rejected, Unavailable

PATIENCE = 60.0  # seconds for one answer


@dataclass(frozen=True, repr=False)
class AgentRelay:
    """A silo's agent as an engine reaches it.

    Parameters
    ----------
    host, port
        Where the agent listens.
    token : str
        The engine's token.
    """

    host: str
    port: int
    token: str

    @classmethod
    def of(cls, port: int, token_file: str | Path, host: str = "127.0.0.1") -> AgentRelay:
        """The relay with the token of a file."""
        return cls(host, port, Path(token_file).read_text(encoding="utf-8").strip())

    def respond(self, stage: str, message: bytes) -> bytes:
        """The agent's answer; `Rejected` if it rejects the message, `Unavailable` without it."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        headers = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/octet-stream",
        }
        try:
            connection.request("POST", f"/respond/{quote(stage, safe='')}", message, headers)
            reply = connection.getresponse()
            content = reply.read()
        except OSError as problem:
            raise Unavailable(
                f"the agent at {self.host}:{self.port} does not answer ({problem}): start it with "
                "tacit silo serve"
            ) from None
        finally:
            connection.close()
        if reply.status == 200:
            return content
        if reply.status in (409, 422):
            raise Rejected(f"the agent rejected {stage}: see its log")
        raise Unavailable(f"the agent answered {stage} with status {reply.status}: retry later")
