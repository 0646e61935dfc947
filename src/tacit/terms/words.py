"""Terms in plain words, for participants who decide whether to take part.

`likelihood` renders (ε, δ), `honesty` names who must be honest, `handling` says what happens to an
answer; `in_words` renders everything that terms state. All of it follows from the fields of the
terms and is never signed or compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tacit.assumptions import Assumption
from tacit.rounding import percent
from tacit.signatures import fingerprint
from tacit.terms import parts
from tacit.terms.accounting import least_epsilon, pair_delta, vector_delta
from tacit.terms.context import CornerTerms, FittedTerms, MomentTerms
from tacit.terms.document import Terms
from tacit.terms.models import POST_QUANTUM_SUITE
from tacit.terms.parts import Aggregation, StatedGuarantee
from tacit.trust import TrustModel

MOST_NAMED, NAMED = 30, 5  # options that are listed in full, and how many of more than these
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))

_HANDLING = {
    TrustModel.TWO_SERVERS: "Your answer is split in two before it leaves your device; each server "
    "gets one share, which alone says nothing.",
    TrustModel.SECURE_AGGREGATION: "Your device adds noise to your answer and hides it under masks "
    "that cancel out only in the sum of many answers; the server learns that sum.",
    TrustModel.SHUFFLER: "Your device adds noise to your answer and encrypts it twice; the "
    "shuffler mixes it with others without being able to read any, and the analyzer reads them "
    "without knowing whose they are.",
    TrustModel.LOCAL: "Your device adds all of the noise to your answer before anything leaves it, "
    "so that even the message that it sends says little about your answer.",
}
_PROVEN = (
    "Together they check that the answer is one of the possible ones, and drop it if it is not, "
    "without seeing it: that nobody can spoil the result with an impossible answer needs both "
    "servers to be honest."
)
_PARAMETERS = {
    parts.DISCRETE_LAPLACE: "scale",
    parts.SKELLAM: "variance",
    parts.DISCRETE_GAUSSIAN: "standard deviation",
    parts.BINOMIAL: "variance",
    parts.CERTIFIED_POLYA: "scale",
    parts.REHEARSED: "variance",
}
_LATER = (
    "Somebody who records your report cannot read it with a quantum computer later. This does not "
    "hold for lists that servers exchange, which have no answers, nor for keys that check proofs."
)
_NOT_LATER = (
    "Somebody who records your report may be able to read it with a large quantum computer, once "
    "there is one."
)
_REHEARSAL = (
    "These are the terms of a rehearsal: nobody has checked that the noise keeps this promise, and "
    "no device takes part."
)
OBEDIENT = (
    "This protects only against a coordinator that follows the protocol: any other could invent "
    "everybody else who takes part."
)
"""First line of the guarantee where devices share the noise and no helper checks invitations."""

_CODE = {
    TrustModel.TWO_SERVERS: "If the code or the keys on your device come from one of them, it must "
    "be that one.",
    TrustModel.LOCAL: "The code on your device must not come from the server.",
}


def in_words(terms: Terms) -> list[str]:
    """Render everything that these terms state, as sentences."""
    answer, guarantee, about = terms.answer, terms.guarantee, terms.aggregation
    times = "once" if guarantee.participations == 1 else f"up to {guarantee.participations} times"
    return [
        f"The question: {terms.question}",
        *_labelled("Who asks", terms.organisation),
        *_labelled("What for", terms.purpose),
        *_labelled("Whom to write to", terms.contact),
        *_offered_options(terms),
        *choosing(terms),
        f"What is reported: {answer.meaning} ({', '.join(answer.metrics)}), from {answer.low} to "
        f"{answer.high} in {answer.levels} {_plural('step', answer.levels)}"
        f"{_labels(answer.labels)}{_window(answer.window)}.",
        f"You take part {times}, from {terms.first_day} to {terms.last_day}.",
        *handling(terms),
        *caution(terms),
        *likelihood(guarantee),
        honesty(terms),
        *([_CODE[terms.trust]] if terms.trust in _CODE else []),
        f"That is ({guarantee.epsilon}, {guarantee.delta})-DP towards {terms.view.text()}, "
        f"replacing {_noise_target(terms)} gets {_noise(terms)}, added by {terms.noise.by}.",
        *outsiders(terms),
        *(f"It assumes that {one.text()}." for one in assumed(terms)),
        *([_REHEARSAL] if terms.noise.distribution == parts.REHEARSED else []),
        f"Nothing is released for fewer than {about.minimum_batch_size} "
        f"{_plural('report', about.minimum_batch_size)}.",
        *_surplus(terms.no_show),
        f"Reports are encrypted with {terms.suite}; round keys are destroyed at most "
        f"{_duration(terms.grace)} after a round closes.",
        _LATER if terms.suite == POST_QUANTUM_SUITE else _NOT_LATER,
        *(
            f"The {party.role} is at {party.address}, with the key {fingerprint(party.key)}."
            for party in terms.parties
        ),
        "That you take part can be seen, and when your device is running.",
        "Anyone may take part, also more than once under other names."
        if terms.admission == "open"
        else f"Participants were invited by the holder of the key {fingerprint(terms.issuer)}.",
        *(
            [f"These terms take the place of {terms.predecessor.hex()[:16]}…, and promise no less."]
            if terms.predecessor
            else []
        ),
    ]


def _offered_options(terms: Terms) -> list[str]:
    """Sentences on the options that participants get."""
    if isinstance(terms.context, FittedTerms):
        return [
            f"You try up to {terms.context.plays} of these, one after the other: "
            f"{some_of(terms.options)}.",
            "Your device fits one parameter to all of your answers. What is reported are its "
            f"{terms.context.dimension} numbers, hidden as an answer is; what you answered about "
            "which one is never sent.",
        ]
    return [f"You are given one of: {some_of(terms.options)}."]


def some_of(options: Sequence[str]) -> str:
    """Options as a list; of many the first few, because the terms name them all.

    >>> some_of(["plain", "friendly"]), some_of([f"€ {n}" for n in range(200)])
    ('plain; friendly', '€ 0; € 1; € 2; € 3; € 4 and 195 others, which the signed terms name')
    """
    if len(options) <= MOST_NAMED:
        return "; ".join(options)
    rest = len(options) - NAMED
    return f"{'; '.join(options[:NAMED])} and {rest:,} others, which the signed terms name"


def choosing(terms: Terms) -> list[str]:
    """The choice of the option by the device, where it chooses; as sentences."""
    context = terms.context
    if context is None or isinstance(context, FittedTerms):
        return []
    fields, numbers = "; ".join(one.text() for one in context.fields), terms.numbers(chosen=True)
    reported = f"one of {numbers} cells of a table"
    if isinstance(context, MomentTerms):
        reported = f"{numbers} numbers, products of all of this and your answer"
    if isinstance(context, CornerTerms):
        reported += ", to which the device rounds all of this at random"
    said = [
        "Your device chooses which one, by what it knows about you and by chance. It uses: "
        f"{fields}.",
        f"What it knows about you and what it chose are never sent: the report is {reported}, "
        "hidden as an answer is. Who shows you the option may see which one it is.",
    ]
    if context.evaluation:
        said.append(
            f"{percent(context.evaluation)} of participants get an option at random instead, and "
            f"report their answer alone{_only_there(terms)}."
        )
    return said


def _only_there(terms: Terms) -> str:
    """Which metrics are reported only with an assigned option, as a clause."""
    others = terms.answer.metrics[1:]
    return f"; only they report {' and '.join(others)}" if others else ""


def outsiders(terms: Terms) -> list[str]:
    """The guarantee of Gaussian noise towards everybody but the two servers, as sentences.

    Both servers' noise counts there. A participant is in a round where the device chooses or in the
    evaluation slice, so the larger ε of both holds.
    """
    context, delta = terms.context, terms.guarantee.delta
    if not isinstance(context, (MomentTerms, FittedTerms)):
        return []
    if terms.trust is not TrustModel.TWO_SERVERS:
        return []
    report = context.report(len(terms.options), terms.answer.levels)
    wide = Fraction(float(terms.noise.least) * math.sqrt(2))

    def chosen(epsilon: Fraction) -> float:
        return vector_delta(wide, report.squared_sensitivity, report.size, epsilon, shares=2)

    def assigned(epsilon: Fraction) -> float:
        return pair_delta(terms.least_noise(chosen=False), terms.answer.levels, epsilon)

    found, metrics = least_epsilon(chosen, delta), len(terms.answer.metrics)
    if context.evaluation:  # metrics compose basically
        found = max(found, metrics * least_epsilon(assigned, delta / metrics))
    return [
        "Towards everybody but the two servers the noise of both counts: that is "
        f"({found:g}, {delta})-DP."
    ]


def handling(terms: Terms) -> list[str]:
    """The way of an answer through the parties, as sentences."""
    return [_HANDLING[terms.trust], *([_PROVEN] if terms.proofs else [])]


def likelihood(guarantee: StatedGuarantee, party: str = "you") -> list[str]:
    """Meaning of the guarantee for a participant, as sentences; numbers are rounded up.

    >>> likelihood(StatedGuarantee(Fraction(1)))  # doctest: +ELLIPSIS
    ['If you had answered differently, ... more than 2.72 times more or less likely.']
    """
    often = guarantee.participations
    said = [
        f"If {party} had answered differently, nothing that anybody learns would become more than "
        f"{factor(guarantee.epsilon)} times more or less likely."
    ]
    if often > 1:
        said.append(f"That is for all of up to {often} times together, not for each of them.")
    if guarantee.delta:
        chance = _chance(guarantee.delta)
        said.append(f"With a probability of at most {chance}, more than that may be learned.")
    return said


def caution(terms: Terms) -> list[str]:
    """The caution before the guarantee, where it is needed: `OBEDIENT`."""
    return [OBEDIENT] if terms.may_be_invented else []


def honesty(terms: Terms) -> str:
    """Parties that must be honest for the guarantee to hold, as a sentence."""
    others = _others(terms.aggregation)
    match terms.trust, terms.noise.by:
        case TrustModel.TWO_SERVERS, "servers":
            return "One of the two servers must be honest, no matter which."
        case TrustModel.TWO_SERVERS, _:
            return f"Both servers must be honest, and {others}."
        case TrustModel.SHUFFLER, _:
            return f"Shuffler and analyzer must not work together, and {others}."
        case TrustModel.SECURE_AGGREGATION, _:
            return f"The coordinator must follow the protocol, and {others}."
    return "Nobody but your own device must be honest."


def _others(aggregation: Aggregation) -> str:
    """Numbers of participants that may be dishonest or missing, as a clause."""
    part, missing, count = (
        aggregation.dishonest_fraction,
        aggregation.missing_fraction,
        aggregation.dishonest_count,
    )
    many = percent(part) if part else f"{count:,}"
    more = f" ({count:,} if that is more)" if part and count else ""
    lost = f"{percent(missing)} be missing" if missing else "none be missing"
    return f"at most {many} of a round's participants{more} may be dishonest, and {lost}"


def _chance(delta: Fraction) -> str:
    """A probability, rounded up.

    >>> _chance(Fraction(1, 10**6)), _chance(Fraction(3, 10**6)), _chance(Fraction(1, 3))
    ('1 in 1,000,000', '1 in 333,333', '34%')
    """
    if delta > Fraction(1, 10):
        return f"{math.ceil(delta * 100)}%"
    return f"1 in {delta.denominator // delta.numerator:,}"


def _noise(terms: Terms) -> str:
    """The least noise on each metric, with the parameter of its distribution."""
    noise = terms.noise
    if noise.distribution == parts.RANDOMIZED_RESPONSE:
        power = 1 / noise.least
        shown = power if power.denominator == 1 else f"({power})"
        return f"{noise.distribution}, which flips at least one answer in 1 + e^{shown}"
    if noise.distribution == parts.UNARY_ENCODING:
        shown = 2 / noise.least
        exponent = shown if shown.denominator == 1 else f"({shown})"
        return (
            f"{noise.distribution}: a fair coin for your cell, and each other cell is one with a "
            f"chance of at least 1 in 1 + e^{exponent}"
        )
    return f"{noise.distribution} noise of {_PARAMETERS[noise.distribution]} {noise.least} or more"


def _noise_target(terms: Terms) -> str:
    """Text: the secret in which neighbouring inputs differ, and the numbers that get noise."""
    if terms.context is None:
        return "your answers; each metric"
    if isinstance(terms.context, FittedTerms):
        return "all of your answers; each number"
    each = "number" if isinstance(terms.context, MomentTerms) else "cell"
    return f"what your device knows about you, your answers and its choices; each {each}"


def assumed(terms: Terms) -> list[Assumption]:
    """The assumptions of terms, in display order."""
    return sorted(terms.assumptions, key=Assumption.sort_key)


def _surplus(no_show: Fraction) -> list[str]:
    if not no_show:
        return []
    more = f"{float(1 / (1 - no_show)):.3g}"
    return [
        f"Rounds offer {more} times as many slots as they need reports, because {no_show} of all "
        "slots are expected never to report."
    ]


def _labelled(what: str, text: str) -> list[str]:
    return [f"{what}: {text}"] if text else []


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _labels(labels: tuple[str, ...]) -> str:
    return f" ({'; '.join(labels)})" if labels else ""


def _window(seconds: int) -> str:
    return f", about what happens within {_duration(seconds)}" if seconds else ""


def _duration(seconds: int) -> str:
    size, name = next((size, name) for size, name in _UNITS if seconds % size == 0)
    return f"{seconds // size} {_plural(name, seconds // size)}"


def factor(epsilon: Fraction) -> str:
    """Format e^ε, rounded up to hundredths.

    >>> factor(Fraction(1)), factor(Fraction(13)), factor(Fraction(50))
    ('2.72', '442413.4', 'e^50')
    """
    if epsilon > 20:
        return f"e^{epsilon}"
    whole, rest = divmod(math.ceil(math.exp(epsilon) * 100 * (1 + 1e-12)), 100)
    return f"{whole}.{rest:02}".rstrip("0").rstrip(".")
