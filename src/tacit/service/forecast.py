"""Explanation and forecast of a definition, for its reviewer.

The sentences about the guarantee are those that participants will read. The forecast simulates the
same experiment on options with the expected baseline and lift. It estimates the probability of
detecting the lift, and the participants and days needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from tacit.service import definition_rules as rules
from tacit.service.definition import DAY, Definition
from tacit.service.readers import counted
from tacit.service.readers import in_words as lasting
from tacit.terms import in_words
from tacit.terms.visibility import visibility
from tacit.terms.words import caution, honesty

STAND_IN = "https://coordinator.invalid"
DEFAULTS = (Fraction(1, 10), Fraction(1, 5))  # default baseline (relative to the range) and lift
WEAK = 5  # epsilon above which the guarantee is weak
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Forecast:
    """The forecast of a definition.

    `chance` is the probability of detecting the lift with the participants of the definition.
    `participants` is the number until nine of ten such experiments are decided. Either is None
    where unknown.
    """

    baseline: float
    lift: float
    expected: bool
    runs: int
    people: int | None
    chance: float | None
    participants: int | None
    rounds: float | None
    days: int | None

    def sentences(self) -> Iterator[str]:
        """The forecast in sentences."""
        rates = f"{self.baseline:.3g} to {self.baseline * (1 + self.lift):.3g}"
        said = f"If the best option lifts the mean answer by {self.lift:.0%}, from {rates}"
        if self.chance is not None and self.people is not None:
            yield (
                f"{said}, it is shown to be the best with {self.people:,} people in "
                f"{round(self.chance * self.runs)} of {self.runs} simulated experiments."
            )
        if self.participants is None:
            yield "No number of people that was tried decides nine of ten such experiments."
        else:
            takes = "" if self.days is None else f", in about {counted(self.days, 'day')}"
            subject = "Nine of ten such" if self.chance is not None else f"{said}, nine of ten"
            count = _rounded(self.participants)
            yield f"{subject} experiments are decided with about {count:,} people{takes}."
        if not self.expected:
            yield (
                "This is a guess: say in [expected] what you expect (baseline, lift, per_day) for "
                "a forecast of your own."
            )


def forecast(definition: Definition, runs: int = 20, progress: bool = False) -> Forecast | None:
    """Simulate a definition; a guardrail is modelled only as twice the noise.

    None with contexts: what to expect depends on how much contexts matter.
    """
    if definition.context is not None:
        return None
    from tacit.algorithms.registry import lookup
    from tacit.simulation.study import simulate
    from tacit.studies.plan import plan

    width = definition.high - definition.low
    baseline, lift = definition.baseline, definition.lift
    expected = baseline is not None and lift is not None
    if baseline is None or lift is None:
        lift = DEFAULTS[1]
        baseline = max(definition.low + DEFAULTS[0] * width, DEFAULTS[0] * width)
    low, high = ((mean - definition.low) / width for mean in (baseline, baseline * (1 + lift)))
    people = _people(definition)
    parts = _parts(definition)
    common: dict[str, Any] = {
        "epsilon": float(definition.epsilon / parts),
        "participations": definition.participations * len(definition.answer.metrics) // parts,
        "dropout": float(definition.dropout),
        "control_share": float(definition.control_share),
        "runs": runs,
        "progress": progress,
        **({} if definition.most is None else {"rounds": definition.most}),
    }
    chance = participants = rounds = None
    if people is not None:
        entry = lookup(definition.algorithm)
        means = (*[float(low)] * (len(definition.options) - 1), float(high))
        about: dict[str, Any] = {"means": means, "horizon": people, "until_decided": True}
        tried = simulate(entry, **_supported(definition, about | common))
        found, rounds = tried.decided(), tried.mean("rounds")
        chance, participants = float(found["decided_part"]), found["participants_to_decide"]
    if participants is None:
        options = len(definition.options)
        difference: dict[str, Any] = {"baseline": float(low), "gap": float(high - low)}
        cost = plan(options, trusts=(definition.trust,), **difference, **common).costs[0]
        participants, rounds = cost.participants, cost.rounds
    days = _days(definition, participants, rounds)
    about_it = (float(baseline), float(lift), expected, runs)
    return Forecast(*about_it, people, chance, participants, rounds, days)


def _parts(definition: Definition) -> int:
    """Into how many equal parts of ε and δ the noise divides them; 1 for noise without δ."""
    often = definition.participations * len(definition.answer.metrics)
    return often if definition.approximate else 1


def _supported(definition: Definition, asked: dict[str, Any]) -> dict[str, Any]:
    """The options of a simulation that the definition's algorithm has, with its trust model."""
    from tacit.algorithms.registry import lookup

    lost = {"dropout": float(definition.missing), "corrupt": float(definition.dishonest)}
    shared = definition.trust_model.shares_noise
    given = asked | {"trust": definition.trust} | (lost if shared else {})
    if shared and definition.delta:
        given["delta"] = float(definition.delta / _parts(definition))
    known = (*lookup(definition.algorithm).options, "runs", "progress", "until_decided")
    return {name: value for name, value in given.items() if name in known}


def _people(definition: Definition) -> int | None:
    """The number of available participants: as defined, or as many as arrive by the last day."""
    if definition.participants is not None or definition.per_day is None:
        return definition.participants
    return definition.per_day * ((definition.last_day - definition.first_day).days + 1)


def _days(definition: Definition, participants: int | None, rounds: float | None) -> int | None:
    """Days until the decision: rounds are sequential, and participants arrive at a limited rate."""
    if rounds is None or participants is None or definition.per_day is None:
        return None
    lasting_rounds = math.ceil(rounds * definition.round_length / DAY)
    return max(lasting_rounds, math.ceil(participants / definition.per_day))


def explained(definition: Definition) -> dict[str, list[str]]:
    """The definition in sentences, by topic."""
    stand_in = sha256(b"a coordinator" + (definition.helper_key or b"")).digest()
    terms = definition.terms(STAND_IN, stand_in)
    read, seen = in_words(terms), visibility(terms)
    options, share = definition.options, definition.control_share
    people = definition.participants
    return {
        "What you ask": [
            definition.question,
            *_contexts(definition),
            f"People get one of {len(options)} options: {', '.join(options)}. The others are "
            f"measured by {definition.control}, which you have today.",
            f"At least {float(share):.3g} of all people get {definition.control}, and as many each "
            "other option until it is shown to be worse."
            if share
            else "Every device chooses by the policy of its round."
            if definition.context
            else "No share of people is reserved for the control: most people get the option with "
            "the best estimate, so a decision may take long.",
            *_guardrail(definition),
        ],
        "What people read before they take part": [line for line in read if STAND_IN not in line],
        "Who sees what": [
            f"The devices see the answers. {seen.device}",
            *(f"The {one.role} sees {one.sees}; never {one.never}." for one in seen.sights),
            *caution(terms),
            honesty(terms),
        ],
        "Trust model": [
            f"{definition.trust}{' with range proofs' if definition.proofs else ''}; "
            f"{definition.algorithm} chooses the options.",
            *_losses(definition),
        ],
        "How long it takes": [
            f"From {definition.first_day} to {definition.last_day}"
            f"{'' if people is None else f', or until {people:,} people reported'}.",
            f"A round takes people in for {lasting(definition.joining)}, watches for "
            f"{lasting(definition.window)}, and closes {lasting(definition.margin)} later: "
            f"{lasting(definition.round_length)} at most. Options of a round are tried side by "
            "side, rounds one after another.",
            *_surplus(definition),
            f"Every device reports once, between {lasting(definition.window)} and "
            f"{lasting(definition.window + definition.margin // 2)} after it joined, whatever "
            "happened.",
        ],
    }


def _contexts(definition: Definition) -> Iterator[str]:
    """The statistic of contexts, and why it is that one."""
    context = definition.context
    if context is None:
        return
    cells = context.numbers(len(definition.options)) // 2
    yield (
        f"Devices choose by {', '.join(one.name for one in context.fields)} and report tables: "
        f"{cells} cells of context and option are at most {rules.MOST_CELLS}, so noise of scale "
        f"{definition.scale} in every cell is pure."
    )
    if context.evaluation:
        yield (
            f"{float(context.evaluation):.0%} of people get an option at random, the evaluation "
            "slice: it measures what choosing gains over one option for everybody."
        )


def _losses(definition: Definition) -> Iterator[str]:
    """What missing and dishonest participants cost, where devices share the noise."""
    if not definition.trust_model.shares_noise:
        return
    missing, dishonest = definition.missing, definition.dishonest
    certain = 1 - missing - dishonest
    yield (
        f"The promise holds if at most {float(missing):.0%} of a round are missing and "
        f"{float(dishonest):.0%} invented or dishonest. So {float(certain):.0%} of a round draw "
        f"all of the noise: a full round has {float(1 / certain - 1):.0%} more variance than it "
        "would need if everybody were certain."
    )
    yield (
        f"The smallest round has {definition.smallest} participants, so that "
        f"{definition.min_batch_size} report in any case; with fewer it is not released."
    )


def _surplus(definition: Definition) -> Iterator[str]:
    if definition.no_show:
        more = f"{float(1 / (1 - definition.no_show)):.3g}"
        yield (
            f"A round offers {more} times as many slots as it needs reports, because "
            f"{definition.no_show} of all slots are expected never to report. It counts all that "
            f"report, and is released from {definition.min_batch_size} reports on."
        )


def _guardrail(definition: Definition) -> Iterator[str]:
    if definition.guardrail:
        yield (
            f"An option is paused if its {definition.guardrail} gets clearly worse than that of "
            f"{definition.control}, by more than {definition.guardrail_margin} "
            f"({definition.guardrail_better} is better)."
        )


def warnings(definition: Definition, today: date) -> Iterator[str]:
    """Entries that are valid but questionable."""
    if definition.epsilon > WEAK:
        yield f"promise.epsilon is {definition.epsilon}: above {WEAK} the guarantee is weak. Use 1."
    if definition.last_day < today:
        yield f"people.last_day is {definition.last_day}: it is past, so no round will open"
    elif definition.first_day < today:
        yield f"people.first_day is {definition.first_day}: it is past, so it begins at once"
    parts = urlsplit(definition.helper_address or "")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        yield (
            f"helper.address is {definition.helper_address}: without TLS the network sees who "
            "takes part. Use https://."
        )
    elif parts.hostname in LOOPBACK:
        yield (
            f"helper.address is {definition.helper_address}: on one machine one operator has both "
            "report shares. Use it for demonstrations only."
        )


def _rounded(count: int) -> int:
    """Round to two significant digits, the precision of the forecast."""
    return int(round(count, 2 - len(str(count))))
