"""How a coordinator reaches silos: the interface of engines, and one in a single process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from tacit.errors import Rejected

LOG = logging.getLogger("tacit.silos")


class Responder(Protocol):
    """The silo's end of an exchange."""

    def respond(self, stage: str, message: bytes) -> bytes:
        """Answer a coordinator's message, or raise `Rejected`."""


class Exchange(Protocol):
    """The coordinator's end: an engine relays bytes and waits for answers."""

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], deadline: float
    ) -> Mapping[str, bytes]:
        """Send every silo its message; return the answers that came within `deadline` seconds.

        Parameters
        ----------
        stage : str
            The stage, for the engine's own records; agents read it from the message.
        messages : mapping of str to bytes
            One message per silo, by name.
        deadline : float
            Seconds to wait for answers.

        Returns
        -------
        mapping of str to bytes
            The answers by silo. A silo that is absent or rejects the message is left out.
        """


class InProcessExchange:
    """All silos in one process, for tests, simulations and benchmarks.

    Parameters
    ----------
    responders : mapping of str to Responder or callable
        The silos by name. A callable is asked for the responder at every message, so that a test
        can restart it.

    Attributes
    ----------
    sent : dict of str to int
        Bytes that each silo has sent.
    """

    def __init__(self, responders: Mapping[str, Callable[[], Responder]]) -> None:
        self.responders = dict(responders)
        self.sent = dict.fromkeys(responders, 0)

    def exchange(
        self,
        stage: str,
        messages: Mapping[str, bytes],
        deadline: float,  # noqa: ARG002
    ) -> Mapping[str, bytes]:
        """Ask one silo after the other."""
        answers = {}
        for silo, message in messages.items():
            try:
                answers[silo] = self.responders[silo]().respond(stage, message)
            except Rejected as problem:
                LOG.info("silo %s rejected %s: %s", silo, stage, problem)
                continue
            self.sent[silo] += len(answers[silo])
        return answers
