"""Page for experimenters: three answers in words, then charts, then the view of each party.

Each part has a name and is replaced as a whole when it changes; the rest of the page is static.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tacit.service.pages import drawing, sentences
from tacit.service.pages.document import document
from tacit.service.pages.drawing import arrow
from tacit.service.pages.markup import Content, Safe, tag
from tacit.service.pages.sentences import View, number, octets

MOST_ROWS = 60  # of the tables under charts

Parts = dict[str, Safe]


def parts(view: View, up: bool) -> Parts:
    """Render the parts that may change while the page is open; `up`: whether the helper
    responds.
    """
    return {
        "state": _state(view, up),
        "answers": _answers(view),
        "people": _people(view),
        "intervals": drawing.intervals(view),
        "options": _options(view),
        "history": _history(view),
        "shares": _shares(view),
        "rounds": _rounds(view),
        "round-list": _round_list(view),
        "parties": _parties(view, up),
    }


def sections(view: View, made: Parts, *, take_part: str | None = None) -> list[Safe]:
    """The body of the page; `take_part` is the address of the participant's page."""
    terms: list[str] = view["status"]["terms"]
    invitation = None
    if take_part is not None:
        link = tag("a", "See what a participant sees", href=take_part)
        invitation = tag("p", link, class_="action")
    return [
        tag("h1", view["status"]["question"]),
        _part(made, "state", class_="state"),
        _part(made, "answers"),
        _part(made, "people"),
        invitation or Safe(""),
        _section(
            "How sure, round by round",
            _part(made, "intervals"),
            _part(made, "options"),
            _note(_holds(view)),
            _more("Every round as a table", _part(made, "history")),
        ),
        _section("How people were shared out", _part(made, "shares")),
        _section(
            "Rounds",
            _part(made, "rounds"),
            _legend(),
            _more("Every round as a table", _part(made, "round-list")),
        ),
        _section("Who sees what", _part(made, "parties")),
        _section(
            "What people were promised",
            tag("p", "The terms that both servers signed, and that every device checked."),
            _more("Word for word", tag("ul", [tag("li", line) for line in terms])),
        ),
    ]


def page(view: View, made: Parts, version: str, root: str) -> Safe:
    """The whole page of an experiment, which follows changes by server-sent events."""
    digest = view["status"]["digest"]
    live = tag("p", class_="live", id="live", data_stream=f"{digest}/live", data_seen=version)
    told = tag("p", class_="unseen", id="told", role="status")
    script = tag("noscript", tag("p", "Load this page again to see what is new.", class_="note"))
    foot = tag(
        "p",
        "Everything here is made of sums with noise and of counts: looking costs nobody any "
        "privacy. Experiment ",
        tag("code", digest[:16]),
        ".",
        class_="note",
    )
    body = sections(view, made, take_part=f"{digest}/take-part")
    return document(
        view["status"]["question"],
        root,
        [*body],
        foot=[live, told, script, foot],
        module="live.js",
        crumb=True,
    )


def index(listed: Sequence[tuple[str, str, str]], root: str) -> Safe:
    """The list of all experiments, given digest, question and state of each."""
    rows: Content = [
        tag(
            "li",
            tag("a", question, href=f"e/{digest}"),
            tag("span", sentences.STATES[state], class_=f"chip {state}"),
        )
        for digest, question, state in listed
    ]
    if not listed:
        empty = tag(
            "p",
            "No experiment yet. Whoever runs this coordinator begins one with ",
            tag("code", "tacit experiment new"),
            ".",
        )
        return document("Experiments", root, [tag("h1", "Experiments", class_="big"), empty])
    title = tag("h1", "Experiments", class_="big")
    return document("Experiments", root, [title, tag("ul", rows, class_="list")])


def problem(title: str, said: str, root: str) -> Safe:
    """An error page."""
    back = tag("p", tag("a", "All experiments", href=root or "./"))
    return document(title, root, [tag("h1", title, class_="big"), tag("p", said), back])


# Parts


def _part(made: Parts, name: str, class_: str = "") -> Safe:
    return tag("div", made[name], id=name, class_=f"part {class_}".strip())


def _section(title: str, *content: Content) -> Safe:
    return tag("section", tag("h2", title), *content)


def _note(said: str) -> Safe:
    return tag("p", said, class_="note")


def _more(title: str, content: Safe) -> Safe:
    return tag("details", tag("summary", title), content)


def _state(view: View, up: bool) -> Safe:
    state = view["status"]["state"]
    trouble = not up and state not in sentences.OVER
    chip = tag("span", sentences.STATES[state], class_=f"chip {state}")
    said = tag("span", sentences.standing(view, up), class_="trouble" if trouble else None)
    return tag("p", chip, " ", said)


def _answers(view: View) -> Safe:
    questions: Sequence[tuple[str, Callable[[View], sentences.Said]]] = (
        ("Which is best?", sentences.best),
        ("How sure are we?", sentences.sure),
        ("What were people promised?", sentences.promised),
    )
    pairs = []
    for question, answer in questions:
        said = answer(view)
        mark = None
        if answer is sentences.best and (first := sentences.leader(view)) is not None:
            mark = drawing.swatch(view, first["option"])
        more = tag("small", said.more)
        title = tag("strong", mark, said.short)
        pairs.append(tag("div", tag("dt", question), tag("dd", title, more)))
    return tag("dl", pairs, class_="answers")


def _people(view: View) -> Safe:
    people = view["status"]["people"]
    figures = (
        ("asked so far", people["asked"]),
        ("answers counted", people["reported"]),
        ("requests without a slot", people["served"]),
        ("planned in all", people["planned"]),
    )
    pairs = [tag("div", tag("dt", name), tag("dd", f"{count:,}")) for name, count in figures]
    return tag("dl", pairs, class_="figures")


def _holds(view: View) -> str:
    level = f"{view['estimates']['level']:.0%}"
    if all(one["always"] for one in view["estimates"]["options"]):
        return f"Intervals hold at all rounds at once with {level} probability, whenever one looks."
    return f"Intervals are normal approximations of {level} for one look."


def _table(label: str, heads: Sequence[str], rows: Sequence[Content], class_: str = "") -> Safe:
    head = tag("tr", [tag("th", head, scope="col") for head in heads])
    table = tag("table", tag("thead", head), tag("tbody", rows), class_=class_)
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _options(view: View) -> Safe:
    write = number(view)
    rows = []
    for one in view["estimates"]["options"]:
        interval = "–" if one["mean"] is None else sentences.between(view, one)
        chance = "–" if one["mean"] is None else sentences.chance(one["best"])
        cells = (
            write(one["mean"]),
            interval,
            sentences.VERDICTS["paused" if one["paused"] else one["decision"]],
            chance,
            "–" if one["lift"] is None else f"{one['lift']:+.0%}",
        )
        name = tag("th", _named(view, one["option"]), scope="row")
        kind = "faded" if drawing.faded(one) else None
        rows.append(tag("tr", name, [tag("td", cell) for cell in cells], class_=kind))
    control = view["status"]["control"]
    lift = "Lift" if control is None else f"Lift against {control}"
    heads = ("Option", "Mean", f"{view['estimates']['level']:.0%} interval", "Verdict")
    return _table("Options", (*heads, "Chance to be best", lift), rows, "options")


def _named(view: View, option: str) -> Safe:
    return tag("span", drawing.swatch(view, option), tag("span", option), class_="named")


def _history(view: View) -> Safe:
    names = [one["option"] for one in view["estimates"]["options"]]
    rows = []
    for moment in reversed(view["history"][-MOST_ROWS:]):
        known = {one["option"]: one for one in moment["options"]}
        cells = [_interval(view, known.get(name)) for name in names]
        what = "refused" if moment["reports"] is None else f"{moment['reports']:,} answers"
        title = tag("th", f"{moment['round'] + 1}", scope="row")
        about = tag("td", f"{moment['option']}, {what}")
        rows.append(tag("tr", title, about, [tag("td", cell) for cell in cells]))
    return _table("What was known after every round", ("Round", "About", *names), rows, "long")


def _interval(view: View, one: dict[str, Any] | None) -> str:
    if one is None or one["mean"] is None:
        return "–"
    return f"{number(view)(one['mean'])} ({sentences.between(view, one)})"


def _shares(view: View) -> Safe:
    rounds = view["status"]["rounds"]
    names = [one["option"] for one in view["estimates"]["options"]]
    given = {
        name: sum(one["given"] or 0 for one in rounds if one["option"] == name) for name in names
    }
    most, total = max([*given.values(), 1]), max(sum(given.values()), 1)
    rows = [
        tag(
            "li",
            _named(view, name),
            drawing.bar(view, name, count / most),
            tag("span", tag("span", f"{count:,}"), tag("span", f"{count / total:.0%}")),
        )
        for name, count in given.items()
    ]
    return tag("ul", rows, class_="rows bars")


def _rounds(view: View) -> Safe:
    rows = [
        tag("li", _named(view, one["option"]), drawing.strip(view, one["option"]))
        for one in view["estimates"]["options"]
    ]
    return tag("ul", rows, class_="rows")


def _legend() -> Safe:
    kinds = (("opened", "opened"), ("open", "open"), ("refused", "refused, unopened"))
    shown = [
        tag(
            "li",
            tag(
                "svg",
                drawing.cell({"stage": stage, "given": 1, "places": 2}, "plain"),
                viewBox="0 0 24 24",
                class_="key",
                aria_hidden=drawing.HIDDEN,
            ),
            words,
        )
        for stage, words in kinds
    ]
    return tag("ul", shown, class_="legend")


def _round_list(view: View) -> Safe:
    rows = []
    for one in reversed(view["status"]["rounds"][-MOST_ROWS:]):
        counted = "–" if one["stage"] != "opened" else f"{one['reports']:,}"
        cells = (
            one["option"],
            one["stage"],
            f"{'–' if one['given'] is None else format(one['given'], ',')} of {one['places']:,}",
            counted,
            _moment(one["closes"]),
        )
        title = tag("th", str(one["number"] + 1), scope="row")
        rows.append(tag("tr", title, [tag("td", cell) for cell in cells]))
    heads = ("Round", "Option", "Stage", "Places taken", "Answers", "Deadline")
    return _table("All rounds", heads, rows, "long")


def _moment(seconds: int) -> Content:
    """A time in UTC, which a script may show in the reader's locale."""
    if not seconds:
        return "–"
    when = datetime.fromtimestamp(seconds, UTC)
    return tag("time", f"{when:%d %b %H:%M} UTC", datetime=when.isoformat())


# Views of the parties


def _parties(view: View, up: bool) -> Safe:
    passed, people = view["passed"], view["status"]["people"]
    first, second = (party["address"] for party in view["terms"]["parties"])
    halves = f"{passed['reports']:,} sealed halves"
    devices = _party(
        "People's devices",
        f"{people['asked']:,} were asked",
        "Each splits its answer in two, seals the halves, and sends them at a time that was fixed "
        "before the answer.",
        (),
        "people",
    )
    coordinator = _party(
        "Coordinator",
        first,
        "It answers.",
        (
            ("sees", "how many got which option; sums with the noise of both servers"),
            ("never", "anybody's answer"),
        ),
        "coordinator",
    )
    helper = _party(
        "Helper",
        second,
        "It answers." if up else "It does not answer.",
        (("sees", "the other halves, its own noise"), ("never", "anybody's answer, or the sum")),
        "helper" if up else "helper down",
    )
    return tag(
        "div",
        devices,
        arrow("a", halves, octets(passed["coordinator_bytes"])),
        coordinator,
        arrow("b", halves, octets(passed["helper_bytes"])),
        helper,
        arrow("c", _sums(passed["sums"]), octets(passed["sums_bytes"])),
        class_="parties",
    )


def _sums(count: int) -> str:
    return f"{count:,} noisy sum{'' if count == 1 else 's'}"


def _party(name: str, where: str, how: str, lines: Sequence[tuple[str, str]], class_: str) -> Safe:
    known = [tag("div", tag("dt", what), tag("dd", said)) for what, said in lines]
    return tag(
        "div",
        tag("h3", name),
        tag("p", where, class_="where"),
        tag("p", how, class_="how"),
        tag("dl", known) if known else None,
        class_=f"party {class_}",
    )
