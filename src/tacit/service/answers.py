"""Plain-data views of an experiment for commands, pages and files.

All values derive from noisy sums and counts of participants, so reading them spends no privacy
budget. Means, intervals and sums are in the units of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from heapq import nlargest
from typing import Any

from tacit.bandits.contextual.policy_learners import PolicyLearner
from tacit.bandits.linear.options import OptionElimination
from tacit.experiment import Experiment
from tacit.service.schema import NO_ARM, ExperimentRow, RoundRow, Stage, State
from tacit.service.stated import stated_guarantee
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.service.trust_models.rounds import ReleasedView
from tacit.terms import Terms, in_words
from tacit.types import Arm, ArmSummary, Round

OVER = (Stage.RELEASED, Stage.ABORTED)
MOST_FOLLOWED, FOLLOWED = 30, 8  # options in the history, and how many of more than these


class EndReason(StrEnum):
    """Why an experiment has ended.

    `PARTICIPANTS_REACHED`: the released reports use up the planned participants, or leave fewer
    than the learner's next round needs. `LAST_DAY_PASSED`: no further round closes before the end
    of the last day. `ONE_OPTION_LEFT`: all others were ruled out. `STOPPED_BY_HAND`: an operator
    stopped it.
    """

    PARTICIPANTS_REACHED = "participants-reached"
    LAST_DAY_PASSED = "last-day-passed"
    ONE_OPTION_LEFT = "one-option-left"
    STOPPED_BY_HAND = "stopped-by-hand"


def end_reason(state: State, experiment: Experiment) -> EndReason | None:
    """Why an experiment in this state has ended; None while it has not."""
    if state is State.STOPPED:
        return EndReason.STOPPED_BY_HAND
    if state is not State.FINISHED:
        return None
    if not experiment.finished:
        return EndReason.LAST_DAY_PASSED
    alone = (
        isinstance(experiment.learner, OptionElimination) and len(experiment.learner.active) == 1
    )
    return EndReason.ONE_OPTION_LEFT if alone else EndReason.PARTICIPANTS_REACHED


@dataclass(frozen=True)
class Snapshot:
    """An experiment as read in one transaction."""

    terms: Terms
    row: ExperimentRow
    experiment: Experiment
    rounds: list[RoundRow]
    served: int  # requests that found no slot
    settled: int  # of these, those before the current rounds were planned


def status(snapshot: Snapshot) -> dict[str, Any]:
    """State, rounds, participant counts, guarantee and terms."""
    guarantee = stated_guarantee(snapshot.terms, snapshot.experiment.guarantee)
    return {
        "digest": snapshot.row.digest.hex(),
        "question": snapshot.terms.question,
        "state": snapshot.row.state,
        "ended": end_reason(snapshot.row.state, snapshot.experiment),
        "options": list(snapshot.terms.options),
        "control": snapshot.experiment.control,
        "best": snapshot.experiment.best(),
        "decided": snapshot.experiment.decided(),
        "people": {
            "asked": sum(row.assigned for row in snapshot.rounds),
            "reported": sum(row.reports or 0 for row in snapshot.rounds),
            "served": snapshot.served,
            "planned": snapshot.experiment.learner.horizon,
        },
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "linear": isinstance(snapshot.experiment.learner, OptionElimination),
        "terms": in_words(snapshot.terms),
        "rounds": [_round(snapshot, row) for row in snapshot.rounds],
        "contexts": contexts(snapshot.terms, snapshot.experiment),
    }


def _round(snapshot: Snapshot, row: RoundRow) -> dict[str, Any]:
    return {
        "round": row.identity.hex(),
        "number": row.number,
        "option": None if row.arm == NO_ARM else snapshot.experiment.options[row.arm],
        "stage": row.stage,
        "places": row.slots,
        "given": row.assigned,
        "reports": row.reports,
        "closes": row.closes,
        "sums": None if row.total is None else json.loads(row.total),
    }


def estimates(snapshot: Snapshot, level: float = 0.95) -> dict[str, Any]:
    """Estimates of every option, the decision, and the sample ratio check."""
    ratio = snapshot.experiment.sample_ratio()
    return {
        "digest": snapshot.row.digest.hex(),
        "level": level,
        "best": snapshot.experiment.best(),
        "decided": snapshot.experiment.decided(level),
        "sample_ratio": {"p": ratio.p, "mismatch": ratio.mismatch},
        "options": [in_units(snapshot.terms, one) for one in snapshot.experiment.estimates(level)],
        "contexts": contexts(snapshot.terms, snapshot.experiment, level),
    }


def contexts(terms: Terms, experiment: Experiment, level: float = 0.95) -> dict[str, Any] | None:
    """Which option for whom, how sure that is, and the gain over one option for everybody.

    None where devices do not choose. Gains are empty without an evaluation slice.
    """
    learner = experiment.learner
    if not isinstance(learner, PolicyLearner):
        return None
    low, width = float(terms.answer.low), float(terms.answer.high - terms.answer.low)
    answers = [
        asdict(one)
        | {name: low + width * getattr(one, name) for name in ("mean", "low", "high")}
        | {"lead": width * one.lead}
        for one in learner.answers(level)
    ]
    gains = [
        {name: width * value if isinstance(value, float) else value for name, value in row.items()}
        for row in map(asdict, learner.gains(level))
    ]
    return {"answers": answers, "gains": gains}


def in_units(terms: Terms, summary: ArmSummary) -> dict[str, Any]:
    """An arm summary with mean and interval in the units of the answer.

    A lift is relative to the control's mean, so it is omitted where the range does not begin at 0.
    """
    low, high = float(terms.answer.low), float(terms.answer.high)
    data = asdict(summary)
    for name in ("mean", "low", "high", "guardrail", "guardrail_low", "guardrail_high"):
        if data[name] is not None:
            data[name] = low + data[name] * (high - low)
    if low:
        data |= dict.fromkeys(("lift", "lift_low", "lift_high"))
    return data


def moment(
    now: int, terms: Terms, experiment: Experiment, round_: Round, view: ReleasedView | None
) -> dict[str, Any]:
    """The estimates after a round, for plots."""
    tried = round_.arm if isinstance(round_.assignment, Arm) else None
    return {
        "time": now,
        "round": round_.number,
        "option": None if tried is None else experiment.options[tried],
        "reports": None if view is None else view.reports,
        "options": [
            in_units(terms, one) for one in _displayed_options(experiment.estimates(), tried)
        ],
    }


def _displayed_options(rows: Sequence[ArmSummary], tried: int | None) -> Sequence[ArmSummary]:
    """Options to display: all, or of many only the leading ones and the last tried."""
    if len(rows) <= MOST_FOLLOWED:
        return rows
    known = (k for k, row in enumerate(rows) if row.mean is not None)
    leading = nlargest(FOLLOWED, known, key=lambda k: rows[k].mean or 0.0)
    own = () if tried is None else (tried,)
    return [rows[k] for k in sorted({*own, *leading})]


def export(snapshot: Snapshot) -> dict[str, Any]:
    """The full view and the definition of the experiment."""
    return view(snapshot) | {"definition": snapshot.row.definition}


def view(snapshot: Snapshot) -> dict[str, Any]:
    """The data of the pages: status, current estimates, estimates after every round, and traffic in
    bytes.

    It contains nothing about a single participant. An observer who sees it change can tell when a
    participant joins; `public` hides this.
    """
    return {
        "status": status(snapshot),
        "estimates": estimates(snapshot),
        "history": json.loads(snapshot.row.history),
        "terms": snapshot.terms.document(),
        "passed": _traffic(snapshot),
    }


def public(snapshot: Snapshot) -> dict[str, Any]:
    """The public view, independent of who joins or sends requests at the moment.

    Participants are counted when their round is over. The number of assigned slots of an unfinished
    round is hidden.
    """
    whole = view(snapshot)
    status = whole["status"]
    rounds = [one if one["stage"] in OVER else one | {"given": None} for one in status["rounds"]]
    asked = sum(one["given"] or 0 for one in rounds)
    participants = status["people"] | {"asked": asked, "served": snapshot.settled}
    return whole | {"status": status | {"rounds": rounds, "people": participants}}


def _traffic(snapshot: Snapshot) -> dict[str, int]:
    """Messages and bytes of released rounds: reports to each party, and the helper's answers."""
    engine, terms = coordinator_engine(snapshot.terms), snapshot.terms
    released = [
        (row.reports or 0, *engine.traffic(decoded(engine, terms, row.announcement)))
        for row in snapshot.rounds
        if row.stage is Stage.RELEASED
    ]
    helper = terms.helper
    return {
        "reports": sum(reports for reports, *_ in released),
        "coordinator_bytes": sum(count * sizes[terms.leader] for count, sizes, _ in released),
        "helper_bytes": sum(
            0 if helper is None else count * sizes[helper] for count, sizes, _ in released
        ),
        "sums": len(released),
        "sums_bytes": sum(answer for *_, answer in released),
    }
