"""Sentences about contexts: which option for whom, how sure that is, and what choosing gains.

They are rendered from the plain data of `tacit.service.answers.contexts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_NAMED = 6
BY_DEVICE = "chosen on the device"
SEVERAL = "several, with one fit each"

Answers = Sequence[Mapping[str, Any]]


def whom(answers: Answers) -> str:
    """Which option for whom, by as few fields as decide it.

    >>> answers = [
    ...     {"context": {"device": device, "new": new}, "option": option}
    ...     for device, option in (("phone", "A"), ("desktop", "B")) for new in ("yes", "no")
    ... ]
    >>> whom(answers)
    'A for device phone; B for device desktop'
    """
    if len({one["option"] for one in answers}) == 1:
        return f"{answers[0]['option']} for everybody"
    for field in answers[0]["context"]:
        found: dict[str, set[str]] = {}
        for one in answers:
            found.setdefault(str(one["context"][field]), set()).add(one["option"])
        if all(len(options) == 1 for options in found.values()):
            named = [(next(iter(options)), value) for value, options in found.items()]
            return _group_options([(option, value) for option, value in named], f"{field} ")
    return _group_options([(one["option"], _values(one["context"])) for one in answers], "")


def _values(context: Mapping[str, Any]) -> str:
    return " ".join(map(str, context.values()))


def _group_options(named: Sequence[tuple[str, str]], prefix: str) -> str:
    """Text of options, each with the values of the context that it is for."""
    options = dict.fromkeys(option for option, _ in named)
    return "; ".join(
        f"{option} for {prefix}{_enumerate([value for own, value in named if own == option])}"
        for option in options
    )


def _enumerate(values: Sequence[str]) -> str:
    shown = [*values[:MOST_NAMED]]
    if len(values) > MOST_NAMED:
        shown.append(f"{len(values) - MOST_NAMED} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def decided(answers: Answers) -> int:
    """The number of segments in which the option is shown to be the best."""
    return sum(one["decision"] == "best" for one in answers)


def sure(answers: Answers) -> str:
    """Number of decided segments, as a sentence."""
    count, of = decided(answers), len(answers)
    if count == of:
        return "Decided for everybody."
    return f"Decided for {count} of {of} segments." if count else "Not decided yet."


def described(context: Mapping[str, Any]) -> str:
    """A segment in words.

    >>> described({"device": "phone", "returning": "no"})
    'device phone, returning no'
    """
    return ", ".join(f"{name} {value}" for name, value in context.items())


def gained(gains: Sequence[Mapping[str, Any]]) -> list[str]:
    """Gain of choosing by context over one option for everybody, as sentences.

    >>> gained([{"option": "A", "gain": 0.1, "low": 0.02, "high": 0.2}])
    ['Against A for everybody, choosing by context gains +0.100 (+0.020 to +0.200).']
    """
    return [
        f"Against {one['option']} for everybody, choosing by context gains {one['gain']:+.3f} "
        f"({one['low']:+.3f} to {one['high']:+.3f})."
        for one in gains
    ]
