"""A site's application as a client of its own agent, over local HTTP. Standard library only."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.errors import TacitError, Unavailable

PATIENCE = 30.0  # seconds for one answer


class AgentClient:
    """Decide and record as `tacit.silos.agent.SiloAgent` does, from another process.

    Parameters
    ----------
    port : int
        Where the agent listens on this machine.
    token_file : path
        The application's token.
    """

    def __init__(self, port: int, token_file: str | Path, host: str = "127.0.0.1") -> None:
        self._asked = f"{host}:{port}"
        self._token_file = token_file
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except OSError as problem:
            raise TacitError(
                f"token_file is {token_file}, which cannot be read ({problem.strerror}): name the "
                "application-token beside the silo.toml"
            ) from None
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)

    def decide(self, context: Mapping[str, Any] | Sequence[Sequence[float]]) -> dict[str, Any]:
        """Decide for one participant: id, action, estimate and width."""
        found: dict[str, Any] = json.loads(self._ask("POST", "/decide", {"context": context}))
        return found

    def record(self, identity: str, outcome: float, action: str | None = None) -> None:
        """Record the outcome of a decision, and the action if it was not the proposed one."""
        done = {} if action is None else {"action": action}
        self._ask("POST", "/record", {"id": identity, "outcome": outcome} | done)

    def status(self) -> dict[str, Any]:
        """The state of the silo."""
        found: dict[str, Any] = json.loads(self._ask("GET", "/status"))
        return found

    def policy(self) -> str:
        """The newest policy, as JSON for `tacit.silos.exported.ExportedPolicy`."""
        return self._ask("GET", "/policy").decode()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def _ask(self, method: str, path: str, document: Any = None) -> bytes:
        """The body of the agent's answer; one retry on a closed connection."""
        body = None if document is None else json.dumps(document)
        for attempt in (1, 2):  # the agent closes idle connections
            try:
                self._connection.request(method, path, body, self._headers)
                reply = self._connection.getresponse()
                content = reply.read()
                break
            except (OSError, http.client.HTTPException) as problem:
                self._connection.close()
                if attempt == 2:
                    raise Unavailable(
                        f"the agent at {self._asked} does not answer ({problem}): start it with "
                        "tacit silo serve"
                    ) from None
        if reply.status in (200, 204):
            return content
        if reply.status == 401:
            raise TacitError(
                f"token_file is {self._token_file}: the agent at {self._asked} rejects its token. "
                "Name the application-token of that silo"
            )
        detail = json.loads(content).get("detail", "") if content else ""
        if reply.status == 503:
            raise Unavailable(str(detail))
        raise TacitError(str(detail) or f"the agent answered with status {reply.status}")
