"""Checks of rounds and successors against pinned terms.

A device compares the description of a round with the terms it was shown (`Pinned.check`) before it
draws any randomness, and rejects weaker rounds. Parties do the same before they sign. Only integers
are compared, so that a browser can do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import Refusal, TacitError
from tacit.records import Records
from tacit.signatures import Signed, fingerprint, public_key, sign, verify
from tacit.terms.document import POST_QUANTUM_SUITE, Terms
from tacit.trust import TrustModel


@dataclass(frozen=True)
class Offer:
    """The fields of a round description that concern a participant.

    `scale` is that of each server's own noise; None where devices draw the noise. There each device
    draws one of `divisor` shares of noise whose parameter is `total`: the scale of discrete Laplace
    noise, the variance in rehearsals. `closes` is the deadline in seconds since 1970; round keys
    live `grace` seconds longer.
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
                raise Refusal(
                    f"the terms name {fingerprint(party.key)} as the {party.role}'s key, but "
                    f"pinned is {fingerprint(key)}: somebody stands between, or keys were changed "
                    "without successor terms"
                )
        self._check_signed(Signed.TERMS, self.terms.encode(), self.signatures)

    def _check_signed(self, kind: Signed, message: bytes, signatures: Sequence[bytes]) -> None:
        if not len(signatures) == len(self.keys) == len(self.terms.parties):
            raise Refusal(
                f"{len(signatures)} signatures and {len(self.keys)} pinned keys; the terms name "
                f"{len(self.terms.parties)} parties, and all must have signed"
            )
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
            levels · metrics / scale where servers add the noise, else an equal part of ε.

        Raises
        ------
        Refusal
            If the round differs from the terms or is weaker.
        """
        terms, answer = self.terms, self.terms.answer
        self._same("terms", offer.terms.hex(), terms.digest.hex())
        self._same("kind", offer.kind, terms.kind)
        self._same("number of levels", offer.levels, answer.levels)
        self._same("number of metrics", offer.metrics, len(answer.metrics))
        self._same("observation window", offer.window, answer.window)
        self._same("suite", offer.suite, terms.suite)
        if not 0 <= offer.option < len(terms.options):
            raise Refusal(f"option {offer.option} is none of the {len(terms.options)} of the terms")
        if not 1 <= offer.minimum <= offer.slots:
            raise Refusal(
                f"minimum is {offer.minimum} and slots {offer.slots}: a round has at least one "
                "slot, and is released from 1 to as many reports on. Announce more slots or a "
                "smaller minimum."
            )
        if offer.minimum < terms.aggregation.minimum_batch_size:
            raise Refusal(
                f"the round is released from {offer.minimum} reports on; the terms promise a "
                f"minimum batch size of {terms.aggregation.minimum_batch_size}"
            )
        if not terms.first_second <= offer.closes < terms.last_second:
            raise Refusal(
                f"the round closes at {offer.closes}, outside of {terms.first_day} to "
                f"{terms.last_day}, the days of the terms"
            )
        if not 0 <= offer.grace <= terms.grace:
            raise Refusal(
                f"the grace of the round is {offer.grace} seconds; under the terms round keys live "
                f"from 0 to at most {terms.grace} seconds after a round closes"
            )
        self._check_modulus(offer)
        return self._check_noise(offer)

    def _same(self, what: str, found: object, promised: object) -> None:
        if found != promised:
            raise Refusal(f"the {what} of the round is {found}; the terms say {promised}")

    def _check_modulus(self, offer: Offer) -> None:
        if offer.modulus is not None and offer.modulus <= offer.slots * offer.levels:
            raise Refusal(
                f"modulus {offer.modulus} has no room for the sum of {offer.slots} reports of "
                f"{offer.levels} levels"
            )

    def _check_noise(self, offer: Offer) -> Fraction:
        by = self.terms.noise.by
        if (by == "servers") != (offer.scale is not None):
            raise Refusal(
                f"the terms say that {by} add the noise; the round says "
                f"{'devices' if offer.scale is None else 'servers'}"
            )
        if offer.scale is not None:
            self._check_least("each server's noise has scale", offer.scale)
            return Fraction(offer.levels * offer.metrics) / offer.scale
        self._check_shares(offer)
        return self.terms.cost

    def _check_least(self, what: str, parameter: Fraction) -> None:
        """Reject less noise than the terms' minimum, in integers."""
        least = self.terms.noise.least
        top, bottom = parameter.numerator, parameter.denominator
        if top * least.denominator < least.numerator * bottom:
            raise Refusal(f"{what} {parameter}; the terms need at least {least}")

    def _check_shares(self, offer: Offer) -> None:
        """Reject noise shares that do not suffice with all tolerated missing and dishonest ones.

        Requires divisor <= min(minimum, slots) - dishonest, and minimum >= slots - missing. In the
        local model the adversary sees each message, so every device draws all of the noise:
        divisor = 1.
        """
        about, slots = self.terms.aggregation, offer.slots
        if offer.divisor is None or offer.total is None:
            raise Refusal("the round does not say how the noise is divided among devices")
        self._check_least("the total noise of the round is", offer.total)
        if self.terms.trust is TrustModel.LOCAL and offer.divisor != 1:
            raise Refusal(
                f"the share divisor of the round is {offer.divisor}: must be 1 with trust local, "
                "where each message is seen alone. Announce a divisor of 1."
            )
        certain = slots - about.missing(slots)
        if offer.minimum < certain:
            raise Refusal(
                f"the round is released from {offer.minimum} reports on; of {slots} the terms "
                f"tolerate {about.missing(slots)} missing: at least {certain} must be there"
            )
        honest = min(offer.minimum, slots) - about.dishonest(slots)
        if not 1 <= offer.divisor <= honest:
            raise Refusal(
                f"the share divisor of the round is {offer.divisor}; {offer.minimum} reports, of "
                f"which the terms tolerate {about.dishonest(slots)} dishonest, allow at most "
                f"{honest}"
            )

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
    change. Admission and issuer may change only where servers add the noise, since no participant's
    noise then depends on who is admitted. A suite may become post-quantum. Nothing else may become
    weaker.
    """
    if new.predecessor != old.digest:
        raise Refusal("these terms do not name the ones that they would succeed")
    same: dict[str, tuple[object, object]] = {
        "answer": (new.answer, old.answer),
        "trust model": (new.trust.value, old.trust.value),
        "proofs": (new.proofs, old.proofs),
        "claim": (new.aggregation.claim, old.aggregation.claim),
        "who adds the noise": (new.noise.by, old.noise.by),
        "distribution of the noise": (new.noise.distribution, old.noise.distribution),
        "rule of share divisors": (new.noise.share_divisor, old.noise.share_divisor),
        "no-show rate": (new.no_show, old.no_show),
    }
    if new.suite != POST_QUANTUM_SUITE:
        same["suite"] = (new.suite, old.suite)
    if new.noise.by == "devices":
        same["admission"] = (new.admission, old.admission)
        same["issuer"] = (new.issuer.hex(), old.issuer.hex())
    for what, (after, before) in same.items():
        if after != before:
            raise Refusal(f"successor terms change the {what}, from {before} to {after}")
    after_, before_ = new.aggregation, old.aggregation
    no_larger: dict[str, tuple[Fraction, Fraction]] = {
        "a larger epsilon": (new.promise.epsilon, old.promise.epsilon),
        "a larger delta": (new.promise.delta, old.promise.delta),
        "more participations": _wholes(new.promise.participations, old.promise.participations),
        "a smaller minimum batch size": _wholes(
            -after_.minimum_batch_size, -before_.minimum_batch_size
        ),
        "fewer missing tolerated": (-after_.missing_fraction, -before_.missing_fraction),
        "fewer dishonest tolerated": _wholes(-after_.dishonest_count, -before_.dishonest_count),
        "a smaller part dishonest tolerated": (
            -after_.dishonest_fraction,
            -before_.dishonest_fraction,
        ),
        "noise of smaller scale": (-new.noise.scale, -old.noise.scale),
        "a smaller minimum of noise": (-new.noise.least, -old.noise.least),
        "a longer grace": _wholes(new.grace, old.grace),
    }
    for what, (after, before) in no_larger.items():
        if after > before:
            raise Refusal(f"successor terms are weaker: {what}, from {abs(before)} to {abs(after)}")


def _wholes(*numbers: int) -> tuple[Fraction, Fraction]:
    after, before = map(Fraction, numbers)
    return after, before


def cosign(terms: Terms, key: Ed25519PrivateKey) -> bytes:
    """Sign terms that name this party's key."""
    if public_key(key) not in terms.keys:
        raise TacitError("this key is none of those that the terms name")
    return sign(Signed.TERMS, terms.encode(), key)


def approve_successor(old: Terms, new: Terms, key: Ed25519PrivateKey, records: Records) -> bytes:
    """Sign the successor as a party of the old terms: one successor per digest, ever.

    `records` stores the successor before it is signed; the same request gets the same signature.
    """
    if public_key(key) not in old.keys:
        raise TacitError("this key is none of those that the terms to be succeeded name")
    check_successor(old, new)
    if records.replace(b"successor" + old.digest, None, new.digest) != new.digest:
        raise Refusal("these terms have another successor already; there is one, ever")
    return sign(Signed.SUCCESSOR, new.encode(), key)
