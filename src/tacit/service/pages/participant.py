"""Page for participants: the terms, their assumptions, and the steps of taking part.

The template holds the text of every step, in HTML templates. The script (`take-part.js`) selects
one and fills in the device's data as text. Without a script participants can read the terms;
nothing is sent.
"""

from __future__ import annotations

from tacit import html
from tacit.service.readers import in_words as duration
from tacit.terms import Terms, in_words
from tacit.terms.words import factor


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
        digest=terms.digest.hex(),
        lines=in_words(terms),
        within=f", about the next {duration(answer.window)}" if answer.window else "",
        factor=factor(terms.promise.epsilon),
        unanswered=min(max(answer.low, 0), answer.high),
    )
