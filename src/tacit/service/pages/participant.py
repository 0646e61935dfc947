"""Page for participants: the terms, their assumptions, and the steps of taking part.

The template holds the text of every step, in HTML templates. The script (`take-part.js`) selects
one and fills in the device's data as text. Without a script participants can read the terms;
nothing is sent.
"""

from __future__ import annotations

from tacit import html
from tacit.readers import format_duration as duration
from tacit.rounding import percent
from tacit.service.pages.sentences import OVER
from tacit.terms import HPKE_SUITES, Answer, FittedTerms, Terms, in_words
from tacit.terms.context import MOMENTS, TABLE
from tacit.terms.parts import BINOMIAL, DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, RANDOMIZED_RESPONSE
from tacit.terms.visibility import visibility
from tacit.terms.words import caution, handling, honesty, likelihood, some_of
from tacit.trust import TrustModel

IN_BROWSERS = {
    TrustModel.TWO_SERVERS: ("servers", (DISCRETE_LAPLACE, DISCRETE_GAUSSIAN)),
    TrustModel.LOCAL: ("devices", (DISCRETE_LAPLACE, RANDOMIZED_RESPONSE)),
    TrustModel.SHUFFLER: ("devices", (BINOMIAL,)),
}
"""Trust models that the browser's device supports, the party that adds the noise, and the noise."""

WHICH_BROWSERS = (
    "Browsers take part with two servers, with or without proofs, with bits through a shuffler, "
    "and in the local model; where the device chooses, over two servers"
)

BY_CHANCE = "one of these, by chance: {}."
BY_CONTEXT = (
    "one of these: {}. Your device chooses, by what you state and by chance; neither is sent."
)
SEVERAL = "up to {} of these, one after the other: {}."

OTHERS_LEARN = {
    TrustModel.TWO_SERVERS: "sums of at least {} answers, with noise, and nothing else about your "
    "answer.",
    TrustModel.SECURE_AGGREGATION: "sums of at least {} answers, with noise, and nothing else "
    "about your answer.",
    TrustModel.SHUFFLER: "the answers of at least {} people with their noise, in random order.",
    TrustModel.LOCAL: "your answer with its noise, and nothing else about it; what is released is "
    "about at least {} people.",
}
CANNOT_TELL = {
    TrustModel.TWO_SERVERS: "your answer. Both shares are needed for that, and each server adds up "
    "its shares with noise before anything leaves it.",
    TrustModel.SECURE_AGGREGATION: "your answer. It is masked, and the masks cancel out only in "
    "the sum of a round, which has noise.",
    TrustModel.SHUFFLER: "your answer. The shuffler cannot read it; the analyzer, who reads all of "
    "them with their noise, cannot tell which is yours.",
    TrustModel.LOCAL: "your answer for sure. What was sent has so much noise that any other answer "
    "might have given the same.",
}


def page(terms: Terms, state: str, root: str) -> str:
    """The whole page."""
    answer = terms.answer
    return html.render(
        __package__,
        "participant.html",
        title=terms.question,
        root=root,
        terms=terms,
        state=state,
        over=state in OVER,
        browsers=in_browsers(terms),
        which_browsers=WHICH_BROWSERS,
        digest=terms.digest.hex(),
        lines=in_words(terms),
        within=f", about the next {duration(answer.window)}" if answer.window else "",
        handling=handling(terms),
        protection=[*caution(terms), *likelihood(terms.guarantee)],
        honesty=honesty(terms),
        receivers=[one for one in terms.parties if one.role in visibility(terms).receivers],
        you_get=_received_options(terms),
        **_disclosures(terms),
        choices=choices(answer),
        unanswered=_unanswered(answer),
    )


def _received_options(terms: Terms) -> str:
    """The options that a participant may get, as the end of a sentence."""
    if isinstance(terms.context, FittedTerms):
        return SEVERAL.format(terms.context.plays, some_of(terms.options))
    return (BY_CHANCE if terms.context is None else BY_CONTEXT).format(some_of(terms.options))


def in_browsers(terms: Terms) -> bool:
    """Whether the browser's device can take part under these terms."""
    by, distributions = IN_BROWSERS.get(terms.trust, ("", ()))
    noise = terms.noise
    drawn = noise.by == by and noise.distribution in distributions
    return drawn and terms.suite == HPKE_SUITES[0] and _chosen_in_browsers(terms)


def _chosen_in_browsers(terms: Terms) -> bool:
    """Whether browsers support these terms: no choice on the device, or a table or moments."""
    if terms.context is None:
        return True
    alone, summed = len(terms.answer.metrics) == 1, terms.trust is TrustModel.TWO_SERVERS
    return alone and summed and terms.context.statistic in (TABLE, MOMENTS)


def _disclosures(terms: Terms) -> dict[str, str]:
    """Sentences on what other parties learn from a report, and what they cannot learn."""
    minimum, context = terms.aggregation.minimum_batch_size, terms.context
    if context is None:
        return {
            "others_learn": OTHERS_LEARN[terms.trust].format(minimum),
            "can_tell": "that you took part in a round about this option, and when.",
            "cannot_tell": CANNOT_TELL[terms.trust],
        }
    if isinstance(context, FittedTerms):
        return {
            "others_learn": f"{context.dimension} sums of the parameters that the devices of at "
            f"least {minimum} people fitted to their answers, with noise; nothing else about you.",
            "can_tell": "that you took part in a round, and when.",
            "cannot_tell": f"what you answered about any option, or {CANNOT_TELL[terms.trust]}",
        }
    cells = context.numbers(len(terms.options))
    share = (
        f" In rounds of the {percent(context.evaluation)} who get an option at random, also which."
        if context.evaluation
        else ""
    )
    learned = f"how many of at least {minimum} people are in each of {cells} cells of"
    if context.statistic == MOMENTS:
        learned = f"{cells} sums over at least {minimum} people, of products of"
    return {
        "others_learn": f"{learned} what they state, option and answer, with noise; nothing else "
        "about you.",
        "can_tell": f"that you took part in a round, and when.{share}",
        "cannot_tell": f"what you stated, what your device chose or {CANNOT_TELL[terms.trust]}",
    }


def choices(answer: Answer) -> list[tuple[str, str]]:
    """The values that participants choose from, with their words; of two, the higher one first.

    >>> choices(Answer("whether you slept well", labels=("No", "Yes")))
    [('1', 'Yes'), ('0', 'No')]
    """
    found = [(str(answer.value(level)), label) for level, label in enumerate(answer.labels)]
    return found[::-1] if len(found) == 2 else found


def _unanswered(answer: Answer) -> str:
    """The value sent for a participant without an answer: zero, or the value next to it."""
    value = min(max(answer.low, 0), answer.high)
    return next((f"“{label}”" for own, label in choices(answer) if own == str(value)), str(value))
