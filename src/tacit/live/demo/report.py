"""The report of a live experiment, for somebody who decides: one self-contained HTML page.

Three questions are answered in words before any picture: which is best, how sure we are, what
people were promised. Then intervals by round, how people were shared out, the rounds, what was sent
and what was refused. No script, no request, light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tacit.live.demo.play import Shown
from tacit.pages import COLOURS, page


def html(shown: Shown) -> str:
    """The whole page."""
    status = shown.status
    parts = [
        f"<h1>{escape(status['question'])}</h1>",
        _first(shown),
        "<h2>What was found</h2>",
        _table(shown),
        "<h2>How sure, round by round</h2>",
        '<p class="note">Bands hold at all rounds at once with 95% probability, whenever somebody '
        "looks.</p>",
        intervals(shown.export["history"], status["options"]),
        "<h2>How people were shared out</h2>",
        shares(status["rounds"], status["options"]),
        "<h2>Rounds</h2>",
        _rounds(status["rounds"]),
        "<h2>What was sent</h2>",
        _bullets(sent(shown)),
        "<h2>What was refused</h2>",
        _bullets(refused(shown)),
        "<h2>What people were promised, word for word</h2>",
        _bullets(status["terms"]),
        '<p class="note">Both servers ran on one machine, so this shows the protocol, not the '
        "separation of trust; the people were simulated.</p>",
    ]
    return page(status["question"], parts)


def answer(shown: Shown) -> tuple[str, str, str]:
    """Which is best, how sure, what was promised: a sentence each."""
    found = shown.estimates
    best = found["decided"] or found["best"]
    mine = next(one for one in found["options"] if one["option"] == best)
    measured = (
        ""
        if mine["mean"] is None
        else f", {mine['mean']:.0%} ({mine['low']:.0%} to {mine['high']:.0%})"
    )
    sure = (
        "Decided: better than every other option; such a verdict is wrong in at most "
        f"{1 - found['level']:.0%} of experiments, whenever one looks."
        if found["decided"]
        else f"Not decided yet; it is the best with a chance of about {mine['best']:.0%}."
    )
    guarantee = shown.status["guarantee"]
    promise = (
        f"Whatever anybody finds out is at most {2.718281828 ** guarantee['epsilon']:.3g} times "
        "as likely with one person's true answer as with any other answer, as long as one of the "
        "two servers is honest."
    )
    return f"{best}{measured}", sure, promise


def sent(shown: Shown) -> list[str]:
    """What left people's devices."""
    counts = shown.counts
    each = counts.sent_bytes / max(counts.sent, 1)
    return [
        f"{counts.came:,} people came; {counts.asked:,} were asked, {counts.unasked:,} got the "
        "best option so far and were not asked.",
        f"{counts.reported:,} reported, each with two sealed halves, one to either server: "
        f"{counts.sent:,} messages of {each:.0f} bytes on average, {counts.sent_again:,} of them "
        "sent again because a connection broke.",
        f"{counts.vanished:,} vanished before they reported; {counts.unreported:,} were too late.",
        "No server ever saw an answer: only sums with the noise of both were opened.",
    ]


def refused(shown: Shown) -> list[str]:
    """What was not taken, and why."""
    counts = shown.counts
    said = {
        "nonsense": "sealed nonsense for a place that was given (taken, and found to be nonsense "
        "when the round closed: it counts for nothing)",
        "another": "a second, different report for the same place",
        "forged place": "a report for a place that was never given",
    }
    lines = [f"{counts.liars:,} people lied."]
    for name, count in sorted(counts.refused.items()):
        what, _, status = name.partition(": ")
        lines.append(f"{count:,} times {said.get(what, what)}: answered {status}.")
    small = sum(one["stage"] == "refused" for one in shown.status["rounds"])
    lines.append(
        f"{small:,} {'round' if small == 1 else 'rounds'} had too few reports: destroyed unopened."
    )
    return lines


def _first(shown: Shown) -> str:
    best, sure, promise = answer(shown)
    people = shown.status["people"]
    return (
        f'<dl class="first"><dt>Which is best?</dt><dd>{escape(best)}</dd>'
        f"<dt>How sure are we?</dt><dd>{escape(sure)}"
        f"<small>{people['reported']:,} answers, {shown.seconds:.0f} seconds</small></dd>"
        f"<dt>What were people promised?</dt><dd>{escape(promise)}</dd></dl>"
    )


def _table(shown: Shown) -> str:
    rows = []
    for place, one in enumerate(shown.estimates["options"]):
        mean = "–" if one["mean"] is None else f"{one['mean']:.1%}"
        lift = "–" if one["lift"] is None else f"{one['lift']:+.0%}"
        rows.append(
            f'<tr><td><span class="key" style="background:{_colour(place)}"></span>'
            f"{escape(one['option'])}</td><td>{one['participants']:,}</td><td>{mean}</td>"
            f"<td>{one['low']:.1%} to {one['high']:.1%}</td><td>{one['best']:.0%}</td>"
            f"<td>{lift}</td><td>{escape(one['decision'])}</td></tr>"
        )
    heads = ("option", "answers", "mean", "95% interval", "best (about)", "lift", "verdict")
    return (
        '<div class="scroll"><table><thead><tr>'
        + "".join(f'<th scope="col">{head}</th>' for head in heads)
        + "</tr></thead><tbody>"
        + "".join(rows)
        + "</tbody></table></div>"
    )


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def intervals(history: Sequence[dict[str, Any]], options: Sequence[str]) -> str:
    """Each option's interval after every round, as bands; the leader's on top."""
    wide, high, left = 720, 300, 44
    if not history:
        return "<p>No round was opened.</p>"
    ends = {one["option"]: one for one in history[-1]["options"]}
    order = sorted(options, key=lambda name: ends[name]["mean"] or 0.0)
    seen = [one for moment in history for one in moment["options"] if one["mean"] is not None]
    top = min(max((one["high"] for one in seen), default=1.0), 1.0) or 1.0
    step = (wide - left - 8) / max(len(history) - 1, 1)

    def y(value: float) -> float:
        return high - 24 - (high - 40) * min(max(value, 0.0), top) / top

    marks = [
        f'<line x1="{left}" x2="{wide}" y1="{y(top * n / 4):.1f}" y2="{y(top * n / 4):.1f}" '
        f'stroke="var(--line)"/><text x="{left - 6}" y="{y(top * n / 4) + 4:.1f}" '
        f'text-anchor="end">{top * n / 4:.0%}</text>'
        for n in range(5)
    ]
    for name in order:
        points = [
            (left + step * n, one)
            for n, moment in enumerate(history)
            for one in moment["options"]
            if one["option"] == name and one["mean"] is not None
        ]
        if points:
            marks.append(_band(points, _colour(list(options).index(name)), y))
    label = f'<text x="{(wide + left) / 2}" y="{high - 4}" text-anchor="middle">rounds</text>'
    return (
        f'<svg viewBox="0 0 {wide} {high}" role="img" aria-label="intervals of every option after '
        f'every round">{"".join(marks)}{label}</svg>'
    )


def _band(points: Sequence[tuple[float, dict[str, Any]]], colour: str, y: Any) -> str:
    upper = [f"{x:.1f},{y(one['high']):.1f}" for x, one in points]
    lower = [f"{x:.1f},{y(one['low']):.1f}" for x, one in reversed(points)]
    middle = " ".join(f"{x:.1f},{y(one['mean']):.1f}" for x, one in points)
    return (
        f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.18"/>'
        f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
    )


def shares(rounds: Sequence[dict[str, Any]], options: Sequence[str]) -> str:
    """How many were asked about each option."""
    given = {name: sum(r["given"] for r in rounds if r["option"] == name) for name in options}
    most = max([*given.values(), 1])
    bars = []
    for place, (name, count) in enumerate(given.items()):
        top, width = place * 34, 440 * count / most
        bars.append(
            f'<text x="0" y="{top + 19}">{escape(name)}</text>'
            f'<rect x="190" y="{top + 4}" width="{width:.1f}" height="20" rx="2" '
            f'fill="{_colour(place)}"/><text x="{198 + width:.1f}" y="{top + 19}">{count:,}</text>'
        )
    return (
        f'<svg viewBox="0 0 720 {34 * len(given)}" role="img" aria-label="people asked about each '
        f'option">{"".join(bars)}</svg>'
    )


def _rounds(rounds: Sequence[dict[str, Any]]) -> str:
    """A strip: a square per round, filled if it was opened."""
    named: dict[str, int] = {}
    squares = []
    for n, one in enumerate(rounds):
        place = named.setdefault(one["option"], len(named))
        x, row = 22 * (n % 32), 26 * (n // 32)
        fill = _colour(place) if one["stage"] == "opened" else "none"
        title = f"{one['option']}: {one['stage']}, {one['reports'] or 0} of {one['places']} places"
        squares.append(
            f'<rect x="{x + 1}" y="{row + 1}" width="18" height="18" rx="3" fill="{fill}" '
            f'stroke="{_colour(place)}" stroke-width="1.5"><title>{escape(title)}</title></rect>'
        )
    height = 26 * ((len(rounds) + 31) // 32)
    return (
        f'<svg viewBox="0 0 720 {max(height, 26)}" role="img" aria-label="rounds">'
        f"{''.join(squares)}</svg>"
        '<p class="note">Filled: opened. Empty: refused, because too few reported.</p>'
    )


def _bullets(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
