"""Checks of rounds and successors against pinned terms.

A device compares the description of a round with the terms it was shown (`Pinned.check`) before it
draws any randomness, and rejects weaker rounds. Parties do the same before they sign. Only integers
are compared, so that a browser can do the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import Rejected, TacitError, require
from tacit.records import Records
from tacit.sampling.certificates import lookup
from tacit.signatures import Signed, fingerprint, public_key, sign, verify
from tacit.terms import parts
from tacit.terms.accounting import SLACK, binomial_delta, cells_delta, gaussian_delta
from tacit.terms.context import BY_POLICY, FittedTerms
from tacit.terms.document import Terms, statistic_delta
from tacit.terms.models import POST_QUANTUM_SUITE
from tacit.terms.parts import Aggregation
from tacit.trust import FEWEST_SPLIT, TrustModel, split_shares


@dataclass(frozen=True)
class Offer:
    """The fields of a round description that concern a participant.

    `scale` is that of each server's own noise; None where devices draw the noise. There each device
    draws one of `divisor` shares of noise whose parameter is `total`: the scale of discrete Laplace
    noise, also of certified shares, the bias of noise bits, the variance in rehearsals. A shuffled
    report has `parts` messages per metric: the levels and noise bits, or shares of one number.
    `closes` is the deadline in seconds since 1970; round keys live `grace` seconds longer. With a
    `policy`, by which devices choose, the option is `BY_POLICY`.
    """

    terms: bytes
    kind: str
    option: int
    slots: int
    minimum: int
    levels: int
    metrics: int
    window: int
    closes: int
    suite: str
    grace: int = 0
    modulus: int | None = None
    scale: Fraction | None = None
    divisor: int | None = None
    total: Fraction | None = None
    parts: int | None = None
    policy: bytes = b""

    @property
    def chosen(self) -> bool:
        """Whether devices choose the option."""
        return self.option == BY_POLICY


class AggregatedTerms(Protocol):
    """Terms of any kind whose rounds are aggregated: those of experiments and of federations."""

    @property
    def aggregation(self) -> Aggregation:
        """Numbers of participants of a round that may be missing or dishonest."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The long-term keys of the parties that sign rounds."""


class PinnedTerms(Hashable, Protocol):
    """Terms with keys from a trusted source, as clients and servers of an aggregation need them."""

    @property
    def terms(self) -> AggregatedTerms:
        """The terms."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The pinned keys of the parties that sign rounds."""

    def check_signed_round(self, description: bytes, signatures: Sequence[bytes]) -> None:
        """Reject a description that not all parties have signed."""

    def check(self, offer: Offer) -> Fraction:
        """Return the cost of a round; reject one that is weaker than the terms."""


@dataclass(frozen=True)
class Pinned:
    """Terms that a device was shown, with the parties' keys from a source that it trusts.

    The constructor verifies that exactly these keys signed, so holders need no further check.
    """

    terms: Terms
    signatures: tuple[bytes, ...]
    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        for party, key in zip(self.terms.parties, self.keys, strict=False):
            if party.key != key:
                raise Rejected(
                    f"the {party.role}'s key in the terms is {fingerprint(party.key)}: must be the "
                    f"pinned key {fingerprint(key)}. A third party intercepts the connection, or "
                    "keys were changed without successor terms"
                )
        self._check_signed(Signed.TERMS, self.terms.encode(), self.signatures)

    def _check_signed(self, kind: Signed, message: bytes, signatures: Sequence[bytes]) -> None:
        parties = len(self.terms.parties)
        require(
            len(self.keys) == parties,
            "number of pinned keys",
            len(self.keys),
            f"{parties}, one for each party of the terms",
            Rejected,
        )
        signed = len(signatures)
        rule = f"{parties}, one of each party. Let the missing party sign: tacit terms cosign"
        require(signed == parties, "number of signatures", signed, rule, Rejected)
        for party, signature in zip(self.terms.parties, signatures, strict=True):
            verify(kind, message, signature, party.key, f"the {party.role}")

    def check_signed_round(self, description: bytes, signatures: Sequence[bytes]) -> None:
        """Reject a description that not all parties of the terms have signed."""
        self._check_signed(Signed.ROUND, description, signatures)

    def check(self, offer: Offer) -> Fraction:
        """Return the cost of a round; reject one that is weaker than the terms.

        Call it before any randomness is drawn.

        Returns
        -------
        Fraction
            Sensitivity / scale where servers add Laplace noise, else an equal part of ε.

        Raises
        ------
        Rejected
            If the round differs from the terms or is weaker.
        """
        terms, answer = self.terms, self.terms.answer
        about = terms.aggregation
        _same("terms", offer.terms.hex(), terms.digest.hex())
        _same("kind", offer.kind, terms.kind)
        _same("number of levels", offer.levels, answer.levels)
        self._check_option(offer)
        _same("number of metrics", offer.metrics, terms.numbers(offer.chosen))
        _same("observation window", offer.window, answer.window)
        _same("suite", offer.suite, terms.suite)
        rule = f"from 1 to {offer.slots}, the slots. Announce more slots or a smaller minimum"
        _require(1 <= offer.minimum <= offer.slots, "minimum", offer.minimum, rule)
        rule = f"at least the minimum batch size of {about.minimum_batch_size} of the terms"
        _require(offer.minimum >= about.minimum_batch_size, "minimum", offer.minimum, rule)
        within = terms.first_second <= offer.closes < terms.last_second
        rule = f"within the days of the terms, {terms.first_day} to {terms.last_day}"
        _require(within, "deadline", offer.closes, rule)
        rule = f"from 0 to {terms.grace}, the grace of the terms"
        _require(0 <= offer.grace <= terms.grace, "grace", offer.grace, rule)
        self._check_modulus(offer)
        return self._check_noise(offer)

    def _check_option(self, offer: Offer) -> None:
        """Reject an unknown option, and a policy that is not one of the terms' contexts."""
        terms, count = self.terms, len(self.terms.options)
        if not offer.chosen:
            _require(0 <= offer.option < count, "option", offer.option, f"from 0 to {count - 1}")
            shuffled = terms.context is not None and terms.trust is TrustModel.SHUFFLER
            rule = "a policy: these terms have no rounds with one option"
            fitted = isinstance(terms.context, FittedTerms)
            _require(not fitted and not shuffled, "option", offer.option, rule)
            return
        _require(terms.context, "option", offer.option, "one of the terms, which have no context")
        assert terms.context is not None
        try:
            terms.context.check_policy(offer.policy, count)
        except TacitError as problem:
            raise Rejected(f"policy of the round is invalid: {problem}") from None

    def _check_modulus(self, offer: Offer) -> None:
        low, high = self.terms.bounds(offer.chosen)
        most = offer.slots * (high - low)
        if offer.modulus is not None:
            rule = f"above {most}, the largest sum of {offer.slots} reports"
            _require(offer.modulus > most, "modulus", offer.modulus, rule)

    def _check_noise(self, offer: Offer) -> Fraction:
        adds = "devices" if offer.scale is None else "servers"
        _same("party that adds the noise", adds, self.terms.noise.by)
        if offer.scale is not None:
            self._check_least("noise scale", offer.scale, offer.chosen)
            return self.terms.round_cost(offer.chosen, offer.scale)
        self._check_shares(offer)
        return self.terms.cost

    def _check_least(self, name: str, parameter: Fraction, chosen: bool = False) -> None:
        """Reject less noise than the terms' minimum, in integers."""
        least = self.terms.least_noise(chosen)
        top, bottom = parameter.numerator, parameter.denominator
        enough = top * least.denominator >= least.numerator * bottom
        _require(enough, name, parameter, f"at least {least}, the minimum of the terms")

    def _check_shares(self, offer: Offer) -> None:
        """Reject noise shares that do not suffice with all tolerated missing and dishonest ones.

        Requires divisor <= min(minimum, slots) - dishonest, and minimum >= slots - missing. In the
        local model the adversary sees each message, so every device draws all of the noise:
        divisor = 1.
        """
        about, slots = self.terms.aggregation, offer.slots
        if offer.divisor is None or offer.total is None:
            raise Rejected(
                "share divisor or total noise of the round is missing: must be announced where "
                "devices add the noise"
            )
        if self.terms.trust is TrustModel.LOCAL:
            self._check_least("total noise", offer.total, offer.chosen)
            rule = "1 with trust local, where the adversary sees each message alone"
            _require(offer.divisor == 1, "share divisor", offer.divisor, rule)
            return
        certain = slots - about.missing(slots)
        rule = f"at least {certain}: {about.missing(slots)} of {slots} reports may be missing"
        _require(offer.minimum >= certain, "minimum", offer.minimum, rule)
        honest = min(offer.minimum, slots) - about.dishonest(slots)
        rule = (
            f"from 1 to {honest}, the minimum {offer.minimum} less {about.dishonest(slots)} "
            "dishonest reports"
        )
        _require(1 <= offer.divisor <= honest, "share divisor", offer.divisor, rule)
        distribution = self.terms.distribution(offer.chosen)
        most = parts.most_shared(distribution, offer.metrics)
        rule = f"at most {most}, or a device would draw its share of {distribution} noise for hours"
        _require(most is None or offer.total <= most, "total noise", offer.total, rule)
        match distribution:
            case parts.BINOMIAL:
                self._check_bits(offer, offer.divisor, offer.total)
            case parts.CERTIFIED_POLYA:
                self._check_certified(offer, offer.divisor, offer.total)
            case parts.DISCRETE_GAUSSIAN if offer.chosen:
                self._check_least("total noise", offer.total, offer.chosen)
                self._check_statistic(offer.divisor, offer.total)
            case parts.DISCRETE_GAUSSIAN:
                self._check_least("total noise", offer.total)
                self._check_gaussian(offer.divisor, offer.total, offer.levels)
            case _:
                self._check_least("total noise", offer.total, offer.chosen)
        if self.terms.trust is TrustModel.SHUFFLER and distribution != parts.REHEARSED:
            count = (offer.parts or 0) * offer.metrics
            rule = f"at most {parts.MOST_MESSAGES}, or a device would encrypt them for minutes"
            _require(count <= parts.MOST_MESSAGES, "number of messages of a report", count, rule)
            self._check_parts(offer, offer.divisor)

    def _check_bits(self, offer: Offer, divisor: int, bias: Fraction) -> None:
        """Reject noise bits of all certain honest reports that do not achieve ε and δ."""
        rule = "absent with noise bits: numbers modulo it would have other noise"
        _require(offer.modulus is None, "modulus", offer.modulus, rule)
        bits = (offer.parts or 0) - offer.levels
        rule = f"above the {offer.levels} levels of an answer: the rest are noise bits"
        _require(bits >= 1, "number of messages per metric", offer.parts, rule)
        _require(0 < bias < 1, "bias of noise bits", bias, "above 0 and below 1")
        variance = divisor * bits * bias * (1 - bias)
        self._check_least("variance of the noise bits", variance, offer.chosen)
        epsilon, delta = self.terms.per_metric_target
        if offer.chosen:
            self._check_enough(cells_delta(divisor * bits, bias, epsilon), delta)
            return
        found = binomial_delta(divisor * bits, bias, offer.levels, epsilon)
        self._check_enough(found, delta)

    def _check_certified(self, offer: Offer, divisor: int, total: Fraction) -> None:
        """Reject shares other than those of the certificate for so many users."""
        self._check_least("total noise", total)
        rule = "absent with bits: numbers modulo it would have other noise"
        _require(offer.modulus is None, "modulus", offer.modulus, rule)
        try:
            proven = lookup(divisor, self.terms.per_metric_target[0]).certificate.parameters
        except TacitError as unknown:
            raise Rejected(f"share divisor of the round has no certificate: {unknown}") from None
        rule = f"{proven.bits}, as certified for {divisor} users"
        _require(offer.parts == proven.bits, "number of messages per metric", offer.parts, rule)
        scale = 1 / proven.noise_epsilon
        rule = f"{scale}, as certified for {divisor} users"
        _require(total == scale, "total noise", total, rule)

    def _check_gaussian(self, divisor: int, sigma: Fraction, levels: int) -> None:
        epsilon, delta = self.terms.per_metric_target
        self._check_enough(gaussian_delta(sigma, levels, epsilon, divisor), delta)

    def _check_statistic(self, divisor: int, sigma: Fraction) -> None:
        self._check_enough(statistic_delta(self.terms, sigma, divisor), self.terms.noise_delta)

    def _check_enough(self, noise_delta: float, delta: Fraction) -> None:
        enough = noise_delta <= delta * (1 + Fraction(SLACK))
        rule = f"at most {float(delta):.3g}, that of one metric in the terms. Announce more noise"
        _require(enough, "delta of the noise", f"{noise_delta:.3g}", rule)

    def _check_parts(self, offer: Offer, divisor: int) -> None:
        """Reject too few additive shares of one number to hide all but their sum."""
        if self.terms.noise.distribution != parts.DISCRETE_LAPLACE:
            return
        if offer.modulus is None or offer.parts is None:
            raise Rejected("modulus or number of messages of the round is missing: must be stated")
        rule = f"at least {FEWEST_SPLIT}: splitting and mixing is proven from there on"
        _require(divisor >= FEWEST_SPLIT, "share divisor", divisor, rule)
        least = split_shares(divisor, offer.modulus)
        rule = f"at least {least} for {divisor} honest reports modulo {offer.modulus}"
        _require(offer.parts >= least, "number of messages per metric", offer.parts, rule)

    def succeeded_by(
        self,
        terms: Terms,
        signatures: tuple[bytes, ...],
        approvals: Sequence[bytes],
    ) -> Pinned:
        """Return successor terms as pinned terms; keys change in no other way.

        They must be signed by their own parties (`signatures`), approved by all parties of these
        terms (`approvals`), and no weaker.
        """
        check_successor(self.terms, terms)
        self._check_signed(Signed.SUCCESSOR, terms.encode(), approvals)
        return Pinned(terms, signatures, terms.keys)


def check_successor(old: Terms, new: Terms) -> None:
    """Reject new terms that do not succeed the old ones, or are weaker.

    Notes
    -----
    Question, options, days, organisation, purpose, contact and the parties' addresses and keys may
    change; options not where devices choose. Admission and issuer may change only where servers add
    the noise, since no participant's noise then depends on who is admitted. A suite may become
    post-quantum. Nothing else may become weaker.
    """
    wanted, found = old.digest.hex(), new.predecessor.hex()
    require(wanted == found, "predecessor", found or "empty", f"{wanted}, the old terms", Rejected)
    check_no_weaker(old, new)


def check_no_weaker(old: Terms, new: Terms) -> None:
    """Reject new terms that ask for more than old ones, or protect less: see `check_successor`."""
    same: list[tuple[str, object, object]] = [
        ("answer", new.answer, old.answer),
        ("trust model", new.trust.value, old.trust.value),
        ("proofs", new.proofs, old.proofs),
        ("claim", new.aggregation.claim, old.aggregation.claim),
        ("party that adds the noise", new.noise.by, old.noise.by),
        ("distribution of the noise", new.noise.distribution, old.noise.distribution),
        ("share divisor rule", new.noise.share_divisor, old.noise.share_divisor),
        ("no-show rate", new.no_show, old.no_show),
        ("context", new.context, old.context),
    ]
    if old.context is not None:
        same.append(("options", new.options, old.options))
    if new.suite != POST_QUANTUM_SUITE:
        same.append(("suite", new.suite, old.suite))
    if new.noise.by == "devices":
        same.append(("admission", new.admission, old.admission))
        same.append(("issuer", new.issuer.hex(), old.issuer.hex()))
    for name, after, before in same:
        _require(after == before, name, after, f"{before} as before", "successor terms")
    ours, theirs = new.aggregation, old.aggregation
    no_larger: tuple[tuple[str, Fraction | int, Fraction | int], ...] = (
        ("epsilon", new.guarantee.epsilon, old.guarantee.epsilon),
        ("delta", new.guarantee.delta, old.guarantee.delta),
        ("participations", new.guarantee.participations, old.guarantee.participations),
        ("grace", new.grace, old.grace),
    )
    no_smaller: tuple[tuple[str, Fraction | int, Fraction | int], ...] = (
        ("minimum batch size", ours.minimum_batch_size, theirs.minimum_batch_size),
        ("missing fraction", ours.missing_fraction, theirs.missing_fraction),
        ("dishonest count", ours.dishonest_count, theirs.dishonest_count),
        ("dishonest fraction", ours.dishonest_fraction, theirs.dishonest_fraction),
        ("noise scale", new.noise.scale, old.noise.scale),
        ("minimum of the noise", new.noise.least, old.noise.least),
    )
    for name, most, before in no_larger:
        _require(most <= before, name, most, f"at most {before} as before", "successor terms")
    for name, least, before in no_smaller:
        _require(least >= before, name, least, f"at least {before} as before", "successor terms")


def _require(condition: object, name: str, value: object, rule: str, of: str = "the round") -> None:
    require(condition, f"{name} of {of}", value, rule, Rejected)


def _same(name: str, value: object, stated: object) -> None:
    _require(value == stated, name, value, f"{stated}, as in the terms")


def in_order(terms: Terms, leader: bytes, helper: bytes) -> tuple[bytes, bytes]:
    """The signatures of two parties in the order of the terms."""
    return (leader, helper) if terms.leader == 0 else (helper, leader)


def cosign(terms: Terms, key: Ed25519PrivateKey) -> bytes:
    """Sign terms that name this party's key."""
    check_party_key(terms, key)
    return sign(Signed.TERMS, terms.encode(), key)


def approve_successor(old: Terms, new: Terms, key: Ed25519PrivateKey, records: Records) -> bytes:
    """Sign the successor as a party of the old terms: one successor per digest, ever.

    `records` stores the successor before it is signed; the same request gets the same signature.
    """
    check_party_key(old, key)
    check_successor(old, new)
    first = records.replace(b"successor" + old.digest, None, new.digest)
    rule = f"{(first or b'').hex()}, as signed before: terms have one successor"
    require(first == new.digest, "digest of the successor", new.digest.hex(), rule, Rejected)
    return sign(Signed.SUCCESSOR, new.encode(), key)


def check_party_key(terms: AggregatedTerms, key: Ed25519PrivateKey) -> None:
    """Reject a key that is not the long-term key of a party of the terms."""
    own = public_key(key)
    rule = "the long-term key of a party of the terms"
    require(own in terms.keys, "key", fingerprint(own), rule)
