"""Terms in plain words, for participants who decide whether to take part."""

from __future__ import annotations

import math
from fractions import Fraction

from tacit.assumptions import Assumption
from tacit.signatures import fingerprint
from tacit.terms.document import Terms
from tacit.terms.parts import DISCRETE_LAPLACE, REHEARSED, Noise

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))

_SPLIT = (
    "Your answer is split in two before it leaves your device; each server gets one share, which "
    "alone says nothing."
)
_MODEL = {
    "two-servers": _SPLIT,
    "verified": f"{_SPLIT} Together they check that the answer is one of the possible ones, and "
    "drop it if it is not, without seeing it: that nobody can spoil the result with an impossible "
    "answer needs both servers to be honest.",
    "masking": "Your answer leaves your device masked; the server can take the masks off a sum of "
    "answers, and off no single one as long as it follows the protocol.",
    "mixing": "Your answer is shuffled with others' before it is read; shuffler and analyzer must "
    "not work together.",
    "local": "Your device adds all of the noise before anything leaves it.",
}

_REHEARSAL = (
    "These are the terms of a rehearsal: nobody has checked that the noise keeps this promise, and "
    "no device takes part."
)


def in_words(terms: Terms) -> list[str]:
    """Render everything that these terms state, as sentences."""
    answer, promise, about = terms.answer, terms.promise, terms.aggregation
    times = "once" if promise.participations == 1 else f"up to {promise.participations} times"
    return [
        f"The question: {terms.question}",
        *_told("Who asks", terms.organisation),
        *_told("What for", terms.purpose),
        *_told("Whom to write to", terms.contact),
        f"You are given one of: {'; '.join(terms.options)}.",
        f"What is reported: {answer.meaning} ({', '.join(answer.metrics)}), from {answer.low} to "
        f"{answer.high} in {answer.levels} {_plural('step', answer.levels)}"
        f"{_window(answer.window)}.",
        f"You take part {times}, from {terms.first_day} to {terms.last_day}.",
        _MODEL[terms.kind],
        f"All that you ever report here, together, makes anything that others may find out at most "
        f"{factor(promise.epsilon)} times as likely as other answers of yours would"
        f"{_exceptions(promise.delta)}.",
        f"That is ({promise.epsilon}, {promise.delta})-DP towards {terms.view.text()}, replacing "
        f"your answers; each metric gets {terms.noise.distribution} noise of "
        f"{_width(terms.noise)}, added by {terms.noise.by}.",
        *(f"It assumes that {one.text()}." for one in assumed(terms)),
        *([_REHEARSAL] if terms.noise.distribution == REHEARSED else []),
        f"Nothing is released for fewer than {about.minimum_batch_size} "
        f"{_plural('report', about.minimum_batch_size)}.",
        *_surplus(terms.no_show),
        f"Reports are encrypted with {terms.suite}; round keys are destroyed at most "
        f"{_duration(terms.grace)} after a round closes.",
        *(
            f"The {party.role} is at {party.address}, with the key {fingerprint(party.key)}."
            for party in terms.parties
        ),
        "That you take part can be seen, and when your device is running.",
        "Whoever wants may take part, also more than once under other names."
        if terms.admission == "open"
        else f"Who takes part was invited, by whoever has the key {fingerprint(terms.issuer)}.",
        *(
            [f"These terms take the place of {terms.predecessor.hex()[:16]}…, and promise no less."]
            if terms.predecessor
            else []
        ),
    ]


def assumed(terms: Terms) -> list[Assumption]:
    """The assumptions of terms, in display order."""
    return sorted(terms.assumptions, key=Assumption.sort_key)


def _width(noise: Noise) -> str:
    """The least noise of a round, which a device checks."""
    name = "scale" if noise.distribution == DISCRETE_LAPLACE else "variance"
    return f"{name} {noise.least} or more"


def _surplus(no_show: Fraction) -> list[str]:
    if not no_show:
        return []
    more = f"{float(1 / (1 - no_show)):.3g}"
    return [
        f"Rounds offer {more} times as many slots as they need reports, because {no_show} of all "
        "slots are expected never to report."
    ]


def _told(what: str, text: str) -> list[str]:
    return [f"{what}: {text}"] if text else []


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


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


def _exceptions(delta: Fraction) -> str:
    return "" if delta == 0 else f", but for exceptions with a probability of at most {delta}"
