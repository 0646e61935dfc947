"""Signed terms of an experiment: one canonical JSON document, version 3.

Terms are JSON with sorted keys, integers and strings; fractions are strings such as "1/3". Their
SHA-256 digest identifies the experiment in every round description, encryption and key derivation.
Fields that nothing uses yet have one allowed value. docs/wire-formats.md specifies the layout. This
module does not sign or verify; `tacit.signatures` and `pinned` do.
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

from tacit.assumptions import (
    Assumption,
    BoundedAdversary,
    DishonestAtMost,
    HonestDevice,
    HonestServers,
    NonColludingShuffler,
    PinnedKeys,
    ReleasedOnlyAbove,
    Scope,
    SemiHonestServer,
)
from tacit.errors import Refusal, TacitError
from tacit.signatures import KEY_SIZE
from tacit.trust import TrustModel, View

VERSION = 3
DIGEST_SIZE = 32
LONGEST = 1 << 16  # most bytes of a document
LARGEST = (1 << 53) - 1  # largest integer that every JSON parser represents exactly
LONGEST_GRACE = 7 * 86_400
"""Longest time in seconds that round keys may live after a round closes, in any terms."""

ROLES = {
    TrustModel.TWO_SERVERS: ("coordinator", "helper"),
    TrustModel.SECURE_AGGREGATION: ("coordinator",),
    TrustModel.SHUFFLER: ("shuffler", "analyzer"),
    TrustModel.LOCAL: ("coordinator",),
}
"""The parties of each trust model, in the order of their keys and signatures."""

VIEWS = {
    (TrustModel.TWO_SERVERS, "servers"): View.OTHER_SERVER,
    (TrustModel.TWO_SERVERS, "devices"): View.OPENED_SUM,
    (TrustModel.SECURE_AGGREGATION, "devices"): View.OPENED_SUM,
    (TrustModel.SHUFFLER, "devices"): View.SHUFFLED,
    (TrustModel.LOCAL, "devices"): View.MESSAGE,
}
"""The adversary's view, by trust model and by the party that adds the noise."""

KINDS = {
    (TrustModel.TWO_SERVERS, 0): "two-servers",
    (TrustModel.TWO_SERVERS, 1): "verified",
    (TrustModel.SECURE_AGGREGATION, 0): "masking",
    (TrustModel.SHUFFLER, 0): "mixing",
    (TrustModel.LOCAL, 0): "local",
}
"""The wire name of rounds, by trust model and range proofs."""

HPKE_SUITES = (
    "hpke-x25519-aes128gcm",
    "hpke-x25519-chacha20poly1305",
    "hpke-mlkem768x25519-chacha20poly1305",
)
"""Cipher suites of report encryption (RFC 9180, HKDF-SHA256), the default first."""

MASKING_SUITE = "masking-x25519-chacha20poly1305"
POST_QUANTUM_SUITE = HPKE_SUITES[2]

DISCRETE_LAPLACE = "discrete-laplace"
"""The distribution of noise: `Terms` verifies its minimum against epsilon."""

REHEARSED = "rehearsed"
"""In place of a distribution: terms of rehearsals in one process, whose noise is not verified.

Devices and live parties reject such terms (`check_live`).
"""

SHARE_DIVISOR = "certain"
"""Share divisor rule: the reports certain to be honest and present draw enough noise."""

SEMI_HONEST = "semi-honest"

_DAY = 86_400
_FIRST_OF_1970 = date(1970, 1, 1).toordinal()
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,39})(/[1-9][0-9]{0,39})?")
_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def canonical(document: object) -> bytes:
    """Encode a document canonically: sorted keys, no spaces, UTF-8, integers and strings only.

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
    """Decode a document; reject bytes that are not in canonical form."""
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
    """The content of one report: a number per metric, from `low` to `high` in `levels` steps.

    It is about what happened within the observation window of `window` seconds.
    """

    meaning: str
    metrics: tuple[str, ...] = ("answer",)
    levels: int = 1
    window: int = 0
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)


@dataclass(frozen=True)
class Promise:
    """The (ε, δ) guarantee for all reports of one participant under these terms and successors."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    participations: int = 1


@dataclass(frozen=True)
class Noise:
    """The noise on every metric, and the party that adds it.

    `minimum` is a lower bound on the noise that a round announces: the scale of discrete Laplace
    noise, the variance in terms of rehearsals. None stands for the value that `scale` gives.
    `share_divisor` names the rule by which a round divides noise among devices.
    """

    scale: Fraction
    by: str = "servers"
    distribution: str = DISCRETE_LAPLACE
    minimum: Fraction | None = None
    share_divisor: str = SHARE_DIVISOR

    def __post_init__(self) -> None:
        if self.minimum is None:
            object.__setattr__(self, "minimum", self.parameter)

    @property
    def parameter(self) -> Fraction:
        """The quantity that `minimum` bounds: the scale, or its square, the variance."""
        return self.scale if self.distribution == DISCRETE_LAPLACE else self.scale**2

    @property
    def least(self) -> Fraction:
        """`minimum`, after it was set."""
        assert self.minimum is not None
        return self.minimum


@dataclass(frozen=True)
class Aggregation:
    """Minimum batch size, and how many participants of a round may be missing or dishonest.

    `claim` names the adversary that secure aggregation withstands.

    >>> Aggregation(20, dishonest_count=3, dishonest_fraction=Fraction(1, 10)).dishonest(64)
    6
    """

    minimum_batch_size: int = 1
    missing_fraction: Fraction = Fraction(0)
    dishonest_count: int = 0
    dishonest_fraction: Fraction = Fraction(0)
    claim: str = SEMI_HONEST

    def missing(self, slots: int) -> int:
        """How many of `slots` reports may be missing."""
        part = self.missing_fraction
        return slots * part.numerator // part.denominator

    def dishonest(self, slots: int) -> int:
        """How many of `slots` participants may be dishonest; at least one is honest."""
        part = self.dishonest_fraction
        tolerated = max(self.dishonest_count, slots * part.numerator // part.denominator)
        return min(tolerated, slots - 1)


@dataclass(frozen=True)
class Party:
    """The operator of a server: its address and its long-term Ed25519 key."""

    role: str
    address: str
    key: bytes


@dataclass(frozen=True)
class Terms:
    """The terms of one experiment; the constructor rejects contradictions.

    Parameters
    ----------
    question, options, answer
        The question to participants, in words that they read.
    promise, noise, aggregation
        The guarantee and its requirements on every round.
    parties
        The operators of the servers of the trust model, in the order of `ROLES`.
    first_day, last_day
        The days on which rounds may close.
    trust, proofs
        The trust model; `proofs` is 1 where two servers verify range proofs.
    admission, issuer
        "open", or "invitation" with the Ed25519 key that signs invitations.
    suite
        The cipher suite of report encryption; empty stands for the default of the trust model.
    grace
        Seconds that round keys live after a round closes, at most `LONGEST_GRACE`.
    no_show
        The fraction of assigned slots that never report; 0 in this version.
    organisation, purpose, contact
        Controller, purpose and address for complaints; may be empty.
    predecessor
        The digest of the terms that these succeed, or empty.

    Raises
    ------
    TacitError
        If a field is invalid or contradicts another.

    Examples
    --------
    >>> parties = tuple(
    ...     Party(role, f"https://{role}.example", bytes([n]) * 32)
    ...     for n, role in enumerate(ROLES[TrustModel.TWO_SERVERS])
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
    trust: TrustModel = TrustModel.TWO_SERVERS
    proofs: int = 0
    aggregation: Aggregation = field(default_factory=Aggregation)
    admission: str = "open"
    issuer: bytes = b""
    suite: str = ""
    grace: int = 86_400
    no_show: Fraction = Fraction(0)
    organisation: str = ""
    purpose: str = ""
    contact: str = ""
    predecessor: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trust", _trust(self.trust))
        if not self.suite:
            object.__setattr__(self, "suite", _suites(self.trust)[0])
        _check_texts(self)
        _check_numbers(self)
        _check_model(self)
        _check_noise(self)
        _check_parties(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    def document(self) -> dict[str, Any]:
        """Return the terms as plain data."""
        answer, promise, noise = self.answer, self.promise, self.noise
        aggregation, least = self.aggregation, self.noise.least
        return {
            "admission": self.admission,
            "aggregation": {
                "claim": aggregation.claim,
                "dishonest_count": aggregation.dishonest_count,
                "dishonest_fraction": str(aggregation.dishonest_fraction),
                "minimum_batch_size": aggregation.minimum_batch_size,
                "missing_fraction": str(aggregation.missing_fraction),
            },
            "answer": {
                "levels": answer.levels,
                "meaning": answer.meaning,
                "metrics": list(answer.metrics),
                "range": [str(answer.low), str(answer.high)],
                "window": answer.window,
            },
            "assumptions": _listed(self.assumptions),
            "contact": self.contact,
            "first_day": self.first_day.isoformat(),
            "grace": self.grace,
            "guarantee": {
                "delta": str(promise.delta),
                "epsilon": str(promise.epsilon),
                "neighbours": "replace-one",
                "participations": promise.participations,
                "view": self.view.value,
            },
            "issuer": self.issuer.hex(),
            "last_day": self.last_day.isoformat(),
            "no_show": str(self.no_show),
            "noise": {
                "by": noise.by,
                "distribution": noise.distribution,
                "minimum": [least.numerator, least.denominator],
                "scale": str(noise.scale),
                "share_divisor": noise.share_divisor,
            },
            "options": list(self.options),
            "organisation": self.organisation,
            "parties": [
                {"address": party.address, "key": party.key.hex(), "role": party.role}
                for party in self.parties
            ],
            "predecessor": self.predecessor.hex(),
            "proofs": self.proofs,
            "purpose": self.purpose,
            "question": self.question,
            "suite": self.suite,
            "trust": self.trust.value,
            "version": VERSION,
        }

    @cached_property
    def view(self) -> View:
        """The adversary's view in the guarantee."""
        return VIEWS[self.trust, self.noise.by]

    @property
    def kind(self) -> str:
        """The wire name of a round under these terms."""
        return KINDS[self.trust, self.proofs]

    @cached_property
    def assumptions(self) -> frozenset[Assumption]:
        """The assumptions of the guarantee: exactly these, derived from the other fields."""
        if self.view is View.OTHER_SERVER:
            return frozenset((HonestServers(1, of=2), PinnedKeys(), BoundedAdversary()))
        if self.trust is TrustModel.LOCAL:
            return frozenset((HonestDevice(),))
        about = self.aggregation
        shared = {
            DishonestAtMost(Scope.ROUND, about.dishonest_count, about.dishonest_fraction),
            ReleasedOnlyAbove(1 - about.missing_fraction),
        }
        if self.trust is TrustModel.SHUFFLER:
            return frozenset(shared | {NonColludingShuffler(), BoundedAdversary()})
        summed = frozenset(shared | {SemiHonestServer(), BoundedAdversary()})
        both = {HonestServers(2, of=2)} if self.trust is TrustModel.TWO_SERVERS else set()
        return summed | both

    def encode(self) -> bytes:
        """Return the canonical encoding."""
        return self._spelled

    @cached_property
    def _spelled(self) -> bytes:
        return canonical(self.document())

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding: identifies the experiment."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> Terms:
        """Decode and check terms; reject other documents and contradictions."""
        document = parsed(data)
        _check_version(document)
        try:
            terms = _read(document)
            _check_assumptions(document["assumptions"], terms.document()["assumptions"])
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            reason = str(problem) if isinstance(problem, TacitError) else repr(problem)
            raise Refusal(f"these terms make no sense: {reason}") from None
        if terms.document() != document:
            raise Refusal(
                f"these terms say more, or other things, than terms of version {VERSION} can say"
            )
        return terms

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The parties' long-term keys, in the order of their roles."""
        return tuple(party.key for party in self.parties)

    @property
    def cost(self) -> Fraction:
        """The ε that one round may cost a participant: ε divided by the participations."""
        return self.promise.epsilon / self.promise.participations

    @property
    def first_second(self) -> int:
        """The start of the first day, in seconds since 1970."""
        return _seconds(self.first_day)

    @property
    def last_second(self) -> int:
        """The end of the last day, in seconds since 1970."""
        return _seconds(self.last_day, days=1)


def _seconds(day: date, days: int = 0) -> int:
    """The start of a day, or of a day `days` later, in seconds since 1970."""
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


def _listed(assumptions: frozenset[Assumption]) -> list[dict[str, Any]]:
    """Assumptions as plain data, by identifier and then by parameters."""
    plain = [one.to_dict() for one in assumptions]
    return sorted(plain, key=lambda one: (one["id"], canonical(one)))


def _trust(name: object) -> TrustModel:
    if name not in tuple(ROLES):
        raise TacitError(f"trust is {name!r}: must be one of {', '.join(ROLES)}")
    return TrustModel(str(name))


def _suites(trust: TrustModel) -> tuple[str, ...]:
    return (MASKING_SUITE,) if trust is TrustModel.SECURE_AGGREGATION else HPKE_SUITES


def _check_version(document: Any) -> None:
    version = document.get("version") if isinstance(document, Mapping) else None
    if version != VERSION:
        raise Refusal(
            f"the version of these terms is {version!r}: must be {VERSION}. Publish the experiment "
            "anew with this version of tacit, and let every party sign it again."
        )


def _check_assumptions(stated: Any, needed: list[dict[str, Any]]) -> None:
    """Reject any list other than the assumptions that these terms need."""
    missing = [str(one["id"]) for one in needed if one not in stated]
    extra = [str(one["id"]) for one in stated if one not in needed]
    if missing or extra or len(stated) != len(needed):
        raise TacitError(
            f"the assumptions of these terms miss {', '.join(missing) or 'none'} and have too many "
            f"of {', '.join(extra) or 'none'}: they must be exactly what the guarantee needs"
        )


def _read(document: Any) -> Terms:
    answer, promise, noise = document["answer"], document["guarantee"], document["noise"]
    aggregation, (low, high) = document["aggregation"], answer["range"]
    return Terms(
        question=document["question"],
        options=tuple(document["options"]),
        answer=Answer(
            answer["meaning"],
            tuple(answer["metrics"]),
            answer["levels"],
            answer["window"],
            _fraction(low),
            _fraction(high),
        ),
        promise=Promise(
            _fraction(promise["epsilon"]), _fraction(promise["delta"]), promise["participations"]
        ),
        noise=Noise(
            _fraction(noise["scale"]),
            noise["by"],
            noise["distribution"],
            _pair(noise["minimum"]),
            noise["share_divisor"],
        ),
        parties=tuple(
            Party(party["role"], party["address"], bytes.fromhex(party["key"]))
            for party in document["parties"]
        ),
        first_day=date.fromisoformat(document["first_day"]),
        last_day=date.fromisoformat(document["last_day"]),
        trust=document["trust"],
        proofs=document["proofs"],
        aggregation=Aggregation(
            aggregation["minimum_batch_size"],
            _fraction(aggregation["missing_fraction"]),
            aggregation["dishonest_count"],
            _fraction(aggregation["dishonest_fraction"]),
            aggregation["claim"],
        ),
        admission=document["admission"],
        issuer=bytes.fromhex(document["issuer"]),
        suite=document["suite"] or "none",
        grace=document["grace"],
        no_show=_fraction(document["no_show"]),
        organisation=document["organisation"],
        purpose=document["purpose"],
        contact=document["contact"],
        predecessor=bytes.fromhex(document["predecessor"]),
    )


def _pair(numbers: Any) -> Fraction:
    """The fraction of a numerator and a denominator."""
    top, bottom = numbers
    if type(top) is not int or type(bottom) is not int or bottom < 1:
        raise TacitError(f"noise.minimum is {numbers!r}: must be [numerator, denominator]")
    return Fraction(top, bottom)


def check_text(what: str, text: object) -> None:
    """Reject text that participants could not read, such as invisible characters."""
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
    for what in ("organisation", "purpose", "contact"):
        if getattr(terms, what) != "":
            texts[what] = getattr(terms, what)
    for what, text in texts.items():
        check_text(what, text)
    for what, several in (("option", terms.options), ("metric", terms.answer.metrics)):
        if len(set(several)) != len(several) or not several:
            raise TacitError(f"every {what} needs a name of its own, and there must be one")


def _check_numbers(terms: Terms) -> None:
    about = terms.aggregation
    wholes = {
        "levels": (terms.answer.levels, 1),
        "window": (terms.answer.window, 0),
        "participations": (terms.promise.participations, 1),
        "minimum_batch_size": (about.minimum_batch_size, 1),
        "dishonest_count": (about.dishonest_count, 0),
        "grace": (terms.grace, 0),
        "proofs": (terms.proofs, 0),
    }
    for what, (number, least) in wholes.items():
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number < 1 << 32:
            raise TacitError(f"{what} is {number!r}; it must be a whole number from {least} on")
    fractions = (terms.answer.low, terms.answer.high, terms.promise.epsilon, terms.promise.delta)
    parts = {
        "missing_fraction": about.missing_fraction,
        "dishonest_fraction": about.dishonest_fraction,
    }
    for fraction in (*fractions, *parts.values(), terms.noise.scale, terms.no_show):
        if not isinstance(fraction, Fraction):
            raise TacitError(f"{fraction!r} is no fraction: write Fraction('1/10')")
        _fraction(str(fraction))
    if not (terms.promise.epsilon > 0 and 0 <= terms.promise.delta < 1 and terms.noise.scale > 0):
        raise TacitError("epsilon and the noise's scale must be above 0, and delta from 0 to 1")
    if terms.answer.low >= terms.answer.high:
        raise TacitError("an answer's range must rise")
    for what, part in parts.items():
        if not 0 <= part < 1:
            raise TacitError(f"{what} is {part}: must be at least 0 and below 1")
    if terms.grace > LONGEST_GRACE:
        raise TacitError(
            f"grace is {terms.grace}: must be at most {LONGEST_GRACE} seconds (7 days). Choose a "
            "shorter time for round keys to live."
        )
    if terms.no_show:
        raise TacitError(f"no_show is {terms.no_show}: must be 0, because every slot is counted")
    if terms.first_day > terms.last_day:
        raise TacitError(f"the first day {terms.first_day} comes after the last {terms.last_day}")


def _check_model(terms: Terms) -> None:
    """Reject a trust model, proofs, suite, admission or claim that are incompatible."""
    trust, by, about = terms.trust, terms.noise.by, terms.aggregation
    if (trust, by) not in VIEWS:
        known = "; ".join(f"{kind} with noise by {who}" for kind, who in VIEWS)
        raise TacitError(f"{trust.value!r} with noise by {by!r} is none of {known}")
    if (trust, terms.proofs) not in KINDS or (terms.proofs and by != "servers"):
        raise TacitError(
            f"proofs is {terms.proofs}: must be 0, or 1 where two servers add the noise"
        )
    if terms.suite not in _suites(trust):
        raise TacitError(
            f"suite is {terms.suite!r}: with trust {trust.value} it must be one of "
            f"{', '.join(_suites(trust))}"
        )
    if terms.admission not in ("open", "invitation"):
        raise TacitError(f"admission is {terms.admission!r}; it must be open or invitation")
    if len(terms.issuer) != (KEY_SIZE if terms.admission == "invitation" else 0):
        raise TacitError(
            f"issuer has {len(terms.issuer)} bytes: must be the Ed25519 key of {KEY_SIZE} bytes "
            "that signs invitations, and empty where admission is open"
        )
    if not re.fullmatch("[a-z-]+", about.claim) or (
        trust is not TrustModel.SECURE_AGGREGATION and about.claim != SEMI_HONEST
    ):
        raise TacitError(
            f"claim is {about.claim!r}: must be {SEMI_HONEST}, but for secure aggregation, which "
            "names its claim in small letters and hyphens"
        )
    shares = by == "devices" and trust is not TrustModel.LOCAL
    if not shares and (about.missing_fraction or about.dishonest_count or about.dishonest_fraction):
        raise TacitError(
            "missing_fraction, dishonest_count and dishonest_fraction must be 0 where no device "
            "draws a share of the noise: nobody's noise depends on others"
        )
    if len(terms.predecessor) not in (0, DIGEST_SIZE):
        raise TacitError("a predecessor is named by its digest of 32 bytes, or is empty")


def _check_noise(terms: Terms) -> None:
    """Reject noise that does not achieve the guarantee, as far as this module knows."""
    noise, promise, least = terms.noise, terms.promise, terms.noise.least
    if noise.distribution not in (DISCRETE_LAPLACE, REHEARSED):
        raise TacitError(
            f"noise.distribution is {noise.distribution!r}: must be {DISCRETE_LAPLACE}, the one "
            f"distribution that is verified against epsilon. Use {DISCRETE_LAPLACE} noise; only "
            f"rehearsals in one process say {REHEARSED}."
        )
    if noise.by == "servers" and (noise.distribution != DISCRETE_LAPLACE or promise.delta):
        raise TacitError("two servers' own noise is discrete Laplace noise, and delta is 0")
    if noise.share_divisor != SHARE_DIVISOR:
        raise TacitError(
            f"share_divisor is {noise.share_divisor!r}: must be {SHARE_DIVISOR!r}, the one rule of "
            "this version"
        )
    if not isinstance(least, Fraction) or not 0 < least <= noise.parameter:
        raise TacitError(
            f"noise.minimum is {least}: must be above 0 and at most {noise.parameter}, what the "
            f"scale {noise.scale} gives"
        )
    if max(least.numerator, least.denominator) > LARGEST:
        raise TacitError(f"noise.minimum is {least}: its integers must stay within {LARGEST}")
    wanted = terms.answer.levels * promise.participations * len(terms.answer.metrics)
    if noise.distribution == DISCRETE_LAPLACE and least * promise.epsilon < wanted:
        raise TacitError(
            f"noise of scale {least} does not earn epsilon {promise.epsilon}: "
            f"{terms.answer.levels} levels, {promise.participations} participations and "
            f"{len(terms.answer.metrics)} metrics need a scale of at least "
            f"{Fraction(wanted) / promise.epsilon}"
        )


def check_live(terms: Terms) -> None:
    """Reject terms of rehearsals; devices and live parties call it."""
    if terms.noise.distribution == REHEARSED:
        raise Refusal(
            f"noise.distribution is {REHEARSED!r}: must be {DISCRETE_LAPLACE} outside of "
            f"rehearsals in one process. Publish terms with {DISCRETE_LAPLACE} noise."
        )


def _check_parties(terms: Terms) -> None:
    roles = tuple(party.role for party in terms.parties)
    if roles != ROLES[terms.trust]:
        raise TacitError(
            f"the parties are {', '.join(roles) or 'none'}; {terms.trust.value} has "
            f"{', '.join(ROLES[terms.trust])}, in this order"
        )
    if {len(key) for key in terms.keys} != {KEY_SIZE} or len(set(terms.keys)) != len(terms.keys):
        raise TacitError(f"every party has a key of its own, of {KEY_SIZE} bytes")
