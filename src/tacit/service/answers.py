"""Plain-data views of an experiment for commands, pages and files.

All values derive from noisy sums and counts of participants, so reading them spends no privacy
budget. Means, intervals and sums are in the units of the answer.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tacit.aggregation import SumView
from tacit.aggregation.aggregator import partial_size
from tacit.aggregation.two_servers import TwoServerRound
from tacit.experiment import Experiment
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import Terms, in_words
from tacit.types import ArmSummary, Round

OVER = ("opened", "refused")  # final stages of a round


@dataclass(frozen=True)
class Snapshot:
    """An experiment as read in one transaction."""

    terms: Terms
    row: Any
    experiment: Experiment
    rounds: list[Any]
    served: int  # requests that found no slot
    settled: int  # of these, those before the current rounds were planned


def status(seen: Snapshot) -> dict[str, Any]:
    """State, rounds, participant counts, guarantee and terms."""
    guarantee = seen.experiment.guarantee
    return {
        "digest": bytes(seen.row.digest).hex(),
        "question": seen.terms.question,
        "state": seen.row.state,
        "options": list(seen.terms.options),
        "control": seen.experiment.control,
        "best": seen.experiment.best(),
        "decided": seen.experiment.decided(),
        "people": {
            "asked": sum(int(row.given) for row in seen.rounds),
            "reported": sum(int(row.reports or 0) for row in seen.rounds),
            "served": seen.served,
            "planned": seen.experiment.learner.horizon,
        },
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "terms": in_words(seen.terms),
        "rounds": [_round(seen, row) for row in seen.rounds],
    }


def _round(seen: Snapshot, row: Any) -> dict[str, Any]:
    return {
        "round": bytes(row.identity).hex(),
        "number": int(row.number),
        "option": seen.experiment.options[row.arm],
        "stage": row.stage,
        "places": int(row.places),
        "given": int(row.given),
        "reports": None if row.reports is None else int(row.reports),
        "closes": int(row.closes),
        "sums": None if row.total is None else json.loads(row.total),
    }


def estimates(seen: Snapshot, level: float = 0.95) -> dict[str, Any]:
    """Estimates of every option, the decision, and the sample ratio check."""
    ratio = seen.experiment.sample_ratio()
    return {
        "digest": bytes(seen.row.digest).hex(),
        "level": level,
        "best": seen.experiment.best(),
        "decided": seen.experiment.decided(level),
        "sample_ratio": {"p": ratio.p, "mismatch": ratio.mismatch},
        "options": [in_units(seen.terms, one) for one in seen.experiment.estimates(level)],
    }


def in_units(terms: Terms, standing: ArmSummary) -> dict[str, Any]:
    """An arm summary with mean and interval in the units of the answer.

    A lift is relative to the control's mean, so it is omitted where the range does not begin at 0.
    """
    low, high = float(terms.answer.low), float(terms.answer.high)
    data = asdict(standing)
    for name in ("mean", "low", "high", "guardrail", "guardrail_low", "guardrail_high"):
        if data[name] is not None:
            data[name] = low + data[name] * (high - low)
    if low:
        data |= dict.fromkeys(("lift", "lift_low", "lift_high"))
    return data


def moment(
    now: int, terms: Terms, experiment: Experiment, round_: Round, view: SumView | None
) -> dict[str, Any]:
    """The estimates after a round, for plots."""
    return {
        "time": now,
        "round": round_.number,
        "option": experiment.options[round_.arm],
        "reports": None if view is None else view.reports,
        "options": [in_units(terms, one) for one in experiment.estimates()],
    }


def export(seen: Snapshot) -> dict[str, Any]:
    """The full view and the definition of the experiment."""
    return view(seen) | {"definition": seen.row.definition}


def view(seen: Snapshot) -> dict[str, Any]:
    """The data of the pages: status, current estimates, estimates after every round, and traffic in
    bytes.

    It contains nothing about a single participant. An observer who sees it change can tell when a
    participant joins; `public` hides this.
    """
    return {
        "status": status(seen),
        "estimates": estimates(seen),
        "history": json.loads(seen.row.history),
        "terms": seen.terms.document(),
        "passed": _passed(seen),
    }


def public(seen: Snapshot) -> dict[str, Any]:
    """The public view, independent of who joins or sends requests at the moment.

    Participants are counted when their round is over. The number of assigned slots of an unfinished
    round is hidden.
    """
    whole = view(seen)
    status = whole["status"]
    rounds = [one if one["stage"] in OVER else one | {"given": None} for one in status["rounds"]]
    asked = sum(one["given"] or 0 for one in rounds)
    people = status["people"] | {"asked": asked, "served": seen.settled}
    return whole | {"status": status | {"rounds": rounds, "people": people}}


def _passed(seen: Snapshot) -> dict[str, int]:
    """Messages and bytes of released rounds: report shares to each server, and the helper's partial
    sums.
    """
    opened = [
        (int(row.reports), TwoServerRound.decode(bytes(row.announcement)[: -2 * SIGNATURE_SIZE]))
        for row in seen.rounds
        if row.stage == "opened"
    ]
    return {
        "reports": sum(reports for reports, _ in opened),
        "coordinator_bytes": sum(reports * about.share_size(0) for reports, about in opened),
        "helper_bytes": sum(reports * about.share_size(1) for reports, about in opened),
        "sums": len(opened),
        "sums_bytes": sum(partial_size(about) for _, about in opened),
    }
