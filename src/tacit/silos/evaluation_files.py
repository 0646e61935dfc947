"""Files of evaluations beside a federation's definition: requests that wait, and their results."""

from __future__ import annotations

import json
from pathlib import Path

from tacit.errors import TacitError
from tacit.silos.coordinator import FederationCoordinator, SiloAbsent
from tacit.silos.evaluation import EvaluationRequest


def result_of(request: Path) -> Path:
    """The file of an evaluation's result."""
    return request.with_name(request.name.replace(".request.", ".result."))


def evaluate_pending(coordinator: FederationCoordinator, definition: Path) -> list[str]:
    """Run all requests beside a federation's file that have no result; return the failures.

    A request that silos rejected, or did not answer, waits for the next run and stops no other.
    """
    failed = []
    requests = sorted((definition.parent / "evaluations").glob("*.request.json"))
    for request in (one for one in requests if not result_of(one).exists()):
        try:
            asked = EvaluationRequest.decode(request.read_bytes())
            answer = coordinator.evaluate(asked).to_dict()
        except SiloAbsent as problem:
            failed.append(f"{request.name}: {problem}. The logs of the silos say why")
            continue
        except TacitError as problem:
            answer = {"problem": str(problem)}
        result_of(request).write_text(json.dumps(answer), encoding="utf-8")
    return failed
