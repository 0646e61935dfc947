"""Adapter for NVIDIA FLARE: an installed controller and executor that relay bytes.

Sites allow these two classes by name and deny bring-your-own-code. Where the agent listens is the
site's own setting, in the environment of its FLARE process: no job can change it. Messages travel
as auxiliary requests, so that an exchange takes milliseconds. FLARE's identities decide nothing:
coordinator and agents verify each other's signatures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from tacit.errors import TacitError
from tacit.records import RecordDirectory
from tacit.silos.config import FederationConfig, load_key, load_terms, read_entries
from tacit.silos.coordinator import CoordinatorTiming, FederationCoordinator
from tacit.silos.evaluation_files import evaluate_pending
from tacit.silos.relay import AgentRelay

TOPIC = "tacit"
PORT, TOKEN_FILE = "TACIT_AGENT_PORT", "TACIT_ENGINE_TOKEN_FILE"
FEDERATION = "TACIT_FEDERATION"
PAUSE = 0.2  # seconds between looks at the abort signal


def _setting(name: str) -> str:
    if name not in os.environ:
        raise TacitError(f"{name} is not set: set it in the environment of this FLARE process")
    return os.environ[name]


class FlareExchange:
    """Reaches silos through FLARE; a site has the name of its silo in the terms."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], deadline: float
    ) -> Mapping[str, bytes]:
        """Send every silo its message and wait for the answers."""
        with ThreadPoolExecutor(max_workers=len(messages) or 1) as pool:
            asked = {
                silo: pool.submit(self._send, stage, silo, message, deadline)
                for silo, message in messages.items()
            }
            found = {silo: one.result() for silo, one in asked.items()}
        return {silo: answer for silo, answer in found.items() if answer is not None}

    def _send(self, stage: str, silo: str, message: bytes, deadline: float) -> bytes | None:
        """One request; FLARE 2.9 has a request to several sites, but only with equal content."""
        request = Shareable()
        request["stage"], request["message"] = stage, message
        with self._engine.new_context() as context:
            replies = self._engine.send_aux_request([silo], TOPIC, request, deadline, context)
        reply = (replies or {}).get(silo)
        if not isinstance(reply, Shareable) or reply.get_return_code() != ReturnCode.OK:
            return None
        answer = reply.get("message")
        return answer if isinstance(answer, bytes) else None


class FederationController(Controller):  # type: ignore[misc]
    """Runs the coordinator of the federation that `TACIT_FEDERATION` names on the server."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Prepare nothing: the agents may not have joined yet."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Store nothing: all state is on record already."""

    def process_result_of_unknown_task(self, *_given: Any) -> None:
        """Agents answer auxiliary requests; there are no tasks."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Release all rows that are left, each when it is due."""

        def sleep(seconds: float) -> None:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if abort_signal.triggered:
                    raise TacitError("the job was aborted; the federation continues in the next")
                time.sleep(min(left, PAUSE))

        path = Path(_setting(FEDERATION))
        config = read_entries(FederationConfig, path)
        coordinator = FederationCoordinator(
            load_terms(path, config),
            load_key(path, config),
            FlareExchange(fl_ctx.get_engine()),
            RecordDirectory(path.parent / config.records),
            CoordinatorTiming(sleep=sleep),
        )
        coordinator.run()
        self.log_info(fl_ctx, f"federation: {coordinator.status()}")
        for failed in evaluate_pending(coordinator, path):  # the next job tries again
            self.log_warning(fl_ctx, failed)


class RelayExecutor(Executor):  # type: ignore[misc]
    """Relays the coordinator's messages to the agent of this site."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Register the relay when the job starts."""
        if event_type == EventType.START_RUN:
            self._agent = AgentRelay.of(int(_setting(PORT)), _setting(TOKEN_FILE))
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._relay)

    def execute(self, *_given: Any) -> Shareable:
        """Reject every task: agents answer auxiliary requests only."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _relay(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        try:
            answer = self._agent.respond(str(request["stage"]), request["message"])
        except TacitError as problem:
            self.log_warning(fl_ctx, f"{topic}: {problem}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        reply = make_reply(ReturnCode.OK)
        reply["message"] = answer
        return reply
