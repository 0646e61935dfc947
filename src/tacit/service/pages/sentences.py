"""Sentences of the pages: the best option, its certainty, the guarantee, the state of rounds.

They are rendered from the plain data of `tacit.service.answers`. Numbers are in the units of the
answer; answers from 0 to 1 are shown in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.service.pages.contexts import decided, whom
from tacit.service.pages.contexts import sure as decided_for
from tacit.terms import Terms
from tacit.terms.canonical import canonical
from tacit.terms.words import caution, honesty, likelihood
from tacit.trust import TrustModel

View = dict[str, Any]
"""An experiment as returned by `Coordinator.view` or `Coordinator.public`."""

OVER = ("stopped", "finished")
MOST_RIVALS = 10  # options that are named in a sentence
STATES = {
    "unsigned": "Not signed yet",
    "running": "Running",
    "paused": "Paused",
    "stopped": "Over",
    "finished": "Over",
}
ENDINGS = {
    "participants-reached": "As many answers as planned have come, or too few are left for "
    "another round.",
    "last-day-passed": "The last day has come: no further round would close in time.",
    "one-option-left": "All other options were ruled out.",
    "stopped-by-hand": "The experimenter stopped it.",
}
PROMISED = {
    TrustModel.TWO_SERVERS: "No server ever sees anybody's answer.",
    TrustModel.SECURE_AGGREGATION: "Nobody sees an answer: only sums of masked answers.",
    TrustModel.SHUFFLER: "Nobody can tell whose answer is which, and each has noise.",
    TrustModel.LOCAL: "Nobody sees an answer without noise.",
}
VERDICTS = {
    "best": "best",
    "worse": "worse",
    "open": "open",
    "unavailable": "not available",
    "paused": "paused",
    "removed": "taken out",
}


@dataclass(frozen=True)
class ShortAnswer:
    """A short answer and its details."""

    short: str
    more: str = ""


def number(view: View) -> Callable[[float | None], str]:
    """Return the formatter of answers: per cent if they range from 0 to 1.

    Noise may move a mean out of the range; the formatter clips it.
    """
    low, high = (Fraction(end) for end in view["terms"]["answer"]["range"])
    width = float(high - low)
    places = max(0, 2 - math.floor(math.log10(width)))

    def written(value: float | None) -> str:
        if value is None:
            return "–"
        within = min(max(value, float(low)), float(high))
        return _percent(within) if percent(view) else f"{within:,.{places}f}"

    return written


def percent(view: View) -> bool:
    """Whether answers range from 0 to 1."""
    return bool(view["terms"]["answer"]["range"] == ["0", "1"])


def between(view: View, estimate: dict[str, Any], name: str = "to") -> str:
    """An interval, with the same number of digits at both ends."""
    if not percent(view):
        write = number(view)
        return f"{write(estimate['low'])} {name} {write(estimate['high'])}"
    digits = 1 if estimate["high"] < 0.0995 else 0
    return f"{estimate['low']:.{digits}%} {name} {estimate['high']:.{digits}%}"


def _percent(value: float) -> str:
    return f"{value:.1%}" if 0 < value < 0.0995 else f"{value:.0%}"


def chance(value: float) -> str:
    """Format an approximate probability; never 0 or 1.

    >>> chance(0.9999), chance(0.5), chance(0.0)
    ('> 99%', '50%', '< 1%')
    """
    if value > 0.99:
        return "> 99%"
    return "< 1%" if value < 0.01 else f"{value:.0%}"


def _about(value: float) -> str:
    said = chance(value).replace(">", "more than").replace("<", "less than")
    return said if " " in said else f"about {said}"


def best(view: View) -> ShortAnswer:
    """Answer to "Which is best?"."""
    status, found = view["status"], view["estimates"]
    mine, over = leader(view), status["state"] in OVER
    if known := answers(view):
        return ShortAnswer(f"{whom(known)}.", "The device chooses; nobody else sees who gets what.")
    if mine is None:
        if over:
            return ShortAnswer(
                "Nobody knows.", "The experiment ended before any round was released."
            )
        return ShortAnswer("Nobody knows yet.", _first_round(status))
    value = f"{number(view)(mine['mean'])}, between {between(view, mine, 'and')}"
    if found["decided"]:
        return ShortAnswer(str(found["decided"]), f"{value}.")
    return ShortAnswer(str(found["best"]), f"{'Was ahead' if over else 'Leads'} with {value}.")


def answers(view: View) -> list[dict[str, Any]]:
    """Which option for whom; empty where devices do not choose, and before the first release."""
    contexts = view["estimates"]["contexts"]
    return [] if contexts is None else contexts["answers"]


def leader(view: View) -> Any:
    """The estimate of the best option so far; None if it has no estimate yet."""
    found = view["estimates"]
    name = found["decided"] or found["best"]
    mine = next((one for one in found["options"] if one["option"] == name), None)
    return None if mine is None or mine["mean"] is None else mine


def _first_round(status: dict[str, Any]) -> str:
    if status["state"] == "unsigned":
        return "Nothing begins before the helper's operator has signed the terms."
    if any(one["stage"] == "refused" for one in status["rounds"]):
        return "No round had enough answers to be released so far."
    return "No round has been released so far; answers are seen in sums only, when a round closes."


def sure(view: View) -> ShortAnswer:
    """Answer to "How sure are we?"."""
    found, mine = view["estimates"], leader(view)
    warned = _warnings(found)
    if known := answers(view):
        wrong = f"at most {1 - found['level']:.0%} of experiments, however often one looks"
        more = f"A verdict is wrong in {wrong}." if decided(known) else ""
        return ShortAnswer(decided_for(known), f"{more} {warned}".strip())
    if mine is None:
        return ShortAnswer("Not at all yet.", warned)
    wrong = f"at most {1 - found['level']:.0%} of experiments"
    if found["decided"]:
        always = all(one["always"] for one in found["options"])
        looks = "however often one looks" if always else "approximately, for one look"
        return ShortAnswer(
            "Decided: better than every other option.",
            f"Such a verdict is wrong in {wrong}, {looks}. {warned}",
        )
    over = view["status"]["state"] in OVER
    short = "Not decided: nobody can tell for sure." if over else "Not decided yet."
    others = [one for one in found["options"] if one["option"] != mine["option"]]
    rivals = [one["option"] for one in others if one["decision"] == "open"]
    many = len(rivals) > MOST_RIVALS
    running = f" Not ruled out so far: {len(rivals):,} others." if many else ""
    if rivals and not many:
        running = f" Not ruled out so far: {listed(rivals)}."
    return ShortAnswer(
        short,
        f"It is the best with a chance of {_about(mine['best'])}.{running} {warned}",
    )


def _warnings(warnings: dict[str, Any]) -> str:
    if not warnings["sample_ratio"]["mismatch"]:
        return ""
    return "Mind: answers do not come back from all options alike, so the comparison may be unfair."


def listed(names: Sequence[str]) -> str:
    """Join names with commas and "or".

    >>> listed(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def terms_of(view: View) -> Terms:
    """The signed terms of the experiment."""
    return Terms.decode(canonical(view["terms"]))


def promised(view: View) -> ShortAnswer:
    """Answer to "What were people promised?"."""
    terms = terms_of(view)
    guarantee, leader = terms.guarantee, terms.parties[terms.leader]
    delta = f" and δ = {guarantee.delta}" if guarantee.delta else ""
    page = f"Who takes part on a page of the {leader.role} must trust the {leader.role}."
    numbers = f"That is ε = {guarantee.epsilon}{delta}."
    said = (*caution(terms), *likelihood(guarantee, "a person"), numbers, honesty(terms), page)
    return ShortAnswer(PROMISED[terms.trust], " ".join(said))


def unknowns(view: View) -> list[str]:
    """An explanation of every dash and every missing end in the table of options."""
    options, control = view["estimates"]["options"], view["status"]["control"]
    others = [one for one in options if one["option"] != control and one["mean"] is not None]
    said = []
    if any(one["mean"] is None for one in options):
        said.append("–: no round of this option has been released yet.")
    if any(one["lift"] is None for one in others):
        said.append(
            "No lift: it is a multiple of the control's mean, so it needs answers from 0 on and a "
            "mean of the control above 0."
        )
    if any(one["lift"] is not None and one["lift_high"] is None for one in others):
        said.append(
            "No limit: with both options uncertain, the control's mean may still be 0, so a lift "
            "may be of any size."
        )
    return said


def lift(estimate: dict[str, Any]) -> ShortAnswer:
    """A lift and its interval.

    >>> lift({"lift": 0.5, "lift_low": -0.1, "lift_high": None}).more
    '-10% to no limit'
    """
    if estimate["lift"] is None:
        return ShortAnswer("no lift")
    low, high = (
        "no limit" if end is None else f"{end:+.0%}"
        for end in (estimate["lift_low"], estimate["lift_high"])
    )
    return ShortAnswer(f"{estimate['lift']:+.0%}", f"{low} to {high}")


def standing(view: View, helper_reachable: bool) -> str:
    """Sentence about the current state of the experiment, problems first."""
    status = view["status"]
    rounds, state = status["rounds"], status["state"]
    if not helper_reachable and state not in OVER:
        return (
            "The helper does not answer now. Nothing is lost: rounds wait for it, and devices try "
            "again until their deadline."
        )
    if state == "unsigned":
        return "The terms wait for the helper's signature; until then nobody is asked."
    if state == "paused":
        return "Nobody new is asked until it is resumed; who has a slot still reports."
    if state in OVER:
        live = any(one["stage"] in ("open", "closing") for one in rounds)
        rest = "The last rounds are closing." if live else "Nobody is asked any more."
        return f"{ENDINGS[status['ended']]} {rest}"
    ended = [one for one in rounds if one["stage"] in ("opened", "refused")]
    if ended and ended[-1]["stage"] == "refused":
        return (
            "The last round was aborted: too few answered. Its reports were destroyed, and "
            "nothing was released."
        )
    return _open(rounds)


def _open(rounds: Sequence[dict[str, Any]]) -> str:
    now = [one for one in rounds if one["stage"] == "open"]
    if not now:
        return "The next round is being prepared."
    slots = sum(one["places"] for one in now)
    if any(one["given"] is None for one in now):
        return f"The present round has {slots:,} slots; who comes is counted when it is over."
    given = sum(one["given"] for one in now)
    return f"{given:,} of {slots:,} slots of the present round are taken."


def announced(view: View, helper_reachable: bool) -> str:
    """Text for screen readers on changes; it omits counts."""
    status = view["status"]
    trouble = (
        standing(view, helper_reachable)
        if not helper_reachable or status["state"] != "running"
        else ""
    )
    parts = (best(view).short, sure(view).short, STATES[status["state"]] + ".", trouble)
    return " ".join(part for part in parts if part)


def octets(count: int) -> str:
    """Format a size.

    >>> octets(118), octets(12_345), octets(5_000_000)
    ('118 bytes', '12 KB', '5.0 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    if count < 1_000_000:
        return f"{count / 1000:.0f} KB" if count >= 10_000 else f"{count / 1000:.1f} KB"
    return f"{count / 1_000_000:.1f} MB"
