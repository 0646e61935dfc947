"""Experiment definitions: one TOML or YAML file that the experimenter can read and write.

`parse` turns its text into a `Definition` or reports all of its errors at once. A definition
determines the terms (the guarantee for participants), the experiment (the learner) and the timing
of its rounds. All three use the same exact fraction as the noise scale. `write` is the inverse of
`parse` and adds a comment to every entry.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import Refusal, TacitError
from tacit.service import readers
from tacit.service.readers import Reader, Wrong
from tacit.service.timing import Timing
from tacit.terms import (
    LONGEST_GRACE,
    Aggregation,
    Answer,
    Noise,
    Party,
    Promise,
    Terms,
    check_text,
)

if TYPE_CHECKING:
    from tacit.experiment import Experiment

LONGEST = 1 << 16  # characters of a file
EVENLY = Fraction(4, 5)  # of participants are split evenly until an option is shown to be worse
ROUNDS = 32  # default maximum
FINEST = 100  # levels at most by default
ANYBODY = 10**15  # horizon of an experiment that ends only by its last day
DAY = 86_400
LENGTHS = {  # maximum number of characters
    "question": 500,
    "options": 200,
    "answer.meaning": 2000,
    "organisation": 200,
    "purpose": 1000,
    "contact": 200,
}
SHORT = 100  # default maximum, for names


class DefinitionError(Refusal):
    """All errors of a definition; `problems` lists them one by one."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        count = "one thing" if len(problems) == 1 else f"{len(problems)} things"
        listed = "; ".join(f"({n}) {problem}" for n, problem in enumerate(problems, 1))
        super().__init__(
            problems[0] if len(problems) == 1 else f"the definition has {count} to mend: {listed}"
        )


def _entry(place: str, read: Reader, about: str, default: Any = MISSING) -> Any:
    """A field of the definition: its place in the file, its reader and its explanation."""
    return field(default=default, metadata={"place": place, "read": read, "about": about})


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of an experiment. Fields are entries of the file.

    Entries that are left out get defaults, some derived from others (`control`, `control_share`,
    `levels`, `most`). None means that there is no value.

    >>> definition = Definition(
    ...     question="Which greeting do people like?", options=("Hello", "Hi"),
    ...     meaning="1 if they wrote back, 0 if not", window=3600, epsilon=Fraction(1, 2),
    ...     first_day=date(2026, 11, 16), last_day=date(2026, 12, 31),
    ...     helper_address="https://helper.example", helper_key=bytes(32),
    ... )
    >>> definition.control, definition.scale, parse(write(definition)) == definition
    ('Hello', Fraction(2, 1), True)
    """

    question: str = _entry(
        "question", readers.text, "What you want to know. Everybody who takes part reads this."
    )
    organisation: str = _entry(
        "organisation", readers.text, "Who asks: the organisation that participants read.", ""
    )
    purpose: str = _entry(
        "purpose", readers.text, "What the result is for. A new purpose is shown again.", ""
    )
    contact: str = _entry(
        "contact", readers.text, "Where participants write to: an address or a page.", ""
    )
    options: tuple[str, ...] = _entry(
        "options", readers.texts, "What people are given: one of these."
    )
    control: str = _entry(
        "control",
        readers.text,
        "The option that you have today; the others are measured by it. The first, if left out.",
        "",
    )
    control_share: Fraction = _entry(
        "control_share",
        readers.part,
        "At least this part of all people get the control, and each other option as many until it\n"
        "is shown to be worse. 0: whatever looks best now. Left out: 80% of all, evenly.",
        None,
    )
    succeeds: bytes = _entry(
        "succeeds",
        readers.digest,
        "To change the options or the days of an experiment that runs: the digest of its terms.\n"
        "What is measured stays as it is, and nobody may be promised less.",
        b"",
    )
    meaning: str = _entry(
        "answer.meaning", readers.text, "What a device reports, in the words that people read."
    )
    metric: str = _entry("answer.metric", readers.text, "A short name for it.", "answer")
    low: Fraction = _entry(
        "answer.low", readers.fraction, "The least it can be; less counts as this.", Fraction(0)
    )
    high: Fraction = _entry(
        "answer.high", readers.fraction, "The most it can be; more counts as this.", Fraction(1)
    )
    levels: int = _entry(
        "answer.levels",
        readers.whole,
        "Steps between the two: 1 for yes or no, 4 for one to five stars. In between is rounded\n"
        "at random, which costs nothing on average.",
        None,
    )
    window: int = _entry(
        "answer.window",
        readers.duration,
        "How long a device watches before it reports. It reports then, whatever happened.",
    )
    participants: int | None = _entry(
        "people.participants",
        readers.whole,
        "How many people to ask in all; left out: whoever comes until the last day.",
        None,
    )
    participations: int = _entry(
        "people.participations",
        readers.whole,
        "How often one person may take part; the promise is for all of it together.",
        1,
    )
    admission: str = _entry(
        "people.admission",
        readers.one_of("open", "invitation"),
        '"open": whoever wants may take part. "invitation": those whom you invited.',
        "open",
    )
    first_day: date = _entry("people.first_day", readers.day, "The first day, in UTC.")
    last_day: date = _entry(
        "people.last_day", readers.day, "The last day; every round closes before it ends."
    )
    dropout: Fraction = _entry(
        "people.dropout",
        readers.part,
        "The part of people who may vanish before they report.",
        Fraction(1, 10),
    )
    epsilon: Fraction = _entry(
        "promise.epsilon",
        readers.above_zero,
        "The promise: whatever others find out, no answer makes it more than e^epsilon times as\n"
        "likely as another. 1 is strong, 5 is weak; a smaller one takes more people.",
    )
    min_batch_size: int = _entry(
        "promise.min_batch_size",
        readers.several,
        "No sum of fewer reports than this is ever opened.",
        20,
    )
    joining: int = _entry(
        "rounds.joining", readers.lasting, "How long a round takes in people.", 6 * 3600
    )
    margin: int = _entry(
        "rounds.margin",
        readers.twice,
        "Time after the window in which reports arrive, each at a moment drawn at random.",
        3600,
    )
    grace: int = _entry(
        "rounds.grace",
        readers.lasting,
        "How long round keys live after a round closes, so that it may still be released if a\n"
        "server was down: at most 7 days. It is part of the terms.",
        DAY,
    )
    most: int = _entry("rounds.most", readers.whole, "Rounds one after another, at most.", None)
    guardrail: str = _entry(
        "guardrail.metric",
        readers.text,
        "A second number of the same range that must not get clearly worse than the control's;\n"
        "an option that makes it so is paused. Say in answer.meaning what it is, too. Both\n"
        "numbers share the promise, so each gets twice the noise.",
        "",
    )
    guardrail_better: str = _entry(
        "guardrail.better", readers.one_of("lower", "higher"), "Which is better.", "lower"
    )
    guardrail_margin: Fraction = _entry(
        "guardrail.margin",
        readers.fraction,
        "How much worse than the control is tolerated, in units of the answer.",
        Fraction(0),
    )
    helper_address: str = _entry(
        "helper.address", readers.address, "The second server, which somebody else runs."
    )
    helper_key: bytes = _entry(
        "helper.key", readers.public_key, "Its key, as its operator told you by another way."
    )
    baseline: Fraction | None = _entry(
        "expected.baseline",
        readers.fraction,
        "For the forecast only. The mean answer that you expect today,",
        None,
    )
    lift: Fraction | None = _entry(
        "expected.lift", readers.above_zero, "how much better the best option may be,", None
    )
    per_day: int | None = _entry(
        "expected.per_day", readers.whole, "and how many people come in a day.", None
    )

    def __post_init__(self) -> None:
        said = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name, value in _completed(said).items():
            object.__setattr__(self, name, value)
        problems = list(_contradictions(vars(self)))
        if problems:
            raise DefinitionError(problems)

    @property
    def answer(self) -> Answer:
        """The content of one report."""
        names = (self.metric, self.guardrail) if self.guardrail else (self.metric,)
        return Answer(self.meaning, names, self.levels, self.window, self.low, self.high)

    @property
    def scale(self) -> Fraction:
        """Scale of each server's discrete Laplace noise: levels · participations · metrics / ε."""
        return self.levels * self.participations * len(self.answer.metrics) / self.epsilon

    @property
    def smallest(self) -> int:
        """Participants of the smallest round: the minimum batch size plus an allowance for
        dropouts.
        """
        return _smallest(self.min_batch_size, self.dropout)

    @property
    def timing(self) -> Timing:
        """The durations of a round's phases."""
        return Timing(self.joining, self.margin, self.grace)

    @property
    def round_length(self) -> int:
        """Maximum seconds from the beginning of a round until its close."""
        return self.joining + self.window + self.margin

    def terms(self, coordinator_address: str, coordinator_key: bytes) -> Terms:
        """The terms for participants, if this coordinator runs the experiment."""
        return Terms(
            question=self.question,
            options=self.options,
            answer=self.answer,
            promise=Promise(self.epsilon, participations=self.participations),
            noise=Noise(self.scale),
            parties=(
                Party("coordinator", coordinator_address, coordinator_key),
                Party("helper", self.helper_address, self.helper_key),
            ),
            first_day=self.first_day,
            last_day=self.last_day,
            aggregation=Aggregation(self.min_batch_size),
            admission=self.admission,
            issuer=coordinator_key if self.admission == "invitation" else b"",
            grace=self.grace,
            organisation=self.organisation,
            purpose=self.purpose,
            contact=self.contact,
            predecessor=self.succeeds,
        )

    def experiment(self) -> Experiment:
        """The experiment (learner and mechanism) before its first round."""
        from tacit.algorithms.registry import begin

        ends = self.participants is not None
        built = begin(
            "private-med",
            self.options,
            horizon=self.participants if ends else ANYBODY,
            anytime=not ends,
            rounds=self.most,
            epsilon=self.epsilon,
            participations=self.participations,
            trust="two-servers",
            binary=self.levels == 1,
            levels=self.levels,
            smallest=self.smallest,
            control=self.options.index(self.control),
            control_share=float(self.control_share),
            **self._guarded(),
        )
        if not self.control_share:
            built.keep_control(self.control, 0.0)
        return built

    def _guarded(self) -> dict[str, Any]:
        """The guardrail as algorithms expect it, with the margin relative to the range."""
        if not self.guardrail:
            return {}
        return {
            "guardrail": self.guardrail,
            "guardrail_better": self.guardrail_better,
            "guardrail_margin": float(self.guardrail_margin / (self.high - self.low)),
        }


ENTRIES: dict[str, Field[Any]] = {entry.metadata["place"]: entry for entry in fields(Definition)}
"""The entries of a definition by their place in the file."""


def load(path: Path | str) -> Definition:
    """Parse the definition in a file."""
    return parse(read_text(path))


def read_text(path: Path | str) -> str:
    """Read the text of a definition file, without a byte order mark."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return file.read(LONGEST + 1)
    except OSError as problem:
        raise TacitError(
            f"{path} cannot be read ({problem.strerror}): name a definition, or write one with "
            f"tacit experiment new {path}"
        ) from None
    except UnicodeDecodeError:
        raise TacitError(f"{path} is no text in UTF-8: save it as such") from None


def parse(text: str) -> Definition:
    """Parse a definition in TOML or YAML.

    >>> parse('questoin = "Which?"')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.service.definition.DefinitionError: the definition has 10 things to mend: (1) ...
    """
    if len(text) > LONGEST:
        raise DefinitionError([f"the file has more than {LONGEST:,} characters: shorten it"])
    found = dict(_flat(_yaml(text) if _is_yaml(text) else _toml(text)))
    problems = [_strange(place) for place in found if place not in ENTRIES]
    said: dict[str, Any] = {}
    for place, entry in ENTRIES.items():
        if place not in found:
            if entry.default is MISSING:
                problems.append(f"{place} is missing; {_wanted(entry)}")
            else:
                said[entry.name] = entry.default
            continue
        try:
            said[entry.name] = entry.metadata["read"](found[place])
        except Wrong as wrong:
            problems.append(f"{place} is {_shown(found[place])}; it must be {wrong}")
    problems += _contradictions(_completed(said))
    if problems:
        raise DefinitionError(list(dict.fromkeys(problems)))
    return Definition(**said)


def write(definition: Definition | Mapping[str, Any], *, yaml: bool = False) -> str:
    """Write a definition as a file, with a comment for every entry.

    Fields that a mapping lacks are written as commented placeholders.
    """
    values = vars(definition) if isinstance(definition, Definition) else definition
    lines: list[str] = []
    section = ""
    for place, entry in ENTRIES.items():
        before, _, name = place.rpartition(".")
        if before != section:
            section = before
            lines += ["", f"{section}:" if yaml else f"[{section}]"]
        indent = "  " if yaml and section else ""
        value = values.get(entry.name)
        value = None if value in ("", b"") else value
        lines += [f"{indent}# {line}" for line in entry.metadata["about"].splitlines()]
        sign = ":" if yaml else " ="
        shown = _example(entry) if value is None else readers.written(value, entry.metadata["read"])
        lines.append(f"{indent}{'# ' if value is None else ''}{name}{sign} {shown}")
    return "\n".join(lines) + "\n"


_EXAMPLES = {
    "control_share": '"1/5"',
    "participants": "20000",
    "most": str(ROUNDS),
    "baseline": "0.05",
    "lift": "0.2",
    "per_day": "1000",
    "levels": "1",
    "guardrail": '"complaints"',
}


def _example(entry: Field[Any]) -> str:
    return _EXAMPLES.get(entry.name, '"…"')


def _completed(said: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with derived defaults for missing ones."""
    found = dict(said)
    options, low, high = (found.get(name) for name in ("options", "low", "high"))
    if not found.get("control", "given") and options:
        found["control"] = options[0]
    if "control_share" in found and found["control_share"] is None and options:
        found["control_share"] = EVENLY / len(options)
    if "levels" in found and found["levels"] is None and low is not None and high is not None:
        steps = high - low
        found["levels"] = int(steps) if steps.denominator == 1 and 0 < steps <= FINEST else FINEST
    if "most" in found and found["most"] is None and found.get("participants") is not None:
        found["most"] = ROUNDS
    return found


def _contradictions(said: Mapping[str, Any]) -> Iterator[str]:
    """Violations of rules between entries, as far as the entries could be read."""
    for names, check in _RULES:
        if all(name in said for name in names):
            yield from check(*(said[name] for name in names))


def _enough_options(options: tuple[str, ...]) -> Iterator[str]:
    if len(options) < 2:
        yield f"options has {len(options)}; it must name two or more: one needs no experiment"
    looks = [_seen(name) for name in options]
    twice = [name for name, look in zip(options, looks, strict=True) if looks.count(look) > 1]
    if twice:
        yield f"options names {_shown(twice[0])} twice; give every option a name of its own"


def _known_control(control: str, options: tuple[str, ...]) -> Iterator[str]:
    if options and control not in options:
        near = difflib.get_close_matches(control, options, n=1, cutoff=0.5)
        hint = f"did you mean {_shown(near[0])}?" if near else f"write one of {', '.join(options)}"
        yield f"control is {_shown(control)}, which is none of the options; {hint}"


def _rising(low: Fraction, high: Fraction) -> Iterator[str]:
    if low >= high:
        yield f"answer.high is {high}; it must be above answer.low, which is {low}"


def _in_order(first: date, last: date) -> Iterator[str]:
    if first > last:
        yield f"people.last_day is {last}; it must not come before people.first_day, {first}"


def _room_for_a_round(
    first: date, last: date, joining: int, window: int, margin: int
) -> Iterator[str]:
    if first <= last and joining + window + margin > ((last - first).days + 1) * DAY:
        length = readers.in_words(joining + window + margin)
        yield (
            f"people.last_day is {last}; one round takes {length} (rounds.joining, answer.window "
            f"and rounds.margin), longer than from {first} until then: end later, or shorten them"
        )


def _enough_people(
    options: tuple[str, ...], participants: int | None, min_batch_size: int, dropout: Fraction
) -> Iterator[str]:
    least = 2 * len(options) * _smallest(min_batch_size, dropout)
    if participants is not None and participants < least:
        yield (
            f"people.participants is {participants}; {len(options)} options in rounds that open "
            f"from {min_batch_size} reports on need at least {least}: ask more people, or lower "
            "promise.min_batch_size"
        )


def _ends(most: int | None, participants: int | None) -> Iterator[str]:
    if most is not None and participants is None:
        yield (
            f"rounds.most is {most}, but nobody knows of how many people; give "
            "people.participants, too, or leave it out"
        )


def _forecast(
    baseline: Fraction | None, lift: Fraction | None, low: Fraction, high: Fraction
) -> Iterator[str]:
    if (baseline is None) != (lift is None):
        missing, given = ("lift", "baseline") if lift is None else ("baseline", "lift")
        yield f"expected.{missing} is missing; give it, too, or leave expected.{given} out"
    elif baseline is not None and lift is not None and low < high:
        if not low < baseline < high:
            yield (
                f"expected.baseline is {baseline}; it must lie between answer.low, {low}, and "
                f"answer.high, {high}"
            )
        elif not baseline < baseline * (1 + lift) <= high:
            yield (
                f"expected.lift is {lift}; the best option would get to {baseline * (1 + lift)}, "
                f"which must lie above expected.baseline, {baseline}, and up to answer.high, {high}"
            )


def _guarding(
    guardrail: str, metric: str, margin: Fraction, share: Fraction, low: Fraction, high: Fraction
) -> Iterator[str]:
    if guardrail and guardrail == metric:
        yield f"guardrail.metric is {_shown(guardrail)}, as answer.metric; give it another name"
    if margin and not guardrail:
        yield f"guardrail.margin is {margin}, but there is no guardrail; give guardrail.metric, too"
    if margin < 0 or low < high <= low + margin:
        yield (
            f"guardrail.margin is {margin}; it must be at least 0 and less than the answer's "
            f"range, {high - low}"
        )
    if guardrail and not share:
        yield (
            "control_share is 0, but the guardrail compares options with the control; give it a "
            "share, such as 0.2"
        )


def _short_grace(grace: int) -> Iterator[str]:
    if grace > LONGEST_GRACE:
        yield (
            f"rounds.grace is {readers.in_words(grace)}; it must be at most "
            f"{readers.in_words(LONGEST_GRACE)}, so that round keys are destroyed"
        )


def _readable(*texts: Any) -> Iterator[str]:
    """Violations of the terms' rules for texts."""
    *single, options = texts
    given = zip(_TEXTS.values(), single, strict=True)
    names = {place: words for place, words in given if words or place not in _OPTIONAL}
    for place, words in (*names.items(), *(("options", option) for option in options)):
        try:
            check_text(place, words)
        except TacitError as problem:
            yield f"{problem}; type it anew"
        most = LENGTHS.get(place, SHORT)
        if len(words) > most:
            yield f"{place} has {len(words):,} characters; people read it: at most {most:,}"
        if not _seen(words):
            yield f"{place} has nothing that can be seen; type it anew"


_TEXTS = {
    "question": "question",
    "organisation": "organisation",
    "purpose": "purpose",
    "contact": "contact",
    "meaning": "answer.meaning",
    "metric": "answer.metric",
    "guardrail": "guardrail.metric",
}
_OPTIONAL = ("organisation", "purpose", "contact", "guardrail.metric")
_RULES: tuple[tuple[tuple[str, ...], Any], ...] = (
    ((*_TEXTS, "options"), _readable),
    (("grace",), _short_grace),
    (("options",), _enough_options),
    (("control", "options"), _known_control),
    (("low", "high"), _rising),
    (("first_day", "last_day"), _in_order),
    (("first_day", "last_day", "joining", "window", "margin"), _room_for_a_round),
    (("options", "participants", "min_batch_size", "dropout"), _enough_people),
    (("most", "participants"), _ends),
    (
        ("guardrail", "metric", "guardrail_margin", "control_share", "low", "high"),
        _guarding,
    ),
    (("baseline", "lift", "low", "high"), _forecast),
)


def _seen(words: str) -> str:
    """The visible form of a text; texts that look the same compare equal."""
    plain = unicodedata.normalize("NFC", words)
    return " ".join("".join(s for s in plain if unicodedata.category(s) != "Cf").split())


def _smallest(min_batch_size: int, dropout: Fraction) -> int:
    return math.ceil(min_batch_size / (1 - dropout))


def _strange(place: str) -> str:
    """Error for an unknown entry, with the closest known entry as a hint."""
    name, last = place.rpartition(".")[2], {known.rpartition(".")[2]: known for known in ENTRIES}
    near = [
        *([last[name]] if name in last else []),
        *difflib.get_close_matches(place, ENTRIES, n=1),
        *(last[one] for one in difflib.get_close_matches(name, last, n=1)),
    ]
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(ENTRIES)}"
    return f"{place} is not known; {hint}"


def _wanted(entry: Field[Any]) -> str:
    about = " ".join(entry.metadata["about"].split())
    return f"add it: {about[0].lower()}{about[1:].rstrip('.')}"


def _shown(value: object) -> str:
    """A value from the file, shortened."""
    words = readers.quoted(value) if isinstance(value, str) else str(value)
    return words if len(words) <= 80 else f"{words[:77]}…"


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Entries by their places.

    A section that is no table counts as an ordinary entry; an empty section has no entries.
    """
    sections = {place.partition(".")[0] for place in ENTRIES if "." in place}
    for name, value in document.items():
        if name in sections and (isinstance(value, Mapping) or value == ""):
            yield from ((f"{name}.{inner}", entry) for inner, entry in dict(value).items())
        else:
            yield name, value


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, ArithmeticError, RecursionError) as problem:
        raise DefinitionError(
            [
                f"the file is no TOML ({problem}): mend that line, or write one anew with "
                "tacit experiment new"
            ]
        ) from None


def _is_yaml(text: str) -> bool:
    """Detect YAML by the first significant line.

    `name:` and `- ` are YAML; `name =` and `[name]` are TOML.
    """
    said = (line.strip() for line in text.splitlines())
    first = next((line for line in said if line and not line.startswith("#")), "")
    return bool(re.match(r"""(---|-\s|["']?[\w.-]+["']?\s*:)""", first))


def _yaml(text: str) -> dict[str, Any]:
    """Parse YAML with every scalar as text, without type guessing and without aliases."""
    try:
        import yaml
    except ImportError:
        raise TacitError(
            "reading YAML needs more than tacit alone: pip install 'tacit[live]', or write TOML"
        ) from None
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        document = None if root is None else _words(root, set())
    except (yaml.YAMLError, RecursionError) as problem:
        reason = " ".join(str(problem).split())
        raise DefinitionError([f"the file is no YAML ({reason}): mend that line"]) from None
    if not isinstance(document, dict):
        raise DefinitionError(["the file is a list or a word; write entries such as question: …"])
    return document


def _words(node: Any, seen: set[int]) -> Any:
    """The content of a YAML node as texts, lists and mappings."""
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise DefinitionError([f"line {line} is referred to by a * elsewhere: write it out there"])
    seen.add(id(node))
    if node.id == "scalar":
        return node.value
    if node.id == "sequence":
        return [_words(entry, seen) for entry in node.value]
    found: dict[str, Any] = {}
    for name, value in node.value:
        key = _words(name, seen)
        if not isinstance(key, str) or key in found:
            raise DefinitionError(
                [f"line {name.start_mark.line + 1} names {_shown(key)} once more: name it once"]
            )
        found[key] = _words(value, seen)
    return found
