"""Page for experimenters: three answers in words, then charts, then the view of each party.

Each part has a name and is replaced as a whole when it changes; the rest of the page is static.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, groupby
from typing import Any

from tacit import html
from tacit.html.charts import Axis, StepChart, evenly, time_labels
from tacit.service.pages import contexts, sentences
from tacit.service.pages.parties import drawing
from tacit.service.pages.sentences import View

COLOURS = 8
CHOSEN_LOOK = "plain"  # of rounds in which devices choose
LEAST_STEPS, MOST_STEPS = 8, 80  # on the axis of the chart of intervals
LEAST_COLUMNS, MOST_COLUMNS = 20, 40  # of the chart of rounds
DEADLINES = 3  # labels of the chart of rounds at most, which has half of the width
APART = 5  # seconds between deadlines of rounds that are not concurrent
MOST_ROWS = 60  # of the tables under charts
MOST_OPTIONS, SHOWN = 30, 20  # options that are all listed, and how many of more than these
IN_HISTORY = 8  # of many options, in the table of rounds

Parts = Mapping[str, str]


def parts(view: View, helper_reachable: bool) -> Parts:
    """Render the parts that may change while the page is open."""
    options, rounds = view["estimates"]["options"], view["status"]["rounds"]
    names = [one["option"] for one in options] or view["status"]["options"]
    colours = {name: f"o{n % COLOURS}" for n, name in enumerate(names)}
    chosen = any(one["option"] is None for one in rounds)
    looks = {None: CHOSEN_LOOK} | colours if chosen else colours
    side_by_side = columns(rounds)
    shown = evenly(steps(view["history"], side_by_side), MOST_STEPS)
    wide = max(len(shown), LEAST_STEPS)
    times, counts = [one["time"] for one in shown], [one["answers"] for one in shown]
    chart = StepChart(_axis(view, shown), wide, time_labels(times, wide, counts))
    strip = side_by_side[-MOST_COLUMNS:]
    ranked = ranking(options)
    given = {
        name: sum(one["given"] or 0 for one in rounds if one["option"] == name)
        for name in {one["option"] for one in rounds}
    }
    closing = [end for column in strip if (end := max(one["closes"] for one in column.values()))]
    values = {
        "colours": colours,
        "unnamed": contexts.SEVERAL if view["status"]["linear"] else contexts.BY_DEVICE,
        "faded": _faded,
        "number": sentences.number(view),
        "chart": chart,
        "bands": [_band(one, colours[one["option"]], shown) for one in _back_to_front(view)],
        "labels": _labels(view, chart.axis.ticks()),
        "ranked": _ranks(view, ranked) if len(options) > MOST_OPTIONS else None,
        "leading": few(options, ranked, SHOWN),
        "in_history": few(options, ranked, IN_HISTORY),
        "given": _most_given(looks, given),
        "tried": _charted_options(looks, strip),
        "looks": looks,
        "columns": strip,
        "deadlines": time_labels(closing, max(len(strip), LEAST_COLUMNS), limit=DEADLINES),
        "drawn": drawing(sentences.terms_of(view), view["passed"]),
        "most_rows": MOST_ROWS,
    }
    values |= {"whom": contexts, "intervals": _intervals(view)}
    return html.parts(
        __package__,
        "parts.html",
        view=view,
        helper_reachable=helper_reachable,
        say=sentences,
        **values,
    )


def _intervals(view: View) -> list[dict[str, Any]]:
    """The answer for each segment, with its interval in per cent of the range of answers."""
    least, most = (float(Fraction(end)) for end in view["terms"]["answer"]["range"])
    return [
        one
        | {
            f"{name}_at": 100 * min(max((one[name] - least) / (most - least), 0.0), 1.0)
            for name in ("low", "mean", "high")
        }
        for one in sentences.answers(view)
    ]


def page(view: View, made: Parts, template: str = "experiment.html", **values: Any) -> str:
    """The whole page of an experiment, by a template with its values.

    The default one takes the `version` of the page and the relative URL of the index, `root`. It
    follows changes by server-sent events.
    """
    status, holds = view["status"], _holds(view)
    shown = {"title": status["question"], "status": status, "parts": made, "holds": holds}
    shown["single"] = bool(view["estimates"]["options"])
    servers = len(view["terms"]["parties"])
    return html.render(__package__, template, servers=servers, **shown, **values)


def index(experiments: Sequence[tuple[str, str, str]], root: str) -> str:
    """The list of all experiments, given digest, question and state of each."""
    values = {"title": "Experiments", "root": root, "states": sentences.STATES}
    return html.render(__package__, "index.html", listed=experiments, **values)


def problem(title: str, text: str, root: str) -> str:
    """An error page."""
    return html.render(__package__, "problem.html", title=title, said=text, root=root)


def _holds(view: View) -> str:
    level = f"{view['estimates']['level']:.0%}"
    if all(one["always"] for one in view["estimates"]["options"]):
        model = " if the mean answer is linear in the features," if view["status"]["linear"] else ""
        return (
            f"Intervals hold at all rounds at once with {level} probability,{model} whenever one "
            "looks."
        )
    return f"Intervals are normal approximations of {level} for one look."


# Charts


def steps(
    history: Sequence[dict[str, Any]], side_by_side: Sequence[Mapping[str, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The estimates after each column of concurrent rounds, with the answers until then.

    Rounds that are held side by side close one after another within moments; they are one step.
    """
    places = {one["number"]: n for n, column in enumerate(side_by_side) for one in column.values()}
    answers = accumulate(moment["reports"] or 0 for moment in history)
    known = [moment | {"answers": count} for moment, count in zip(history, answers, strict=True)]
    grouped = groupby(known, key=lambda moment: places.get(moment["round"]))
    return [list(group)[-1] for _, group in grouped]


def ranking(options: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The options with estimates, the best first."""
    known = [one for one in options if one["mean"] is not None]
    return sorted(known, key=lambda one: (_faded(one), one["decision"] == "worse", -one["mean"]))


def few(
    options: Sequence[dict[str, Any]], ranked: Sequence[dict[str, Any]], limit: int
) -> Sequence[dict[str, Any]]:
    """Options to display: all in order, or of many only the best, best first."""
    return options if len(options) <= MOST_OPTIONS else (ranked or options)[:limit]


def _ranks(view: View, ranked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The chart of many options side by side, the best first, those ruled out last."""
    shown = [{"options": ranked}]
    chart = StepChart(_axis(view, shown), max(len(ranked), 1))
    bands = [
        (look, {n: one for n, one in enumerate(ranked) if (one["decision"] == "worse") is worse})
        for look, worse in (("o0", False), ("o1 faded", True))
    ]
    return {"chart": chart, "bands": bands, "labels": _labels(view, chart.axis.ticks())}


def _most_given(
    looks: Mapping[str | None, str], participants: Mapping[str | None, int]
) -> dict[str | None, int]:
    """The participants of each option; of many only the options with most of them."""
    counts = {name: participants.get(name, 0) for name in looks}
    if len(counts) <= MOST_OPTIONS:
        return counts
    return dict(sorted(counts.items(), key=lambda one: -one[1])[:SHOWN])


def _charted_options(
    looks: Mapping[str | None, str], strip: Sequence[Mapping[str, Any]]
) -> Mapping[str | None, str]:
    """Options with a row in the chart of rounds: all, or of many the most recently tried."""
    if len(looks) <= MOST_OPTIONS:
        return looks
    latest = dict.fromkeys(name for column in reversed(strip) for name in column)
    names = set(list(latest)[:SHOWN])
    return {name: look for name, look in looks.items() if name in names}


def _faded(option: dict[str, Any]) -> bool:
    """Whether an option is not assigned at present."""
    return option["paused"] is not None or option["decision"] in ("paused", "removed")


def _back_to_front(view: View) -> list[dict[str, Any]]:
    """Options from the back of the chart to its front: the leader is in front."""
    first = sentences.leader(view)
    best = None if first is None else first["option"]
    return sorted(
        view["estimates"]["options"],
        key=lambda one: (one["option"] == best, not _faded(one), one["mean"] or 0.0),
    )


def _band(
    option: dict[str, Any], colour: str, options: Sequence[dict[str, Any]]
) -> tuple[str, dict[int, dict[str, Any]]]:
    """The CSS classes of an option's band, and its estimates by round."""
    known = {
        n: one
        for n, moment in enumerate(options)
        for one in moment["options"]
        if one["option"] == option["option"] and one["mean"] is not None
    }
    return f"{colour}{' faded' if _faded(option) else ''}", known


def _axis(view: View, options: Sequence[dict[str, Any]]) -> Axis:
    """An axis around the last intervals and all means."""
    least, most = (float(Fraction(end)) for end in view["terms"]["answer"]["range"])
    means = [one["mean"] for moment in options for one in moment["options"]]
    known = [one for one in view["estimates"]["options"] if one["mean"] is not None]
    ends = [one[name] for one in known for name in ("low", "high")]
    return Axis.linear([value for value in [*means, *ends] if value is not None], least, most)


def _labels(view: View, ticks: Sequence[float]) -> list[str]:
    """Labels of the ticks, all with the same sufficient number of digits."""
    values = [100 * tick for tick in ticks] if sentences.percent(view) else list(ticks)
    digits = next(n for n in range(13) if all(abs(one - round(one, n)) < 1e-9 for one in values))
    return [f"{value:,.{digits}f}{'%' if sentences.percent(view) else ''}" for value in values]


def columns(rounds: Sequence[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Group rounds into columns of concurrent rounds by option, in chronological order."""
    found: list[dict[str, dict[str, Any]]] = []
    closes = 0
    for one in rounds:
        apart = abs(one["closes"] - closes) > APART and bool(closes and one["closes"])
        if not found or one["option"] in found[-1] or apart:
            found.append({})
            closes = one["closes"]
        found[-1][one["option"]] = one
    return found
