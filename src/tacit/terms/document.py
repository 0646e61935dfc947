"""What people are promised, as one document with one spelling.

Terms are JSON with sorted keys, integers and strings; fractions are strings such as "1/3". Their
SHA-256 digest is the experiment's name in every round description, seal and key derivation. The
layout is in docs/wire-formats.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from functools import cached_property
from typing import Any

from tacit.checks import Refusal, TacitError
from tacit.signatures import KEY_SIZE

VERSION = 2
DIGEST_SIZE = 32
LONGEST = 1 << 16  # bytes of a document
LARGEST = (1 << 53) - 1  # integers that every reader of JSON holds exactly

ROLES = {
    "two-servers": ("coordinator", "helper"),
    "verified": ("coordinator", "helper"),
    "masking": ("coordinator",),
    "mixing": ("shuffler", "analyzer"),
}
"""The parties of each kind of middle, in the order of their keys and signatures."""

VIEWS = {
    ("two-servers", "servers"): "other-server",
    ("two-servers", "devices"): "opened-sum",
    ("verified", "servers"): "other-server",
    ("masking", "devices"): "opened-sum",
    ("mixing", "devices"): "shuffled",
}
"""Towards whom the promise holds, by the middle and by who adds the noise."""

CLAIM = (
    "for an honest device that has pinned both servers' keys from a source that is neither server "
    "and runs code (page included) served by neither, all of a person's participations and metrics "
    "under these terms and their successors together are ({epsilon}, {delta})-DP (computationally; "
    "replacing the answers; taking part is visible) towards the other server, the collector and "
    "all other participants together, as long as one of the two servers is honest; if one server "
    "supplies keys or code, that server must be the honest one"
)
"""What terms with two servers and noise of their own say, word for word."""

_DAY = 86_400
_FIRST_OF_1970 = date(1970, 1, 1).toordinal()
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,39})(/[1-9][0-9]{0,39})?")
_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def canonical(document: object) -> bytes:
    """The one spelling of a document: keys sorted, no spaces, UTF-8; integers and strings only.

    >>> canonical({"b": [1, "1/3"], "a": "ö"}).decode()
    '{"a":"ö","b":[1,"1/3"]}'
    """
    _only_plain(document)
    try:
        return json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
    except UnicodeEncodeError:
        raise TacitError("a text of the terms holds half a character: write it anew") from None


def parsed(data: bytes) -> Any:
    """The document that these bytes are the one spelling of."""
    if len(data) > LONGEST:
        raise Refusal(
            f"terms have {len(data)} bytes; at most {LONGEST} are read: shorten the texts"
        )
    try:
        document = json.loads(data.decode("utf-8", "strict"))
        same = canonical(document) == data
    except (ValueError, RecursionError) as problem:
        raise Refusal(f"these are no terms: {problem}") from None
    if not same:
        raise Refusal(
            "terms are not in canonical form: keys sorted, no spaces, no escapes but those of "
            "JSON's control characters; write them with tacit.terms.canonical"
        )
    return document


@dataclass(frozen=True)
class Answer:
    """What one report says: a number per metric, from `low` to `high` in so many levels, of what
    happened within the observation window (seconds).
    """

    meaning: str
    metrics: tuple[str, ...] = ("answer",)
    levels: int = 1
    window: int = 0
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)


@dataclass(frozen=True)
class Promise:
    """(ε, δ) for everything that one person ever sends under these terms and their successors."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    participations: int = 1


@dataclass(frozen=True)
class Noise:
    """Who adds which noise to every number: `scale` is that of discrete Laplace noise."""

    scale: Fraction
    by: str = "servers"
    law: str = "discrete-laplace"


@dataclass(frozen=True)
class Middle:
    """Which intermediary, and the least number of reports that a round is opened for.

    Masking also says what its graph withstands: which parts of the people may drop out or be
    corrupt, and which claim is made.
    """

    kind: str = "two-servers"
    crowd: int = 1
    dropout: Fraction = Fraction(0)
    corrupt: Fraction = Fraction(0)
    claim: str = "semi-honest"


@dataclass(frozen=True)
class Party:
    """Who runs a server: its address and its long-term Ed25519 key."""

    role: str
    address: str
    key: bytes


@dataclass(frozen=True)
class Terms:
    """The terms of one experiment; see the module. Contradictions are refused when they are made.

    >>> parties = tuple(
    ...     Party(role, f"https://{role}.example", bytes([n]) * 32)
    ...     for n, role in enumerate(ROLES["two-servers"])
    ... )
    >>> terms = Terms(
    ...     question="Which greeting do people like?",
    ...     options=("Hello", "Hi"),
    ...     answer=Answer("1 if you liked it, 0 if not", window=60),
    ...     promise=Promise(Fraction(1), participations=2),
    ...     noise=Noise(Fraction(2)),
    ...     parties=parties,
    ...     first_day=date(2026, 11, 16),
    ...     last_day=date(2026, 12, 31),
    ... )
    >>> Terms.decode(terms.encode()) == terms, len(terms.digest)
    (True, 32)
    """

    question: str
    options: tuple[str, ...]
    answer: Answer
    promise: Promise
    noise: Noise
    parties: tuple[Party, ...]
    first_day: date
    last_day: date
    middle: Middle = field(default_factory=Middle)
    admission: str = "open"
    predecessor: bytes = b""

    def __post_init__(self) -> None:
        _check_texts(self)
        _check_numbers(self)
        _check_parties(self)
        wanted = self.answer.levels * self.promise.participations * len(self.answer.metrics)
        if (
            self.noise.law == "discrete-laplace"
            and self.noise.scale * self.promise.epsilon < wanted
        ):
            raise TacitError(
                f"noise of scale {self.noise.scale} does not earn epsilon {self.promise.epsilon}: "
                f"{self.answer.levels} levels, {self.promise.participations} participations and "
                f"{len(self.answer.metrics)} metrics need a scale of at least "
                f"{Fraction(wanted) / self.promise.epsilon}"
            )

    def __hash__(self) -> int:
        return hash(self.digest)

    def document(self) -> dict[str, Any]:
        """The terms as plain data."""
        answer, promise, noise, middle = self.answer, self.promise, self.noise, self.middle
        return {
            "admission": self.admission,
            "answer": {
                "levels": answer.levels,
                "meaning": answer.meaning,
                "metrics": list(answer.metrics),
                "range": [str(answer.low), str(answer.high)],
                "window": answer.window,
            },
            "first_day": self.first_day.isoformat(),
            "guarantee": {
                "delta": str(promise.delta),
                "epsilon": str(promise.epsilon),
                "neighbours": "replace-one",
                "participations": promise.participations,
                "view": self.view,
            },
            "last_day": self.last_day.isoformat(),
            "middle": {"crowd": middle.crowd, "kind": middle.kind} | self._withstands(),
            "noise": {"by": noise.by, "law": noise.law, "scale": str(noise.scale)},
            "options": list(self.options),
            "parties": [
                {"address": party.address, "key": party.key.hex(), "role": party.role}
                for party in self.parties
            ],
            "predecessor": self.predecessor.hex(),
            "question": self.question,
            "version": VERSION,
        }

    def _withstands(self) -> dict[str, str]:
        if self.middle.kind != "masking":
            return {}
        middle = self.middle
        parts = {"corrupt": str(middle.corrupt), "dropout": str(middle.dropout)}
        return parts | {"claim": middle.claim}

    @cached_property
    def view(self) -> str:
        """Towards whom the promise holds."""
        return VIEWS[self.middle.kind, self.noise.by]

    def encode(self) -> bytes:
        """The one spelling of these terms."""
        return self._spelled

    @cached_property
    def _spelled(self) -> bytes:
        return canonical(self.document())

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the spelling: the experiment's name."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> Terms:
        """The terms that these bytes spell; refused if they are no terms, or contradict
        themselves.
        """
        document = parsed(data)
        try:
            terms = _read(document)
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            reason = str(problem) if isinstance(problem, TacitError) else repr(problem)
            raise Refusal(f"these terms make no sense: {reason}") from None
        if terms.document() != document:
            raise Refusal("these terms say more, or other things, than terms of version 2 can say")
        return terms

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The parties' long-term keys, in the order of their roles."""
        return tuple(party.key for party in self.parties)

    @property
    def cost(self) -> Fraction:
        """What one round may cost a person: ε in as many parts as there are participations."""
        return self.promise.epsilon / self.promise.participations

    @property
    def first_second(self) -> int:
        """The beginning of the first day, in seconds since 1970."""
        return _seconds(self.first_day)

    @property
    def last_second(self) -> int:
        """The end of the last day, in seconds since 1970."""
        return _seconds(self.last_day, days=1)

    def claim(self) -> str:
        """The promise of two servers in words; other middles have theirs in docs/security.md."""
        if self.view != "other-server":
            raise TacitError(f"the claim is about two servers' own noise; this is {self.view}")
        return CLAIM.format(epsilon=self.promise.epsilon, delta=self.promise.delta)


def _seconds(day: date, days: int = 0) -> int:
    """The beginning of a day, or of one so many days later, in seconds since 1970."""
    return (day.toordinal() - _FIRST_OF_1970 + days) * _DAY


def _only_plain(value: object) -> None:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not isinstance(key, str) or not re.fullmatch("[a-z_]+", key):
                raise TacitError(f"{key!r} is no key of terms: small letters and underscores")
            _only_plain(entry)
    elif isinstance(value, list):
        for entry in value:
            _only_plain(entry)
    elif isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TacitError(f"{value!r} has no place in terms: integers, strings, lists and objects")
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise TacitError(f"{value} is too large for terms: integers stay within ±{LARGEST}")


def _fraction(text: object) -> Fraction:
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise TacitError(f"{text!r} is no fraction such as 2 or 1/3")
    return Fraction(text)


def _read(document: Any) -> Terms:
    answer, promise, middle = document["answer"], document["guarantee"], document["middle"]
    noise, (low, high) = document["noise"], answer["range"]
    withstands = (
        (_fraction(middle["dropout"]), _fraction(middle["corrupt"]), middle["claim"])
        if middle["kind"] == "masking"
        else ()
    )
    return Terms(
        document["question"],
        tuple(document["options"]),
        Answer(
            answer["meaning"],
            tuple(answer["metrics"]),
            answer["levels"],
            answer["window"],
            _fraction(low),
            _fraction(high),
        ),
        Promise(
            _fraction(promise["epsilon"]), _fraction(promise["delta"]), promise["participations"]
        ),
        Noise(_fraction(noise["scale"]), noise["by"], noise["law"]),
        tuple(
            Party(party["role"], party["address"], bytes.fromhex(party["key"]))
            for party in document["parties"]
        ),
        date.fromisoformat(document["first_day"]),
        date.fromisoformat(document["last_day"]),
        Middle(middle["kind"], middle["crowd"], *withstands),
        document["admission"],
        bytes.fromhex(document["predecessor"]),
    )


def check_text(what: str, text: object) -> None:
    """Refuses what people could not read."""
    if not isinstance(text, str) or not text.strip() or text != text.strip():
        raise TacitError(f"{what} is {text!r}; it must be a text without spaces around it")
    if any(unicodedata.category(sign) in ("Cc", "Cs") or sign in _TURNING for sign in text):
        raise TacitError(f"{what} holds characters that cannot be seen: {text!r}")


def _check_texts(terms: Terms) -> None:
    texts = {
        "the question": terms.question,
        "what an answer means": terms.answer.meaning,
        **{f"option {place}": text for place, text in enumerate(terms.options)},
        **{f"metric {place}": text for place, text in enumerate(terms.answer.metrics)},
        **{f"the {party.role}'s address": party.address for party in terms.parties},
    }
    for what, text in texts.items():
        check_text(what, text)
    for what, several in (("option", terms.options), ("metric", terms.answer.metrics)):
        if len(set(several)) != len(several) or not several:
            raise TacitError(f"every {what} needs a name of its own, and there must be one")


def _check_numbers(terms: Terms) -> None:
    wholes = {
        "levels": (terms.answer.levels, 1),
        "window": (terms.answer.window, 0),
        "participations": (terms.promise.participations, 1),
        "crowd": (terms.middle.crowd, 1),
    }
    for what, (number, least) in wholes.items():
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number < 1 << 32:
            raise TacitError(f"{what} is {number!r}; it must be a whole number from {least} on")
    fractions = (terms.answer.low, terms.answer.high, terms.promise.epsilon, terms.promise.delta)
    parts = (terms.middle.dropout, terms.middle.corrupt)
    for fraction in (*fractions, *parts, terms.noise.scale):
        if not isinstance(fraction, Fraction):
            raise TacitError(f"{fraction!r} is no fraction: write Fraction('1/10')")
        _fraction(str(fraction))
    if not (terms.promise.epsilon > 0 and 0 <= terms.promise.delta < 1 and terms.noise.scale > 0):
        raise TacitError("epsilon and the noise's scale must be above 0, and delta from 0 to 1")
    if terms.answer.low >= terms.answer.high or any(not 0 <= part < 1 for part in parts):
        raise TacitError("an answer's range must rise, and parts of people lie from 0 to 1")
    if (terms.middle.kind, terms.noise.by) not in VIEWS:
        known = "; ".join(f"{kind} with noise by {by}" for kind, by in VIEWS)
        raise TacitError(
            f"{terms.middle.kind!r} with noise by {terms.noise.by!r} is none of {known}"
        )
    own = terms.noise.by == "servers"
    if own and (terms.noise.law != "discrete-laplace" or terms.promise.delta):
        raise TacitError("two servers' own noise is discrete Laplace noise, and delta is 0")
    if not re.fullmatch("[a-z-]+", terms.noise.law) or not re.fullmatch(
        "[a-z-]+", terms.middle.claim
    ):
        raise TacitError("a law and a claim are named in small letters and hyphens")
    if terms.admission not in ("open", "invitation"):
        raise TacitError(f"admission is {terms.admission!r}; it must be open or invitation")
    if terms.first_day > terms.last_day:
        raise TacitError(f"the first day {terms.first_day} comes after the last {terms.last_day}")
    if len(terms.predecessor) not in (0, DIGEST_SIZE):
        raise TacitError("a predecessor is named by its digest of 32 bytes, or is empty")


def _check_parties(terms: Terms) -> None:
    roles = tuple(party.role for party in terms.parties)
    if roles != ROLES[terms.middle.kind]:
        raise TacitError(
            f"the parties are {', '.join(roles) or 'none'}; {terms.middle.kind} has "
            f"{', '.join(ROLES[terms.middle.kind])}, in this order"
        )
    if {len(key) for key in terms.keys} != {KEY_SIZE} or len(set(terms.keys)) != len(terms.keys):
        raise TacitError(f"every party has a key of its own, of {KEY_SIZE} bytes")
