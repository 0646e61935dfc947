"""Rules between the entries of a definition, as validators of its fields.

Each validator sees the earlier entries that could be read (`info.data`), so that all errors of a
file are reported together. A rule whose entries could not be read is skipped.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo

from tacit.errors import TacitError
from tacit.readers import (
    UNITS,
    InvalidValue,
    RuleViolation,
    format_duration,
    shown,
    visible,
)
from tacit.service.context_entries import CONTEXTUAL
from tacit.service.fitted_entries import FITTED
from tacit.service.option_tables import read
from tacit.terms import ROLES
from tacit.terms.aggregation_delta import smallest_masking_delta
from tacit.terms.context import MOMENTS
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.algorithms.registry import Algorithm


CERTIFIED = "shuffle-dp-se"
"""The algorithm whose noise is certified: pure, for bits."""

BY_INVITATION = ("split-dp-se", CERTIFIED)
"""Algorithms whose rounds one invalid message aborts."""


def smallest(min_batch_size: int, dropout: Fraction) -> int:
    """Participants of the smallest round: the minimum batch size with an allowance for dropouts."""
    return math.ceil(min_batch_size / (1 - dropout))


def check_served(trust: str) -> str:
    """Check that this version serves the trust model."""
    from tacit.trust import DEPLOYABLE

    if trust not in DEPLOYABLE:
        raise InvalidValue(f"one of {', '.join(DEPLOYABLE)} in this version")
    return trust


def check_proofs(proofs: bool, info: ValidationInfo) -> bool:
    """Only two servers verify range proofs."""
    if proofs and info.data.get("trust", TrustModel.TWO_SERVERS) != TrustModel.TWO_SERVERS:
        raise RuleViolation(
            f"proofs is true, but trust is {shown(info.data['trust'])}: only two-servers verifies "
            "proofs. Leave proofs out"
        )
    return proofs


def check_suite(post_quantum: bool, info: ValidationInfo) -> bool:
    """Secure aggregation has one suite, without ML-KEM."""
    if post_quantum and info.data.get("trust") == TrustModel.SECURE_AGGREGATION:
        raise RuleViolation(
            "promise.post_quantum is true, but trust is secure-aggregation, whose masks rest on "
            "X25519. Leave promise.post_quantum out, or choose two-servers"
        )
    return post_quantum


def check_algorithm(name: str, info: ValidationInfo) -> str:
    """An algorithm for options, which fits the trust model."""
    entry = _algorithm(name)
    trust, proofs = info.data.get("trust"), info.data.get("proofs")
    if trust is not None and trust not in entry.trusts:
        raise RuleViolation(
            f"algorithm is {shown(name)}, which fits trust {' or '.join(entry.trusts)}, not "
            f"{trust}: change one of them"
        )
    if proofs and name != CONTEXTUAL and "through" not in entry.options:
        raise RuleViolation(f"proofs is true, which {name} does not support: use private-med")
    table = info.data.get("options_table")
    if table and not entry.featured:
        raise RuleViolation(
            f"options_file is given, but {name} uses no features of options: use private-pe, or "
            "list options without features"
        )
    if table == "" and entry.featured:
        raise RuleViolation(
            f"options_file is missing; {name} needs a table of options with features: name a CSV "
            "file, or use private-med"
        )
    if "plays" in info.data and (name == FITTED) != (info.data["plays"] is not None):
        raise RuleViolation(
            f"algorithm is {FITTED}, but plays is missing: say how many options each participant "
            "tries"
            if name == FITTED
            else f"plays is {info.data['plays']}, but {name} tries one option with each: use "
            f"{FITTED}, or leave plays out"
        )
    return name


def check_certified_levels(levels: int, info: ValidationInfo) -> int:
    """Certified noise is for bits."""
    if levels != 1 and info.data.get("algorithm") == CERTIFIED:
        raise InvalidValue(f"1 with algorithm {CERTIFIED}, which is for yes and no: use sdp-ae")
    return levels


def check_file_content(table: str, info: ValidationInfo) -> str:
    """Check that the content of a named file was sent: only commands read files."""
    named = info.data.get("options_file")
    if named and not table:
        raise RuleViolation(
            f"options_file is {shown(named)}, but its content is missing: publish with tacit "
            "experiment create, which sends it, or give options_table"
        )
    return table


def _algorithm(name: str) -> Algorithm:
    from tacit.algorithms.arms_problem import ArmsProblem
    from tacit.algorithms.linear_problem import LinearProblem
    from tacit.algorithms.registry import lookup

    try:
        entry = lookup(name)
    except TacitError as unknown:
        raise RuleViolation(str(unknown)) from None
    if issubclass(entry.problem, LinearProblem):
        raise RuleViolation(f"algorithm is {shown(name)}, {_why_not_live(entry)} with options_file")
    known = issubclass(entry.problem, ArmsProblem) or name == CONTEXTUAL
    if not known:
        raise RuleViolation(
            f"algorithm is {shown(name)}, which is {entry.family}; live experiments choose among "
            f"options: use private-med, or {CONTEXTUAL}"
        )
    return entry


def _why_not_live(entry: Algorithm) -> str:
    """Why the live service does not run an algorithm of LZJ22."""
    if "alpha" in entry.options:
        return f"whose clients try more options from phase to phase: use {FITTED} and plays,"
    return "whose noise of real numbers terms cannot state: use private-pe"


def has_option(algorithm: str, option: str) -> bool:
    """Whether an algorithm has this option."""
    return option in _algorithm(algorithm).options


def side_by_side(algorithm: str) -> bool:
    """Whether an algorithm tries all options of a round together, and can reserve shares."""
    return {"control_share", "rounds"} <= set(_algorithm(algorithm).options)


def shares(trust: str) -> bool:
    """Whether devices share the noise of a round."""
    return TrustModel(trust).shares_noise


def approximate(trust: str, algorithm: str) -> bool:
    """Whether the noise of an algorithm needs a δ under this trust model."""
    options = _algorithm(algorithm).options
    if not shares(trust) or "delta" not in options:
        return False
    return "trust" not in options or trust == TrustModel.SHUFFLER


def usual_delta(trust: str, statistic: str, algorithm: str) -> Fraction:
    """δ by default: 10^-6 where devices share the noise, whose protection may fail, and for
    moments and fitted parameters, whose noise is Gaussian; else 0.
    """
    excepted = shares(trust) and algorithm != CERTIFIED
    gaussian = statistic == MOMENTS or algorithm == FITTED
    return Fraction(1, 10**6) if excepted or gaussian else Fraction(0)


def masking_delta(trust: str, participations: int) -> Fraction:
    """The part of δ that secure aggregation needs by itself; 0 under other trust models."""
    masked = TrustModel(trust) is TrustModel.SECURE_AGGREGATION
    return smallest_masking_delta(participations) if masked else Fraction(0)


def check_control_share(share: Fraction, info: ValidationInfo) -> Fraction:
    """The control's share needs an algorithm that reserves one."""
    name = info.data.get("algorithm")
    if share and name is not None and not has_option(name, "control_share"):
        raise RuleViolation(
            f"control_share is {shown(share)}, which {name} does not support: leave it out, or use "
            "private-med"
        )
    return share


def check_issuer(issuer: bytes, info: ValidationInfo) -> bytes:
    """An issuer of invitations, who is needed where devices share the noise."""
    trust, admission = info.data.get("trust"), info.data.get("admission")
    if issuer and admission == "open":
        raise RuleViolation('people.issuer needs people.admission = "invitation": add it')
    if not issuer and admission == "invitation" and trust is not None and shares(trust):
        raise RuleViolation(
            f"people.issuer is missing; trust {trust} with invitations needs the key of somebody "
            "who is no party: it is in the card that tacit invitations issuer makes for them"
        )
    if admission == "open" and info.data.get("algorithm") in BY_INVITATION:
        raise RuleViolation(
            f'people.admission is "open"; {info.data["algorithm"]} is by invitation only, because '
            "one invalid message aborts a round: use invitations, or sdp-ae"
        )
    return issuer


def check_shared_noise(part: Fraction, info: ValidationInfo) -> Fraction:
    """A tolerated share of missing participants, where devices share the noise."""
    trust = info.data.get("trust")
    if part and trust is not None and not shares(trust):
        raise InvalidValue(f"0 with trust {trust}, where no device draws a share of the noise")
    return part


def check_honest_left(part: Fraction, info: ValidationInfo) -> Fraction:
    """Some participants are certain to be honest and present."""
    check_shared_noise(part, info)
    missing = info.data.get("missing", Fraction(0))
    if part + missing >= 1:
        rest = shown(1 - missing)
        raise InvalidValue(f"less than {rest}, as people.missing is {shown(missing)}")
    return part


def check_delta(delta: Fraction, info: ValidationInfo) -> Fraction:
    """δ is 0 for pure noise, and positive where the noise needs it."""
    found = info.data
    if not {"trust", "algorithm"} <= found.keys():
        return delta
    moments = found.get("statistic") == MOMENTS or found["algorithm"] == FITTED
    needed = moments or approximate(found["trust"], found["algorithm"])
    least = masking_delta(found["trust"], found.get("participations", 1))
    if needed and delta <= least:
        raise InvalidValue(
            f"above {float(least):.2g}, such as 0.000001, with algorithm {found['algorithm']}"
        )
    if delta < least:
        raise InvalidValue(
            f"at least {float(least):.2g}, such as 0.000001, with trust {found['trust']}"
        )
    if delta and not moments and not shares(found["trust"]):
        raise InvalidValue(f"0 with trust {found['trust']}, whose noise has no exceptions")
    if delta and found["algorithm"] == CERTIFIED:
        raise InvalidValue(f"0 with algorithm {CERTIFIED}, whose noise has no exceptions")
    return delta


def check_helper_entry(name: str) -> Callable[[Any, ValidationInfo], Any]:
    """An entry of the helper, where the trust model has one."""

    def check(value: Any, info: ValidationInfo) -> Any:
        trust = info.data.get("trust")
        if trust is None:
            return value
        wanted = len(ROLES[TrustModel(trust)]) > 1
        if wanted and value is None:
            raise RuleViolation(
                f"helper.{name} is missing; add it: it is in the card of the helper's operator"
            )
        if not wanted and value is not None:
            raise RuleViolation(
                f"helper.{name} is given, but trust {trust} has no helper: delete it"
            )
        return value

    return check


def check_options(options: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Check that two or more options are visibly different, and those of the table, if any."""
    table = info.data.get("options_table")
    if table and options != read(table).options:
        raise RuleViolation("options differs from the table in options_file: leave options out")
    if len(options) < 2:
        raise InvalidValue("a list of at least 2. One option needs no experiment")
    looks = Counter(visible(name) for name in options)
    twice = [name for name in options if looks[visible(name)] > 1]
    if twice:
        raise RuleViolation(f"options names {shown(twice[0])} twice; names must differ")
    return options


def check_control(control: str, info: ValidationInfo) -> str:
    """The control is one of the options."""
    options = info.data.get("options", (control,))
    if control not in options:
        near = difflib.get_close_matches(control, options, n=1, cutoff=0.5)
        hint = f" Did you mean {shown(near[0])}?" if near else ""
        raise RuleViolation(
            f"control is {shown(control)}: must be one of {', '.join(map(shown, options))}.{hint}"
        )
    return control


def check_labels(labels: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Labels of answers: none, or one for each value, which look different."""
    levels = info.data.get("levels", len(labels) - 1)
    if labels and len(labels) != levels + 1:
        raise InvalidValue(f"a list of {levels + 1}, one for each value, or left out")
    if len({visible(label) for label in labels}) < len(labels):
        raise RuleViolation("answer.labels names two values alike; names must differ")
    return labels


def check_range(high: Fraction, info: ValidationInfo) -> Fraction:
    """The range of an answer is not empty."""
    low = info.data.get("low")
    if low is not None and low >= high:
        raise InvalidValue(f"greater than answer.low, which is {shown(low)}")
    return high


def check_last_day(last: date, info: ValidationInfo) -> date:
    """The last day is not before the first."""
    first = info.data.get("first_day", last)
    if first > last:
        raise InvalidValue(f"at or after people.first_day, which is {first}")
    return last


def check_margin_fits(margin: int, info: ValidationInfo) -> int:
    """Check that one round fits between the first and the last day."""
    found = info.data
    if {"first_day", "last_day", "joining", "window"} <= found.keys():
        length = found["joining"] + found["window"] + margin
        if length > ((found["last_day"] - found["first_day"]).days + 1) * UNITS["day"]:
            raise RuleViolation(
                f"people.last_day is {found['last_day']}; it leaves no time for one round of "
                f"{format_duration(length)} (rounds.joining, answer.window and rounds.margin) "
                f"from {found['first_day']} on: end later, or shorten them"
            )
    return margin


def check_participants(min_batch_size: int, info: ValidationInfo) -> int:
    """Every option can be tried in two rounds of the minimum batch size."""
    found = info.data
    if found.get("participants") is not None and {"options", "dropout"} <= found.keys():
        lost = max(found["dropout"], found.get("missing", Fraction(0)))
        tried = len(found["options"])
        if table := found.get("options_table"):
            tried = 1 if found.get("plays") else min(tried, len(read(table).names) + 1)
        least = 2 * tried * smallest(min_batch_size, lost)
        if found["participants"] < least:
            raise RuleViolation(
                f"people.participants is {found['participants']}: must be at least {least} "
                f"for {tried} options side by side in rounds of at least {min_batch_size} "
                "reports. Ask more people, or lower promise.min_batch_size"
            )
    return min_batch_size


def check_most_rounds(rounds: int | None, info: ValidationInfo) -> int | None:
    """A maximum of rounds needs a number of participants."""
    if rounds is not None and info.data.get("participants", rounds) is None:
        raise RuleViolation(
            f"rounds.most is {rounds}, which needs people.participants: add that, or leave it out"
        )
    return rounds


def check_guardrail(guardrail: str, info: ValidationInfo) -> str:
    """The guardrail differs from the answer, and has a control to compare with."""
    if guardrail and guardrail == info.data.get("metric"):
        raise InvalidValue("another name than answer.metric")
    name = info.data.get("algorithm")
    if guardrail and name == CONTEXTUAL:
        if info.data.get("evaluation") == 0:
            raise RuleViolation(
                "contextual.evaluation is 0, but the evaluation slice measures the guardrail: give "
                "it a share, such as 0.1"
            )
        return guardrail
    if guardrail and name is not None and not has_option(name, "guardrail"):
        raise RuleViolation(
            f"guardrail.metric is {shown(guardrail)}, which {name} does not support: use "
            "private-med"
        )
    if guardrail and info.data.get("control_share") == 0:
        raise RuleViolation(
            "control_share is 0, but the guardrail compares options with the control: give the "
            "control a share, such as 0.2"
        )
    return guardrail


def check_guardrail_margin(margin: Fraction, info: ValidationInfo) -> Fraction:
    """The guardrail's margin is less than the range of the answer."""
    found = info.data
    if margin and found.get("guardrail") == "":
        raise RuleViolation(
            f"guardrail.margin is {shown(margin)}, which needs guardrail.metric: add that, or "
            "leave it out"
        )
    width = found["high"] - found["low"] if {"low", "high"} <= found.keys() else margin + 1
    if not 0 <= margin < width:
        raise InvalidValue(
            f"at least 0 and less than the range of the answer, which is {shown(width)}"
        )
    return margin


def check_expected_means(lift: Fraction | None, info: ValidationInfo) -> Fraction | None:
    """Baseline and lift are given together, and the best mean is within the range."""
    if not {"baseline", "low", "high"} <= info.data.keys():
        return lift
    baseline, low, high = (info.data[name] for name in ("baseline", "low", "high"))
    if baseline is None or lift is None:
        if baseline is not lift:
            missing, given = ("lift", "baseline") if lift is None else ("baseline", "lift")
            raise RuleViolation(
                f"expected.{missing} is missing; add it, or leave expected.{given} out"
            )
    elif not low < baseline < high:
        raise RuleViolation(
            f"expected.baseline is {shown(baseline)}: must be between answer.low, {shown(low)}, "
            f"and answer.high, {shown(high)}"
        )
    elif not baseline < baseline * (1 + lift) <= high:
        raise InvalidValue(
            f"such that the best option's mean, {shown(baseline * (1 + lift))}, is greater than "
            f"expected.baseline, {shown(baseline)}, and at most answer.high, {shown(high)}"
        )
    return lift
