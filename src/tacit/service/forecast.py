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
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tacit.aggregation.graph import Claim, security
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.statistic_sums import ShuffledTable
from tacit.readers import count_of, format_duration
from tacit.service.context_entries import statistic_reason
from tacit.service.definition import Definition
from tacit.service.definition_entries import DAY
from tacit.service.definition_rules import CERTIFIED
from tacit.service.trust_models.masking import neighbourhood_for
from tacit.terms import Aggregation, CornerTerms, FittedTerms, MomentTerms, Terms, in_words
from tacit.terms.visibility import visibility
from tacit.terms.words import caution, honesty, some_of
from tacit.trust import MASKING_SECURITY, TrustModel

if TYPE_CHECKING:
    from tacit.service.context_forecast import ContextForecast

STAND_IN = "https://coordinator.invalid"
DEFAULTS = (Fraction(1, 10), Fraction(1, 5))  # default baseline (relative to the range) and lift
PEOPLE = 20_000  # of a forecast for a definition without a number
NEAR = 0.1  # of the difference between the worst and the best option
LARGE_ROUND = 1_000  # whose masks are described beside those of the smallest round
WEAK = 5  # epsilon above which the guarantee is weak
LINEAR = "Mean answers are taken to be linear in the features; intervals assume it."
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
            takes = "" if self.days is None else f", in about {count_of(self.days, 'day')}"
            subject = "Nine of ten such" if self.chance is not None else f"{said}, nine of ten"
            count = _rounded(self.participants)
            yield f"{subject} experiments are decided with about {count:,} people{takes}."
        if not self.expected:
            yield (
                "This is a guess: say in [expected] what you expect (baseline, lift, per_day) for "
                "a forecast of your own."
            )


@dataclass(frozen=True)
class LinearForecast:
    """The forecast of a definition whose options have features.

    `near` is the share of simulated experiments whose recommended option is among the best: it
    loses at most a tenth of the difference between the worst and the best. `left` is the mean
    number of options that are not ruled out.
    """

    worst: float
    best: float
    runs: int
    people: int
    near: float
    left: float

    def sentences(self) -> Iterator[str]:
        """The forecast in sentences."""
        yield (
            f"If mean answers go from {self.worst:.3g} to {self.best:.3g} and are linear in the "
            f"features, {self.people:,} people find an option within a tenth of that difference of "
            f"the best in {round(self.near * self.runs)} of {self.runs} simulated experiments."
        )
        yield f"About {self.left:.0f} options are not ruled out at the end, on average."
        yield (
            "If answers are not linear in the features, add features that make them so, such as "
            "the square of a price: intervals assume it."
        )


def forecast(
    definition: Definition, runs: int = 20, progress: bool = False
) -> Forecast | LinearForecast | ContextForecast:
    """Simulate a definition; a guardrail is modelled only as twice the noise."""
    from tacit.algorithms.registry import lookup
    from tacit.simulation.study import simulate
    from tacit.studies.plan import plan

    baseline, lift, expected = _expected(definition)
    width = definition.high - definition.low
    low, high = ((mean - definition.low) / width for mean in (baseline, baseline * (1 + lift)))
    if definition.context_fields:
        from tacit.service.context_forecast import context_forecast

        means = (float(low), float(high))
        return context_forecast(
            definition, means, _available_participants(definition) or PEOPLE, runs
        )
    if definition.table is not None:
        return _of_features(definition, (float(low), float(high)), runs, progress)
    people = _available_participants(definition)
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
        every = (*[float(low)] * (len(definition.options) - 1), float(high))
        about: dict[str, Any] = {"means": every, "horizon": people, "until_decided": True}
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


def _expected(definition: Definition) -> tuple[Fraction, Fraction, bool]:
    """Baseline and lift, and whether the definition states them."""
    if definition.baseline is not None and definition.lift is not None:
        return definition.baseline, definition.lift, True
    width = definition.high - definition.low
    return max(definition.low + DEFAULTS[0] * width, DEFAULTS[0] * width), DEFAULTS[1], False


def _of_features(
    definition: Definition, means: tuple[float, float], runs: int, progress: bool
) -> LinearForecast:
    """Simulate options whose means go from the lowest to the highest along a random direction."""
    from tacit.algorithms.registry import lookup
    from tacit.environments.linear_options import linear_means
    from tacit.simulation.study import simulate

    table = definition.table
    assert table is not None
    participants = _available_participants(definition) or PEOPLE
    asked: dict[str, Any] = {
        "horizon": participants,
        "epsilon": float(definition.epsilon) / _parts(definition),
        "participations": definition.participations // _parts(definition),
        "dropout": float(definition.dropout),
        "runs": runs,
        "progress": progress,
        **({} if definition.plays is None else {"plays": definition.plays}),
    }
    tried = simulate(
        lookup(definition.algorithm),
        linear_means(table.rows, *means),
        **_supported(definition, asked),
    )
    near = [run["best_mean_gap"] <= NEAR * (means[1] - means[0]) for run in tried.runs]
    width, low = float(definition.high - definition.low), float(definition.low)
    return LinearForecast(
        worst=low + width * means[0],
        best=low + width * means[1],
        runs=runs,
        people=participants,
        near=sum(near) / len(near),
        left=tried.mean("active"),
    )


def _parts(definition: Definition) -> int:
    """Into how many equal parts of ε and δ the noise divides them; 1 for noise without δ."""
    often = definition.participations * len(definition.answer.metrics)
    return often if definition.approximate else 1


def _supported(definition: Definition, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a simulation that the definition's algorithm has, with its trust model."""
    from tacit.algorithms.registry import lookup

    lost = {"dropout": float(definition.missing), "corrupt": float(definition.dishonest)}
    shared = definition.trust_model.shares_noise
    given = options | {"trust": definition.trust} | (lost if shared else {})
    if definition.delta:
        given["delta"] = float(definition.delta / _parts(definition))
    known = (*lookup(definition.algorithm).options, "runs", "progress", "until_decided")
    return {name: value for name, value in given.items() if name in known}


def _available_participants(definition: Definition) -> int | None:
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


def as_published(definition: Definition) -> Terms:
    """The terms of a definition, with a coordinator that stands in for its own."""
    stand_in = sha256(b"a coordinator" + (definition.helper_key or b"")).digest()
    return definition.terms(STAND_IN, stand_in)


def explained(definition: Definition) -> dict[str, list[str]]:
    """The definition in sentences, by topic."""
    terms = as_published(definition)
    read, seen = in_words(terms), visibility(terms)
    options, participants = definition.options, definition.participants
    return {
        "What you ask": [
            definition.question,
            *_contexts(definition),
            f"People get {_plays(definition)} of {len(options)} options: {some_of(options)}. The "
            f"others are measured by {definition.control}, which you have today.",
            *_features(definition),
            *_shared(definition),
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
            f"{'' if participants is None else f', or until {participants:,} people reported'}.",
            f"A round takes people in for {format_duration(definition.joining)}, watches for "
            f"{format_duration(definition.window)}, and closes "
            f"{format_duration(definition.margin)} later: "
            f"{format_duration(definition.round_length)} at most. Options of a round are tried "
            "side by side, rounds one after another.",
            *_surplus(definition),
            f"Every device reports once, between {format_duration(definition.window)} and "
            f"{format_duration(definition.window + definition.margin // 2)} after it joined, "
            "whatever happened.",
        ],
    }


def _plays(definition: Definition) -> str:
    """The number of options that a participant tries."""
    return "one" if definition.plays is None else f"up to {definition.plays}, one after the other,"


def _features(definition: Definition) -> Iterator[str]:
    if definition.table is not None:
        names = definition.table.names
        yield (
            f"Options differ in {count_of(len(names), 'feature')}: {', '.join(names)}. The mean "
            "answer is taken to be linear in them, so that answers about one option tell about all."
        )
        if isinstance(definition.context, FittedTerms):
            yield (
                "Everybody in a round tries the same options, those that tell most about the "
                f"features, and reports one parameter of {definition.context.dimension} numbers "
                "that the device fits. Its noise is Gaussian, so the promise has a delta. Options "
                "that are shown to be worse are dropped."
            )
            return
        yield (
            "A round tries a few options side by side, those that tell most about the features. "
            "Options that are shown to be worse are dropped."
        )


def _shared(definition: Definition) -> Iterator[str]:
    share = definition.control_share
    if share:
        yield (
            f"At least {float(share):.1%} of all people get {definition.control}, and as many each "
            "other option until it is shown to be worse."
        )
    elif definition.context_fields:
        yield _explored(definition)
    elif definition.table is None:
        yield (
            "No share of people is reserved for the control: most people get the option with "
            "the best estimate, so a decision may take long."
        )


def _contexts(definition: Definition) -> Iterator[str]:
    """The statistic of contexts, and why it is that one."""
    context = definition.context
    if context is None or not context.fields:
        return
    reason = statistic_reason(context.fields, len(definition.options), definition.statistic)
    names = ", ".join(one.name for one in context.fields)
    if isinstance(context, MomentTerms):
        report = context.report(len(definition.options), definition.levels)
        yield (
            f"Devices choose by {names} and report moments of {report.dimension} features, "
            f"{report.size} numbers: {reason}. Their noise is Gaussian, so the promise has a delta."
        )
        yield LINEAR
    elif isinstance(context, CornerTerms):
        count = context.report(len(definition.options)).segments
        yield (
            f"Devices choose by {names}, round their features to one of {count} corners "
            f"and report it with the answer: {reason}. Noise of scale {definition.scale} in every "
            "cell is pure."
        )
        yield LINEAR
    else:
        noise = f"noise of scale {definition.scale} in every cell"
        if definition.trust_model is TrustModel.LOCAL:
            noise = "unary encoding, which randomizes every cell,"
        if definition.trust_model is TrustModel.SHUFFLER:
            yield f"Devices choose by {names} and report tables: {reason}. {_shuffled(definition)}"
        else:
            yield f"Devices choose by {names} and report tables: {reason}, so {noise} is pure."
    if context.evaluation:
        yield (
            f"{float(context.evaluation):.0%} of people get an option at random, the evaluation "
            "slice: it measures what choosing gains over one option for everybody."
        )


def _shuffled(definition: Definition) -> str:
    """Cost of a table through a shuffler, as a sentence."""
    example = definition.experiment().mechanism.example()
    assert isinstance(example, ShuffledTable)
    return (
        f"Each cell gets {example.noise_bits} noise bits of every device in the smallest round, so "
        f"the promise has a delta; a device sends {example.bits_per_participant:,.0f} encrypted "
        "messages."
    )


def _explored(definition: Definition) -> str:
    """Assignment of options where devices choose, as a sentence."""
    share = definition.exploration
    if isinstance(definition.context, (CornerTerms, MomentTerms)):
        return (
            "Devices draw among the options that may be the best for them (Thompson sampling), so "
            "a decision may take long."
        )
    if not share:
        return "Most people get the option that leads for them, so a decision may take long."
    return (
        f"{float(share):.0%} of every segment get an option at random until one is shown to be "
        "the best there; the others get the one that leads for them."
    )


def _losses(definition: Definition) -> Iterator[str]:
    """Cost of missing and dishonest participants, where devices share the noise."""
    if not definition.trust_model.shares_noise:
        return
    missing, dishonest = definition.missing, definition.dishonest
    certain = 1 - missing - dishonest
    holds = (
        f"The promise holds if at most {float(missing):.0%} of a round are missing and "
        f"{float(dishonest):.0%} invented or dishonest."
    )
    if definition.algorithm == CERTIFIED:
        example = definition.experiment().mechanism.example()
        assert isinstance(example, PureShuffle)
        more = example.participants / example.honest - 1
        yield (
            f"{holds} Noise is certified for {example.honest} people in the smallest round, which "
            f"has {more:.0%} more variance than it would need if everybody were certain."
        )
    else:
        yield (
            f"{holds} So {float(certain):.0%} of a round draw all of the noise: a full round has "
            f"{float(1 / certain - 1):.0%} more variance than it would need if everybody were "
            "certain."
        )
    yield (
        f"The smallest round has {definition.smallest} participants, so that "
        f"{definition.min_batch_size} report in any case; with fewer it is not released."
    )
    if definition.trust_model is TrustModel.SECURE_AGGREGATION:
        yield _masked(definition)


def _masked(definition: Definition) -> str:
    """Security of the masks in the smallest and in a large round, as a sentence."""
    about = Aggregation(definition.min_batch_size, definition.missing, 1, definition.dishonest)

    def masks(slots: int) -> tuple[int, str]:
        least = max(definition.min_batch_size, slots - about.missing(slots))
        among = neighbourhood_for(about, slots, least)
        found = security(among, slots, least, about.dishonest(slots), Claim(about.claim))
        return among.degree, f"2^-{math.floor(found.bits)}" if found.failure else "0"

    few, many = definition.smallest, max(LARGE_ROUND, definition.smallest)
    (near, none), (far, some) = masks(few), masks(many)
    return (
        f"A device exchanges masks with {near} others in a round of {few:,}, with {far} in one of "
        f"{many:,}. A coordinator that follows the protocol learns more than the sum there with a "
        f"probability of at most {none} and {some}; devices reject more than 2^-{MASKING_SECURITY} "
        f"({MASKING_SECURITY} bits of security)."
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
            "servers. Use it for demonstrations only."
        )


def _rounded(count: int) -> int:
    """Round to two significant digits, the precision of the forecast."""
    return int(round(count, 2 - len(str(count))))
