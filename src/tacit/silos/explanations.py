"""Terms of a federation in plain words, for those who decide whether a silo takes part."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tacit.rounding import up
from tacit.silos.config import BudgetEntry
from tacit.silos.federation import FederationSums, FederationTerms, largest_missing

_PATHS = {
    "secagg-fedlinucb": "Its share of the noise is in it before it leaves, and a mask covers it: "
    "the coordinator learns the sum over silos only.",
    "ldp-fedlinucb": "All of its noise is in it before it leaves: the coordinator may read it.",
    "fedlinucb": "Nothing hides it: this is for tests.",
}


def facts(terms: FederationTerms, number: int) -> dict[str, Any]:
    """Facts of the terms for one silo, as plain data."""
    derived = FederationSums.of(terms)
    guarantee = derived.guarantee
    epsilon, delta = (None, None) if guarantee is None else derived.of_silo(number)
    return {
        "silo": terms.silos[number].name,
        "digest": terms.digest.hex(),
        "algorithm": terms.algorithm,
        "silos": [silo.name for silo in terms.silos],
        "synchronisations": len(terms.batches),
        "numbers_per_report": derived.sums.size,
        "bytes_per_report": 8 * derived.sums.size,
        "epsilon": epsilon,
        "delta": delta,
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "missing": terms.missing,
        "largest_missing": largest_missing(len(terms.silos)),
    }


def explain(terms: FederationTerms, number: int) -> list[str]:
    """Everything that these terms state, as sentences."""
    derived = FederationSums.of(terms)
    names, steps = [silo.name for silo in terms.silos], len(terms.batches)
    columns = "; ".join(
        f"{one.name} ({one.kind}"
        + (f" from {one.low} to {one.high})" if one.kind == "number" else ")")
        for one in terms.context.columns
    )
    first = datetime.fromtimestamp(terms.due(0), UTC)
    when = (
        f"The first synchronisation is due at {first:%Y-%m-%d %H:%M:%S} UTC, each later one "
        f"{terms.schedule.pace} ms per record of its batch after the one before."
        if terms.schedule.pace
        else "Synchronisations happen when the coordinator asks; it sees released sums only."
    )
    guarantee = derived.guarantee
    sentences = [
        f"The question: {terms.question}",
        f"Silos: {', '.join(names)}; this one is {names[number]}.",
        f"A context has the columns {columns or 'of the caller'}; the actions are "
        f"{', '.join(terms.context.actions) or 'those of the caller'}.",
        f"The outcome is {terms.reward.meaning}, from {terms.reward.worst} (worst) to "
        f"{terms.reward.best} (best).",
        f"What leaves: in each of {steps} synchronisations one message of {derived.sums.size} "
        "numbers, the sums of features and outcomes of at most "
        f"{max(terms.batches)} records. {_PATHS[terms.algorithm]}",
        "What stays: every record, every count of records, and which slots were unused.",
        when,
        absence(terms),
    ]
    if guarantee is None:
        return [*sentences, "There is no guarantee: do not use this with data of people."]
    epsilon, delta = derived.of_silo(number)
    return [
        *sentences,
        f"Guarantee for the participants of this silo: ({up(epsilon, 4)}, {up(delta, 4)})-DP, all "
        "reports together.",
        str(guarantee),
    ]


def evaluations_of(budget: BudgetEntry | None) -> str:
    """Sentence on the additional privacy cost of evaluations of recorded data."""
    if budget is None:
        return "Evaluations of recorded data: none, as silo.toml allows none."
    return (
        f"Evaluations of recorded data cost up to ({budget.epsilon}, {budget.delta})-DP besides, "
        "as silo.toml allows: for a patient in both, the numbers add up."
    )


def absence(terms: FederationTerms) -> str:
    """Sentences on the effect of absent silos."""
    count, most = len(terms.silos), largest_missing(len(terms.silos))
    patience = terms.schedule.patience
    rule = (
        f"A row may be released without {terms.missing} of {count} silos; the noise of the others "
        "suffices."
        if terms.missing
        else "Every row needs every silo: all wait for one that is absent."
    )
    could = (
        f"{count} silos could tolerate {most} missing."
        if most
        else f"{count} silos tolerate no loss, under any terms: it takes four to tolerate one."
    )
    return (
        f"{rule} {could} After {patience} seconds of waiting the federation ends at the last "
        "released row, and everybody keeps the policy."
    )
