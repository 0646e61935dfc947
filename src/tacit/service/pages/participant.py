"""Page for participants: the terms, their assumptions, and the steps of taking part.

The text of every step is here, in HTML templates. The script (`take-part.js`) selects a template
and fills in the device's data as text. Without a script participants can read the terms; nothing is
sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.service.pages.document import document
from tacit.service.pages.drawing import arrow
from tacit.service.pages.markup import Content, Safe, tag
from tacit.service.readers import in_words as lasting
from tacit.terms import Answer, Terms, in_words
from tacit.terms.words import factor

OVER = ("stopped", "finished")


def page(terms: Terms, state: str, root: str) -> Safe:
    """The whole page."""
    first, second = terms.parties
    digest = terms.digest.hex()
    now = tag(
        "section",
        tag("h2", "Take part", id="step", tabindex="-1"),
        tag("div", _before(state), id="now", class_="part now"),
        aria_labelledby="step",
    )
    body: list[Content] = [
        tag("h1", terms.question),
        _terms(terms),
        _rests_on(terms),
        now,
        _left(terms),
        _ledger(),
        tag("p", class_="unseen", id="told", role="status"),
        _templates(terms),
    ]
    about = tag(
        "div",
        body,
        id="about",
        data_address=first.address,
        data_digest=digest,
        data_coordinator=first.key.hex(),
        data_helper=second.key.hex(),
    )
    foot = tag(
        "p",
        "Experiment ",
        tag("code", digest[:16]),
        ". ",
        tag("a", "What has been found so far", href=f"{root}e/{digest}"),
        class_="note",
    )
    return document(terms.question, root, [about], foot=[foot], module="take-part.js")


def _before(state: str) -> Content:
    if state == "unsigned":
        return tag("p", "This experiment has not begun: the helper has not signed its terms yet.")
    return [
        tag(
            "noscript",
            tag(
                "p",
                "Taking part needs JavaScript: your answer is split and sealed here, in your "
                "browser, before anything leaves it. Nothing has been sent.",
            ),
        ),
        tag("p", "Your browser is checking the terms.", class_="needs-script", hidden=True),
    ]


# Terms and assumptions


def _terms(terms: Terms) -> Safe:
    answer, promise = terms.answer, terms.promise
    often = "once" if promise.participations == 1 else f"up to {promise.participations} times"
    lines = (
        ("You get", f"one of these, by chance: {'; '.join(terms.options)}."),
        ("You report", f"{answer.meaning}{_within(answer)}. You take part {often}."),
        (
            "It is sent",
            "at a time that is fixed before you answer, whatever you answer, and also if you "
            "answer nothing.",
        ),
        (
            "It is split",
            "in two sealed halves before it leaves, one for each of two servers. One half alone "
            "is as good as random numbers.",
        ),
        (
            "Others learn",
            f"sums of at least {terms.aggregation.minimum_batch_size} answers, with noise. All "
            "that you ever report "
            f"here makes whatever they find out at most {factor(promise.epsilon)} times as likely "
            "as other answers would.",
        ),
        ("Others see", "that you take part, and when your device is running."),
    )
    pairs = [tag("div", tag("dt", what), tag("dd", said)) for what, said in lines]
    return tag(
        "section",
        tag("h2", "What you agree to"),
        tag("dl", pairs, class_="terms"),
        tag(
            "details",
            tag("summary", "Word for word"),
            tag("ul", [tag("li", line) for line in in_words(terms)]),
        ),
    )


def _within(answer: Answer) -> str:
    return f", about the next {lasting(answer.window)}" if answer.window else ""


def _rests_on(terms: Terms) -> Safe:
    return tag(
        "section",
        tag("h2", "What this rests on"),
        tag(
            "p",
            "This page comes from the coordinator, ",
            tag("code", terms.parties[0].address),
            ". A page can read what is typed into it, and it brought the keys that your answer is "
            "sealed with. ",
            tag("strong", "So here you trust the coordinator."),
            " Against a dishonest coordinator take part with an app, or with a page that comes "
            "from neither server; then it is enough that one of the two is honest.",
        ),
        class_="mind",
    )


# Data sent


def _left(terms: Terms) -> Safe:
    devices = tag("div", tag("h3", "This device"), tag("p", "Nothing has left it.", id="here"))
    ways = [_lane("ab"[n], party.role, party.address) for n, party in enumerate(terms.parties)]
    tells = (
        ("It can tell", "that you took part in a round about this option, and when."),
        (
            "It cannot tell",
            "your answer. Both halves are needed for that, and each server adds up its halves with "
            "noise before anything leaves it.",
        ),
    )
    pairs = [tag("div", tag("dt", what), tag("dd", said)) for what, said in tells]
    return tag(
        "section",
        tag("h2", "What left this device"),
        tag("div", tag("div", devices, class_="party people"), ways, class_="lanes"),
        tag("dl", pairs, class_="terms"),
    )


def _lane(place: str, role: str, address: str) -> list[Safe]:
    size = tag("span", "nothing yet", data_bytes=role)
    return [
        arrow(place, size, data_lane=role),
        tag(
            "div",
            tag("h3", role.capitalize()),
            tag("p", address, class_="where"),
            tag("p", "–", class_="how", data_fate=role),
            class_=f"party {role}",
        ),
    ]


def _ledger() -> Safe:
    return tag(
        "section",
        tag("h2", "Your ledger"),
        tag(
            "p",
            "This browser keeps count of what you have given away here: ",
            tag("strong", "–", id="spent"),
            ". Nothing of it is sent.",
        ),
        tag(
            "p",
            tag("button", "Save a copy", type="button", id="export", class_="quiet", disabled=True),
            " ",
            tag("label", "Add a copy from another device", for_="import", class_="button quiet"),
            tag("input", type="file", id="import", accept=".json", class_="unseen", disabled=True),
            class_="actions",
        ),
        tag("p", id="ledger-said", class_="note", role="status"),
    )


# Steps


def _templates(terms: Terms) -> list[Safe]:
    """A template per step; `data-say` marks the fields that the script fills in."""
    option = tag("p", _say("option"), class_="option")
    due = tag("p", "Sent at ", tag("strong", _say("sends")), ", in ", _say("left"), ".")
    leave = tag("button", "Withdraw", type="button", data_do="withdraw", class_="quiet")
    again = tag("button", "Take part again", type="button", data_do="join", class_="quiet")
    steps: dict[str, tuple[str, Sequence[Content]]] = {
        "fresh": (
            "Take part",
            [
                tag("p", "Your browser has checked the terms against both servers' signatures."),
                *_invitation(terms),
                tag("button", "I agree: take part", type="button", data_do="join"),
                tag("p", "Nothing about you is asked, and no name is given.", class_="note"),
            ],
        ),
        "unasked": (
            "You get",
            [
                option,
                tag(
                    "p",
                    "You are not asked: no place is free now, so this is the best option so far. "
                    "Nothing about you leaves this device. You may ask again in a minute.",
                ),
                tag("button", "Ask again", type="button", data_do="join", class_="quiet"),
            ],
        ),
        "waiting": (
            "You get",
            [
                option,
                _form(terms),
                due,
                tag(
                    "p",
                    "Keeping an answer sends nothing; you may change it until then. If you keep "
                    "none, ",
                    _nothing(terms.answer),
                    " is sent.",
                    class_="note",
                ),
                tag("p", _say("network"), class_="trouble"),
                tag("p", leave, class_="actions"),
            ],
        ),
        "sealed": (
            "Sealed",
            [
                option,
                tag("p", "Your answer is sealed and is being sent, at the time fixed before."),
                tag("p", _say("network"), class_="trouble"),
            ],
        ),
        "sent": (
            "Sent",
            [
                option,
                tag(
                    "p",
                    "Both halves have arrived. The round closes at ",
                    tag("strong", _say("deadline")),
                    "; then the sum is opened, if enough have answered.",
                ),
            ],
        ),
        "opened": (
            "Counted",
            [
                option,
                tag(
                    "p",
                    f"The round was opened: your answer is part of a sum of at least "
                    f"{terms.aggregation.minimum_batch_size}, with noise. Thank you.",
                ),
                *([tag("p", again, class_="actions")] if terms.promise.participations > 1 else []),
            ],
        ),
        "refused": (
            "Not counted",
            [
                option,
                tag(
                    "p",
                    "Too few took part in your round. It was destroyed unopened; both servers have "
                    "signed that, and your ledger has its part back.",
                ),
                tag("p", again, class_="actions"),
            ],
        ),
        "unknown": (
            "Unknown",
            [
                option,
                tag(
                    "p",
                    "The servers do not say what became of your round. What it cost stays in your "
                    "ledger, to be safe.",
                ),
                tag("p", again, class_="actions"),
            ],
        ),
        "missed": (
            "Too late",
            [
                option,
                tag(
                    "p",
                    "This device was not running when your answer was due, and the deadline is "
                    "over. Nothing was sent.",
                ),
                tag("p", again, class_="actions"),
            ],
        ),
        "withdrawn": (
            "You have withdrawn",
            [
                tag("p", "What had not been sent is deleted."),
                tag("p", again, class_="actions"),
            ],
        ),
        "turned-down": (
            "Your browser refuses",
            [
                tag("p", _say("why"), class_="trouble"),
                tag("p", "Nothing has been sent."),
                tag("button", "Check again", type="button", data_do="open", class_="quiet"),
            ],
        ),
        "offline": (
            "No connection",
            [
                tag("p", _say("why"), class_="trouble"),
                tag("p", "Nothing is lost. It is tried again by itself."),
                tag("button", "Try now", type="button", data_do="open", class_="quiet"),
            ],
        ),
        "unable": (
            "This browser cannot take part",
            [
                tag(
                    "p",
                    "It has no means to seal your answer here. Open this page over https, in a "
                    "current browser. Nothing has been sent.",
                    class_="trouble",
                )
            ],
        ),
    }
    return [
        tag("template", content, id=f"step-{name}", data_title=title)
        for name, (title, content) in steps.items()
    ]


def _say(name: str) -> Safe:
    return tag("span", data_say=name)


def _invitation(terms: Terms) -> list[Safe]:
    if terms.admission != "invitation":
        return []
    field = tag("input", id="invitation", autocomplete="off", spellcheck="false")
    return [tag("p", tag("label", "Your invitation", for_="invitation"), field, class_="field")]


def _nothing(answer: Answer) -> str:
    """The value sent if nothing is recorded: zero, or the value of the range nearest to zero."""
    return str(min(max(answer.low, 0), answer.high))


def _form(terms: Terms) -> Safe:
    answer = terms.answer
    yes_or_no = answer.levels == 1 and answer.low == 0 and answer.high == 1
    kind = _choice if yes_or_no else _number
    fields = [kind(answer, place, metric) for place, metric in enumerate(answer.metrics)]
    kept = tag("p", _say("recorded"), class_="note kept")
    keep = tag("button", "Keep my answer", type="submit")
    return tag("form", fields, keep, kept, data_do="record")


def _choice(answer: Answer, place: int, metric: str) -> Safe:
    buttons = [
        tag(
            "label",
            tag("input", type="radio", name=metric, value=value, required=True),
            value,
            class_="choice",
        )
        for value in ("1", "0")
    ]
    return tag("fieldset", tag("legend", _asked(answer, place, metric)), buttons)


def _number(answer: Answer, place: int, metric: str) -> Safe:
    name = f"answer-{place}"
    field = tag(
        "input",
        type="number",
        id=name,
        name=metric,
        min=float(answer.low),
        max=float(answer.high),
        step="any",
        required=True,
        inputmode="decimal",
    )
    return tag("p", tag("label", _asked(answer, place, metric), for_=name), field, class_="field")


def _asked(answer: Answer, place: int, metric: str) -> str:
    """Label of an answer: the meaning, and the metric's name if there are several."""
    if len(answer.metrics) == 1:
        return answer.meaning
    return f"{answer.meaning}: {metric}" if not place else metric
