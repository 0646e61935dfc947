"""What a device derives from its terms: which rounds it takes part in, and which terms may succeed.

A device holds the description of a round against the terms that it was shown (`Pinned.check`)
before it draws any randomness, and refuses whatever is weaker. Only integers are compared, so that
a browser can do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.checks import Refusal, TacitError
from tacit.records import Records
from tacit.signatures import Signed, fingerprint, public_key, sign, verify
from tacit.terms.document import Terms


@dataclass(frozen=True)
class Offer:
    """What the description of a round says that concerns a person: what a device holds against
    its terms.

    `scale` is that of each server's own noise, None where devices add the noise. `closes` is the
    deadline in seconds since 1970.
    """

    terms: bytes
    kind: str
    option: int
    places: int
    minimum: int
    levels: int
    metrics: int
    window: int
    closes: int
    modulus: int | None = None
    scale: Fraction | None = None


@dataclass(frozen=True)
class Pinned:
    """Terms that a device was shown, with the parties' keys from where it trusts them.

    Making one checks that these very keys signed; so whoever holds one needs to ask no more.
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
        """Refuses a description that not all parties of the terms have signed."""
        self._check_signed(Signed.ROUND, description, signatures)

    def check(self, offer: Offer) -> Fraction:
        """What taking part costs, levels · metrics / scale; refuses a round that is weaker than
        the terms. To be called before any randomness is drawn.
        """
        terms, answer = self.terms, self.terms.answer
        self._same("terms", offer.terms.hex(), terms.digest.hex())
        self._same("intermediary", offer.kind, terms.middle.kind)
        self._same("number of levels", offer.levels, answer.levels)
        self._same("number of metrics", offer.metrics, len(answer.metrics))
        self._same("observation window", offer.window, answer.window)
        if not 0 <= offer.option < len(terms.options):
            raise Refusal(f"option {offer.option} is none of the {len(terms.options)} of the terms")
        if offer.minimum < terms.middle.crowd:
            raise Refusal(
                f"the round is opened from {offer.minimum} reports on; the terms promise a crowd "
                f"of at least {terms.middle.crowd}"
            )
        if not terms.first_second <= offer.closes < terms.last_second:
            raise Refusal(
                f"the round closes at {offer.closes}, outside of {terms.first_day} to "
                f"{terms.last_day}, the days of the terms"
            )
        self._check_modulus(offer)
        return self._check_noise(offer)

    def _same(self, what: str, found: object, promised: object) -> None:
        if found != promised:
            raise Refusal(f"the {what} of the round is {found}; the terms say {promised}")

    def _check_modulus(self, offer: Offer) -> None:
        if offer.modulus is not None and offer.modulus <= offer.places * offer.levels:
            raise Refusal(
                f"modulus {offer.modulus} has no room for the sum of {offer.places} reports of "
                f"{offer.levels} levels"
            )

    def _check_noise(self, offer: Offer) -> Fraction:
        terms = self.terms
        if (terms.noise.by == "servers") != (offer.scale is not None):
            raise Refusal(
                f"the terms say that {terms.noise.by} add the noise; the round says "
                f"{'devices' if offer.scale is None else 'servers'}"
            )
        if offer.scale is None:
            return terms.cost
        needed = offer.levels * offer.metrics * terms.promise.participations
        top, bottom = offer.scale.numerator, offer.scale.denominator
        e = terms.promise.epsilon
        if top * e.numerator < needed * bottom * e.denominator:
            raise Refusal(
                f"each server's noise has scale {offer.scale}; epsilon {e} needs at least "
                f"{Fraction(needed) / e}"
            )
        return Fraction(offer.levels * offer.metrics) / offer.scale

    def succeeded_by(
        self,
        terms: Terms,
        signatures: tuple[bytes, ...],
        approvals: Sequence[bytes],
    ) -> Pinned:
        """Terms that take the place of these: signed by their own parties (`signatures`) and
        approved by both of these (`approvals`), and no weaker. Keys change in no other way.
        """
        check_successor(self.terms, terms)
        self._check_signed(Signed.SUCCESSOR, terms.encode(), approvals)
        return Pinned(terms, signatures, terms.keys)


def check_successor(old: Terms, new: Terms) -> None:
    """Refuses new terms that do not succeed the old ones, or promise less."""
    if new.predecessor != old.digest:
        raise Refusal("these terms do not name the ones that they would succeed")
    same: dict[str, tuple[object, object]] = {
        "answer": (new.answer, old.answer),
        "intermediary": (new.middle.kind, old.middle.kind),
        "claim": (new.middle.claim, old.middle.claim),
        "who adds the noise": ((new.noise.by, new.noise.law), (old.noise.by, old.noise.law)),
    }
    for what, (after, before) in same.items():
        if after != before:
            raise Refusal(f"successor terms change the {what}, from {before} to {after}")
    no_larger: dict[str, tuple[Fraction, Fraction]] = {
        "a larger epsilon": (new.promise.epsilon, old.promise.epsilon),
        "a larger delta": (new.promise.delta, old.promise.delta),
        "more participations": _wholes(new.promise.participations, old.promise.participations),
        "a smaller crowd": _wholes(-new.middle.crowd, -old.middle.crowd),
        "less dropout withstood": (-new.middle.dropout, -old.middle.dropout),
        "fewer corrupt people withstood": (-new.middle.corrupt, -old.middle.corrupt),
        "noise of smaller scale": (-new.noise.scale, -old.noise.scale),
    }
    for what, (after, before) in no_larger.items():
        if after > before:
            raise Refusal(f"successor terms are weaker: {what}, from {abs(before)} to {abs(after)}")


def _wholes(*numbers: int) -> tuple[Fraction, Fraction]:
    after, before = map(Fraction, numbers)
    return after, before


def cosign(terms: Terms, key: Ed25519PrivateKey) -> bytes:
    """A party's signature under terms that name it."""
    if public_key(key) not in terms.keys:
        raise TacitError("this key is none of those that the terms name")
    return sign(Signed.TERMS, terms.encode(), key)


def approve_successor(old: Terms, new: Terms, key: Ed25519PrivateKey, records: Records) -> bytes:
    """The signature of a party of the old terms under their successor: one per digest, ever.

    Which one is in `records` before it is signed; asked again for the same, the same is given.
    """
    if public_key(key) not in old.keys:
        raise TacitError("this key is none of those that the terms to be succeeded name")
    check_successor(old, new)
    if records.replace(b"successor" + old.digest, None, new.digest) != new.digest:
        raise Refusal("these terms have another successor already; there is one, ever")
    return sign(Signed.SUCCESSOR, new.encode(), key)
