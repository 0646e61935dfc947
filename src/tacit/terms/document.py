"""Signed terms of an experiment: one canonical JSON document, version 3.

Terms are JSON with sorted keys, integers and strings (`canonical`). Their SHA-256 digest identifies
the experiment in every round description, encryption and key derivation. Fields that nothing uses
yet have one allowed value. docs/reference/wire-formats/terms.md specifies the layout. This module
does not sign or verify; `tacit.signatures` and `pinned` do.
"""

from __future__ import annotations

import hashlib
import re
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
    DistinctRounds,
    HonestDevice,
    HonestServers,
    NonColludingShuffler,
    PinnedKeys,
    Protects,
    PublicMembership,
    ReleasedOnlyAbove,
    Scope,
    SemiHonestServer,
)
from tacit.contextual.fitted import FitReport
from tacit.contextual.statistics import ScaledMomentReport
from tacit.errors import Rejected, TacitError, require
from tacit.signatures import KEY_SIZE
from tacit.terms.accounting import SLACK, gaussian_delta, skellam_delta, vector_delta
from tacit.terms.aggregation_delta import (
    FORMULAS,
    smallest_masking_delta,
    smallest_shuffler_delta,
)
from tacit.terms.canonical import canonical, from_plain, invalid_terms, parsed, to_plain
from tacit.terms.context import (
    TABLE,
    TABLE_SENSITIVITY,
    ContextTerms,
    MomentTerms,
    read_context,
)
from tacit.terms.models import HPKE_SUITES, KINDS, LEADING, MASKING_SUITE, NOISES, ROLES, VIEWS
from tacit.terms.parts import (
    BINOMIAL,
    CERTIFIED_POLYA,
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    RANDOMIZED_RESPONSE,
    REHEARSED,
    SEMI_HONEST,
    SKELLAM,
    UNARY_ENCODING,
    Aggregation,
    Answer,
    Noise,
    Party,
    StatedGuarantee,
    check_fraction,
    check_names,
    check_text,
    check_whole,
    most_shared,
)
from tacit.trust import TrustModel, View

VERSION = 3
DIGEST_SIZE = 32
LONGEST_GRACE = 7 * 86_400
"""Longest time in seconds that round keys may live after a round closes, in any terms."""

MOST_NO_SHOW = Fraction(9, 10)
"""Largest expected fraction of slots that never report, in any terms."""

_BOUNDED_BY_DELTA = (SKELLAM, DISCRETE_GAUSSIAN, BINOMIAL)
_DAY = 86_400
_FIRST_OF_1970 = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Terms:
    """The terms of one experiment; the constructor rejects contradictions.

    Parameters
    ----------
    question, options, answer
        The question to participants, in words that they read.
    guarantee, noise, aggregation
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
        The expected fraction of slots that never report, at most `MOST_NO_SHOW`: a round offers so
        many more slots. It is 0 where devices add the noise.
    organisation, purpose, contact
        Controller, purpose and address for complaints; may be empty.
    predecessor
        The digest of the terms that these succeed, or empty.
    context
        The context by which devices choose options; None where rounds assign options.

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
    ...     guarantee=StatedGuarantee(Fraction(1), participations=2),
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
    guarantee: StatedGuarantee
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
    context: ContextTerms | None = None

    def __post_init__(self) -> None:
        known = self.trust in tuple(ROLES)  # by its name in terms, too
        require(known, "trust", repr(self.trust), f"one of {', '.join(ROLES)}")
        object.__setattr__(self, "trust", TrustModel(str(self.trust)))
        if not self.suite:
            object.__setattr__(self, "suite", _suites(self.trust)[0])
        checks = [self.answer.check, self.guarantee.check, self.noise.check, self.aggregation.check]
        for check in (*checks, *(party.check for party in self.parties)):
            check()
        _check_texts(self)
        _check_numbers(self)
        _check_model(self)
        _check_context(self)
        _check_noise(self)
        _check_parties(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    def document(self) -> dict[str, Any]:
        """Return the terms as plain data."""
        document, least = to_plain(self), self.noise.least
        answer, guarantee = document["answer"], document.pop("guarantee")
        answer["range"] = [answer.pop("low"), answer.pop("high")]
        document["noise"]["minimum"] = [least.numerator, least.denominator]
        if self.context is None:
            del document["context"]
        return {
            **document,
            "assumptions": _listed(self.assumptions),
            "guarantee": {**guarantee, "neighbours": "replace-one", "view": self.view.value},
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
        if self.context is None:
            return self._trusted
        return self._trusted | {Protects(self.context.secret), PublicMembership()}

    @property
    def _trusted(self) -> frozenset[Assumption]:
        """The assumptions about parties and participants."""
        if self.view is View.OTHER_SERVER:
            return frozenset((HonestServers(1, of=2), PinnedKeys(), BoundedAdversary()))
        if self.trust is TrustModel.LOCAL:
            return frozenset((HonestDevice(),))
        about = self.aggregation
        shared: set[Assumption] = {
            DishonestAtMost(Scope.ROUND, about.dishonest_count, about.dishonest_fraction),
            ReleasedOnlyAbove(1 - about.missing_fraction),
        }
        if self.guarantee.participations > 1 and self.noise.distribution in _BOUNDED_BY_DELTA:
            shared.add(DistinctRounds())
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
        """The canonical encoding, computed once."""
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
        with invalid_terms():
            answer, noise = document["answer"], document["noise"]
            low, high = answer["range"]
            fields = {
                **document,
                "answer": {**answer, "low": low, "high": high},
                "noise": {**noise, "minimum": _pair(noise["minimum"])},
                "context": read_context(document.get("context")),
                "suite": document["suite"] or "none",
            }
            terms: Terms = from_plain(cls, fields)
            _check_assumptions(document["assumptions"], terms.document()["assumptions"])
        if terms.document() != document:
            raise Rejected(
                f"terms have fields or values that version {VERSION} does not define: must be "
                "exactly those of docs/reference/wire-formats/terms.md"
            )
        return terms

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The parties' long-term keys, in the order of their roles."""
        return tuple(party.key for party in self.parties)

    @cached_property
    def leader(self) -> int:
        """The index of the party that runs the experiment: the coordinator or the analyzer."""
        return next(n for n, party in enumerate(self.parties) if party.role in LEADING)

    @cached_property
    def helper(self) -> int | None:
        """The index of the other party: the helper or the shuffler; None without one."""
        others = (n for n in range(len(self.parties)) if n != self.leader)
        return next(others, None)

    @property
    def may_be_invented(self) -> bool:
        """Whether the coordinator could invent participants whose noise shares are needed.

        Only a helper that checks the issuer's invitations prevents it.
        """
        return self.trust.shares_noise and (self.admission == "open" or self.helper is None)

    def numbers(self, chosen: bool) -> int:
        """Numbers of a report: one per metric, or those of a statistic where devices choose."""
        if chosen and self.context is not None:
            return self.context.numbers(len(self.options))
        return len(self.answer.metrics)

    def bounds(self, chosen: bool) -> tuple[int, int]:
        """The least and the largest number of a report."""
        if chosen and self.context is not None:
            return self.context.bounds()
        return 0, self.answer.levels

    def distribution(self, chosen: bool) -> str:
        """The distribution of a round's noise.

        Under terms with a context, rounds that assign options have discrete Laplace noise, or
        randomized response in the local model.
        """
        if chosen or self.context is None:
            return self.noise.distribution
        return RANDOMIZED_RESPONSE if self.trust is TrustModel.LOCAL else DISCRETE_LAPLACE

    def parameter(self, chosen: bool) -> Fraction:
        """The parameter of a round's noise.

        Terms state that of rounds where devices choose, if any; others have what their own
        sensitivity needs.
        """
        return self._parameter(chosen, self.noise.scale)

    def least_noise(self, chosen: bool) -> Fraction:
        """The least parameter of a round's noise."""
        return self._parameter(chosen, self.noise.least)

    def _parameter(self, chosen: bool, stated: Fraction) -> Fraction:
        if chosen or self.context is None:
            return stated
        return self.context.slice_noise(stated, self._moved, self.guarantee.epsilon)

    @property
    def _moved(self) -> int:
        """By how much one participant moves the sums of a round with an option, in l1 norm."""
        return self.answer.levels * len(self.answer.metrics)

    def round_cost(self, chosen: bool, scale: Fraction) -> Fraction:
        """ε of a round in which servers add noise with this parameter: sensitivity / scale.

        For Gaussian noise it is that of the terms, whose noise `scale` is not below.
        """
        if self.distribution(chosen) != DISCRETE_LAPLACE:
            return self.cost
        return (TABLE_SENSITIVITY if chosen else self._moved) / scale

    @property
    def cost(self) -> Fraction:
        """The ε that one round may cost a participant: ε divided by the participations."""
        return self.guarantee.epsilon / self.guarantee.participations

    @property
    def delta_cost(self) -> Fraction:
        """The δ that one round costs a participant: δ divided by the participations."""
        return self.guarantee.delta / self.guarantee.participations

    @property
    def aggregation_delta(self) -> Fraction:
        """The part of δ that the aggregation consumes, independent of the noise."""
        often = self.guarantee.participations
        if self.trust is TrustModel.SECURE_AGGREGATION:
            return smallest_masking_delta(often)
        if self.trust is TrustModel.SHUFFLER and self.noise.distribution == DISCRETE_LAPLACE:
            metrics = len(self.answer.metrics)
            return smallest_shuffler_delta(self.guarantee.epsilon, often, metrics)
        return Fraction(0)

    @property
    def noise_delta(self) -> Fraction:
        """The part of δ that the aggregation leaves to the noise."""
        return self.guarantee.delta - self.aggregation_delta

    @property
    def per_metric_target(self) -> tuple[Fraction, Fraction]:
        """ε and δ that noise has to achieve for one metric in one round, under basic composition:
        equal parts, δ without that of the aggregation.
        """
        metrics = len(self.answer.metrics)
        often = self.guarantee.participations * metrics
        return self.cost / metrics, self.noise_delta / often

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


def _listed(assumptions: frozenset[Assumption]) -> list[dict[str, Any]]:
    """Assumptions as plain data, by identifier and then by parameters."""
    plain = [one.to_dict() for one in assumptions]
    return sorted(plain, key=lambda one: (one["id"], canonical(one)))


def _suites(trust: TrustModel) -> tuple[str, ...]:
    """The cipher suites of a trust model."""
    return (MASKING_SUITE,) if trust is TrustModel.SECURE_AGGREGATION else HPKE_SUITES


def _check_version(document: Any) -> None:
    """Reject terms of another version."""
    version = document.get("version") if isinstance(document, Mapping) else None
    rule = (
        f"{VERSION}. Publish the experiment anew with this version of tacit, and let every party "
        "sign it again"
    )
    require(version == VERSION, "version of the terms", repr(version), rule, Rejected)


def _check_assumptions(stated: Any, needed: list[dict[str, Any]]) -> None:
    """Reject any list other than the assumptions that these terms need."""
    missing = [str(one["id"]) for one in needed if one not in stated]
    extra = [str(one["id"]) for one in stated if one not in needed]
    if missing or extra or len(stated) != len(needed):
        raise TacitError(
            f"assumptions lack {', '.join(missing) or 'none'} and have {', '.join(extra) or 'none'}"
            " too many: must be exactly those of the guarantee"
        )


def _pair(numbers: Any) -> Fraction:
    """The fraction of a numerator and a denominator."""
    top, bottom = numbers
    whole = type(top) is type(bottom) is int and bottom > 0
    require(whole, "noise.minimum", repr(numbers), "[numerator, denominator]")
    return Fraction(top, bottom)


def _check_texts(terms: Terms) -> None:
    check_text("question", terms.question)
    check_names("options", terms.options)
    optional = {
        "organisation": terms.organisation,
        "purpose": terms.purpose,
        "contact": terms.contact,
    }
    for name, text in optional.items():
        if text != "":
            check_text(name, text)


def _check_numbers(terms: Terms) -> None:
    check_whole("grace", terms.grace, 0)
    check_whole("proofs", terms.proofs, 0)
    check_fraction("no_show", terms.no_show)
    rule = f"at most {LONGEST_GRACE} seconds (7 days). Choose a shorter time for round keys to live"
    require(terms.grace <= LONGEST_GRACE, "grace", terms.grace, rule)
    rule = f"at least 0 and at most {MOST_NO_SHOW}"
    require(0 <= terms.no_show <= MOST_NO_SHOW, "no_show", terms.no_show, rule)
    first, last = terms.first_day, terms.last_day
    require(first <= last, "first_day", first, f"at most last_day, {last}")


def _check_model(terms: Terms) -> None:
    """Reject a trust model, proofs, suite, admission or claim that are incompatible."""
    trust, by, about = terms.trust, terms.noise.by, terms.aggregation
    known = "; ".join(f"{kind} with noise by {who}" for kind, who in VIEWS)
    require(
        (trust, by) in VIEWS, "trust", f"{trust.value!r} with noise by {by!r}", f"one of {known}"
    )
    proved = (trust, terms.proofs) in KINDS and (not terms.proofs or by == "servers")
    require(proved, "proofs", terms.proofs, "0, or 1 where two servers add the noise")
    suites = _suites(trust)
    rule = f"one of {', '.join(suites)} with trust {trust.value}"
    require(terms.suite in suites, "suite", repr(terms.suite), rule)
    admitted = terms.admission in ("open", "invitation")
    require(admitted, "admission", repr(terms.admission), "open or invitation")
    size = KEY_SIZE if terms.admission == "invitation" else 0
    rule = f"{size} bytes: an Ed25519 key where admission is by invitation, empty where it is open"
    require(len(terms.issuer) == size, "issuer", f"{len(terms.issuer)} bytes long", rule)
    claimed = trust is TrustModel.SECURE_AGGREGATION or about.claim == SEMI_HONEST
    rule = f"{SEMI_HONEST}; only secure aggregation has others, in small letters and hyphens"
    require(claimed and re.fullmatch("[a-z-]+", about.claim), "claim", repr(about.claim), rule)
    if by == "servers" or trust is TrustModel.LOCAL:
        tolerated = {
            "missing_fraction": about.missing_fraction,
            "dishonest_count": about.dishonest_count,
            "dishonest_fraction": about.dishonest_fraction,
        }
        for name, part in tolerated.items():
            require(not part, name, part, "0 where no device draws a share of the noise")
    rule = "0 where devices add the noise, because shares of it are made for the announced slots"
    require(by == "servers" or not terms.no_show, "no_show", terms.no_show, rule)
    size = len(terms.predecessor)
    require(size in (0, DIGEST_SIZE), "predecessor", f"{size} bytes long", "empty or 32 bytes")


def _check_context(terms: Terms) -> None:
    """Reject contexts under terms whose rounds cannot carry their statistic."""
    if terms.context is None:
        return
    terms.context.check(terms.options, terms.answer.levels)
    kind, by = terms.kind, terms.noise.by
    two = terms.trust is TrustModel.TWO_SERVERS and by == "servers"
    rule = (
        "two-servers or verified with noise by servers, masking, or local or mixing with a table, "
        "where devices choose"
    )
    shuffled = terms.trust is TrustModel.SHUFFLER
    alone = shuffled or terms.trust is TrustModel.LOCAL
    small = alone and terms.context.statistic == TABLE
    served = two or small or kind == "masking"
    require(served, "kind of rounds", f"{kind} with noise by {by}", rule)
    part = terms.context.evaluation
    require(not part or not shuffled, "context.evaluation", part, "0 with trust shuffler")
    provable = terms.context.exact or not terms.proofs
    require(provable, "proofs", terms.proofs, "0 with moments: only tables have proofs")
    often, metrics = terms.guarantee.participations, len(terms.answer.metrics)
    require(often == 1, "participations", often, "1 where devices choose")
    rule = "1 where devices choose, or more with an evaluation slice, which reports the others"
    require(metrics == 1 or terms.context.evaluation, "number of metrics", metrics, rule)


def _check_noise(terms: Terms) -> None:
    """Reject noise that does not achieve the guarantee, as far as this module knows."""
    noise, guarantee, metrics = terms.noise, terms.guarantee, len(terms.answer.metrics)
    exact = terms.context is None or terms.context.exact
    allowed = NOISES[terms.trust, noise.by]
    if terms.context is not None:  # the noise whose sensitivity to a statistic is verified
        allowed = (DISCRETE_LAPLACE,) if exact else (DISCRETE_GAUSSIAN,)
        alone = {TrustModel.LOCAL: (UNARY_ENCODING,), TrustModel.SHUFFLER: (BINOMIAL,)}
        allowed = alone.get(terms.trust, allowed)
    rehearsed = noise.distribution == REHEARSED and noise.by == "devices"
    rule = f"{' or '.join(allowed)} with trust {terms.trust.value} and noise by {noise.by}"
    known = rehearsed or noise.distribution in allowed
    require(known, "noise.distribution", noise.distribution, rule)
    most = most_shared(noise.distribution, terms.numbers(chosen=terms.context is not None))
    rule = f"at most {most} where devices share it. Use fewer levels or a larger epsilon"
    drawn = not terms.trust.shares_noise or most is None or noise.least <= most
    require(drawn, "noise.minimum", noise.least, rule)
    certified = noise.distribution == CERTIFIED_POLYA
    pure = certified or (exact and (noise.by == "servers" or terms.trust is TrustModel.LOCAL))
    rule = f"0 where servers add the noise, with trust local and with {CERTIFIED_POLYA} noise"
    require(not pure or not guarantee.delta, "delta", guarantee.delta, rule)
    if noise.distribution in (RANDOMIZED_RESPONSE, CERTIFIED_POLYA):
        rule = f"1 with {noise.distribution}, which is for one bit"
        require(terms.answer.levels == 1, "levels", terms.answer.levels, rule)
    if noise.distribution in _BOUNDED_BY_DELTA:
        _check_delta(terms)
    laplace = noise.distribution in (
        DISCRETE_LAPLACE,
        RANDOMIZED_RESPONSE,
        UNARY_ENCODING,
        CERTIFIED_POLYA,
    )
    moved = terms.answer.levels * metrics if terms.context is None else TABLE_SENSITIVITY
    wanted = Fraction(moved * guarantee.participations) / guarantee.epsilon
    rule = (
        f"at least {wanted} for epsilon {guarantee.epsilon}, {terms.answer.levels} levels, "
        f"{guarantee.participations} participations and {metrics} metrics. Raise the scale"
    )
    require(not laplace or noise.least >= wanted, "noise.minimum", noise.least, rule)
    smallest, formula = terms.aggregation_delta, FORMULAS.get(terms.trust, "0")
    rule = (
        f"at least {smallest} with trust {terms.trust.value}: {formula}. Raise delta, or choose "
        "trust two-servers for delta 0"
    )
    require(rehearsed or guarantee.delta >= smallest, "delta", guarantee.delta, rule)


def _check_delta(terms: Terms) -> None:
    """Reject noise whose δ at the minimum is larger than that of the terms.

    Metrics and participations compose basically: each gets an equal part of ε and δ. Bits are
    verified round by round (`Pinned.check`), as their number depends on the size of the round.
    """
    noise, (epsilon, delta) = terms.noise, terms.per_metric_target
    rule = f"above 0 with {noise.distribution} noise"
    require(delta > 0, "delta", terms.guarantee.delta, rule)
    if noise.distribution == BINOMIAL:
        return
    what = f"a metric of {terms.answer.levels} levels has"
    if terms.context is not None:
        found = statistic_delta(terms, noise.least)
        what = "moments have" if isinstance(terms.context, MomentTerms) else "fitted vectors have"
        epsilon, delta = terms.guarantee.epsilon, terms.noise_delta
    else:
        found = {SKELLAM: skellam_delta, DISCRETE_GAUSSIAN: gaussian_delta}[noise.distribution](
            noise.least, terms.answer.levels, epsilon
        )
    rule = (
        f"larger: {what} a delta of {found:.3g} at epsilon {epsilon} then, and must have "
        f"{float(delta):.3g}"
    )
    require(found <= delta * (1 + Fraction(SLACK)), "noise.minimum", noise.least, rule)


def statistic_delta(terms: Terms, sigma: Fraction, shares: int = 1) -> float:
    """δ of Gaussian noise in moments or fitted vectors, of one server or of so many shares, at the
    terms' ε.
    """
    assert terms.context is not None
    report = terms.context.report(len(terms.options), terms.answer.levels)
    assert isinstance(report, (ScaledMomentReport, FitReport))
    square, epsilon = report.squared_sensitivity, terms.guarantee.epsilon
    return vector_delta(sigma, square, report.size, epsilon, shares)


def check_live(terms: Terms) -> None:
    """Reject terms of rehearsals; devices and live parties call it.

    Where devices share the noise, reject an issuer of invitations that is a party of the terms: it
    could surround a participant with participants of its own. Shares that are split and mixed, and
    certified ones, are by invitation only, because one invalid message aborts a round.
    """
    distribution = terms.noise.distribution
    allowed = NOISES[terms.trust, terms.noise.by]
    rule = f"{' or '.join(allowed)} outside of rehearsals in one process. Publish terms with it"
    live = distribution != REHEARSED
    require(live, "noise.distribution", repr(distribution), rule, Rejected)
    if terms.trust.shares_noise:
        other = terms.issuer not in terms.keys
        rule = "a key of no party of the terms: a party could invent participants"
        require(other, "issuer", terms.issuer.hex(), rule, Rejected)
    if terms.trust is TrustModel.SHUFFLER and distribution in (DISCRETE_LAPLACE, CERTIFIED_POLYA):
        rule = f"invitation with {distribution} noise and trust shuffler"
        invited = terms.admission == "invitation"
        require(invited, "admission", repr(terms.admission), rule, Rejected)


def _check_parties(terms: Terms) -> None:
    roles, wanted = tuple(party.role for party in terms.parties), ROLES[terms.trust]
    rule = f"{', '.join(wanted)}, in this order, with trust {terms.trust.value}"
    require(roles == wanted, "the list of parties", ", ".join(roles) or "empty", rule)
    if len(set(terms.keys)) != len(terms.keys):
        raise TacitError("two parties have the same key: each must have its own")
