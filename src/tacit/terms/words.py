"""Terms in plain words, for the person who decides whether to take part."""

from __future__ import annotations

import math
from fractions import Fraction

from tacit.signatures import fingerprint
from tacit.terms.document import Terms

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))

_TRUST = {
    "two-servers": "Your answer is split in two before it leaves your device; each server gets one "
    "half, which alone says nothing.",
    "verified": "Your answer is split in two before it leaves your device; each server gets one "
    "half, which alone says nothing. Together they check that the answer is one of the possible "
    "ones, and drop it if it is not, without seeing it: that nobody can spoil the result with an "
    "impossible answer needs both servers to be honest.",
    "masking": "Your answer leaves your device masked; the server can take the masks off a sum of "
    "answers, and off no single one as long as it follows the protocol.",
    "mixing": "Your answer is mixed with others' before it is read; shuffler and analyzer must not "
    "work together.",
}

CHECKED = "discrete-laplace"  # the law whose terms are refused where they contradict themselves


def in_words(terms: Terms) -> list[str]:
    """Sentences that say everything that these terms say."""
    answer, promise = terms.answer, terms.promise
    times = "once" if promise.participations == 1 else f"up to {promise.participations} times"
    return [
        f"The question: {terms.question}",
        f"You are given one of: {'; '.join(terms.options)}.",
        f"What is reported: {answer.meaning} ({', '.join(answer.metrics)}), from {answer.low} to "
        f"{answer.high} in {answer.levels} {_plural('step', answer.levels)}"
        f"{_window(answer.window)}.",
        f"You take part {times}, from {terms.first_day} to {terms.last_day}.",
        _TRUST[terms.middle.kind],
        f"All that you ever report here, together, makes anything that others may find out at most "
        f"{factor(promise.epsilon)} times as likely as other answers of yours would"
        f"{_exceptions(promise.delta)}.",
        f"Word for word: {terms.claim()}."
        if terms.view == "other-server"
        else "This rests on noise that everybody's device adds: on enough others who take part, "
        "and on all parties below, who must follow the protocol and invent nobody.",
        *_unchecked(terms.noise.law),
        f"Nothing is opened for fewer than {terms.middle.crowd} "
        f"{_plural('report', terms.middle.crowd)}.",
        *(
            f"The {party.role} is at {party.address}, with the key {fingerprint(party.key)}."
            for party in terms.parties
        ),
        "That you take part can be seen, and when your device is running.",
        "Whoever wants may take part, also more than once under other names."
        if terms.admission == "open"
        else "Who takes part was invited.",
        *(
            [f"These terms take the place of {terms.predecessor.hex()[:16]}…, and promise no less."]
            if terms.predecessor
            else []
        ),
    ]


def _unchecked(law: str) -> list[str]:
    """What terms are refused for where they contradict themselves is known of one law only."""
    if law == CHECKED:
        return []
    return [f"Nobody has checked here that {law} noise keeps this promise: ask whoever made it."]


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _window(seconds: int) -> str:
    if not seconds:
        return ""
    size, name = next((size, name) for size, name in _UNITS if seconds % size == 0)
    count = seconds // size
    return f", about what happens within {count} {_plural(name, count)}"


def factor(epsilon: Fraction) -> str:
    """e^ε, rounded up to hundredths.

    >>> factor(Fraction(1)), factor(Fraction(13)), factor(Fraction(50))
    ('2.72', '442413.4', 'e^50')
    """
    if epsilon > 20:
        return f"e^{epsilon}"
    whole, rest = divmod(math.ceil(math.exp(epsilon) * 100 * (1 + 1e-12)), 100)
    return f"{whole}.{rest:02}".rstrip("0").rstrip(".")


def _exceptions(delta: Fraction) -> str:
    return "" if delta == 0 else f", but for exceptions with a probability of at most {delta}"
