"""The weakest live terms and rounds that a device accepts, recomputed.

For a grid of trust models, noise, levels, metrics, participations and sizes of rounds this searches
by bisection for the least noise that signed terms may state and for the round with the most shares
that `Pinned.check` accepts under them. ε and δ follow from the distribution of what is seen, with
exactly as many missing and dishonest participants as the signed assumptions allow: those of one
round must be at most what the ledger is charged, those of all rounds at most what terms state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath as mp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.verify import arithmetic as slow

from tacit.contextual.fitted import FitPolicy
from tacit.contextual.policies import ONE, LinearPolicy, TablePolicy
from tacit.errors import TacitError
from tacit.sampling.certificates import load_table
from tacit.signatures import public_key
from tacit.terms import (
    ROLES,
    Aggregation,
    Answer,
    ContextField,
    ContextTerms,
    Noise,
    Offer,
    Party,
    Pinned,
    StatedGuarantee,
    Terms,
    cosign,
)
from tacit.terms.context import (
    BY_POLICY,
    CornerTerms,
    FeatureTerms,
    FittedTerms,
    NumberField,
)
from tacit.terms.parts import MOST_MESSAGES
from tacit.trust import SHUFFLE_SECURITY, TrustModel

KEYS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
GRAIN = 10**4  # noise parameters are multiples of 1/GRAIN
MASKS = 40  # bits: secure aggregation reveals more than a sum with a probability of 2^-40
LARGEST_GROUP = 1000  # bits of a group whose numbers of ones are multiplied out
DEVICES = (ContextField("device", ("phone", "desktop")),)
TABLE = ContextTerms(DEVICES, evaluation=Fraction(1, 5))
WHOLE_TABLE = ContextTerms(DEVICES)  # through a shuffler, which serves no slice
_OLD, _NEW = ((1 << 19, 0, 0, 0),), ((1 << 18, 1 << 16, -(1 << 16), 1 << 17),)
CORNERS = CornerTerms(
    (*DEVICES, NumberField("age", Fraction(18), Fraction(90))), matrices=(_OLD, _NEW)
)
FIT = FitPolicy(((0, 2), (1, 2)), ((1e9, 0.0), (0.0, 1e9), (1.0, 1.0)))


@dataclass(frozen=True)
class Setting:
    """Terms but for their noise, and the size of a round; `chosen`: devices choose the option."""

    trust: TrustModel
    noise: str
    by: str = "devices"
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(0)
    levels: int = 1
    metrics: int = 1
    participations: int = 1
    slots: int = 100
    missing: Fraction = Fraction(0)
    dishonest: int = 0
    fraction: Fraction = Fraction(0)
    context: ContextTerms | None = None
    chosen: bool = False

    def terms(self, scale: Fraction) -> Terms:
        """The terms with noise of this parameter; raises `TacitError` where it is too little."""
        roles = ROLES[self.trust]
        parties = tuple(
            Party(role, f"https://{role}.example", public_key(key))
            for role, key in zip(roles, KEYS, strict=False)
        )
        return Terms(
            question="Which is better?",
            options=("old", "new"),
            answer=Answer("how much", tuple("abcdefgh"[: self.metrics]), self.levels),
            guarantee=StatedGuarantee(self.epsilon, self.delta, self.participations),
            noise=Noise(scale, self.by, self.noise),
            parties=parties,
            first_day=date(2027, 1, 1),
            last_day=date(2027, 2, 1),
            trust=self.trust,
            aggregation=Aggregation(2, self.missing, self.dishonest, self.fraction),
            context=self.context,
        )


def least(accepts: Callable[[int], Any]) -> int:
    """The smallest accepted positive integer; all larger ones are accepted, too."""
    high = 1
    while not accepts(high):
        high *= 2
        if high > 1 << 62:
            raise TacitError("nothing is accepted")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return high


def accepted(make: Callable[[], Any]) -> bool:
    """Whether nothing objects."""
    try:
        make()
    except TacitError:
        return False
    return True


def weakest_terms(setting: Setting) -> Pinned:
    """Signed terms with the least noise that they may state."""
    grains = least(lambda k: accepted(lambda: setting.terms(Fraction(k, GRAIN))))
    made = setting.terms(Fraction(grains, GRAIN))
    keys = KEYS[: len(made.parties)]
    return Pinned(made, tuple(cosign(made, key) for key in keys), made.keys)


def weakest_rounds(setting: Setting, pinned: Pinned) -> Iterator[Offer]:
    """Rounds that a device accepts with the least noise: with the fewest reports, and with all."""
    terms = pinned.terms
    base = Offer(
        terms=terms.digest,
        kind=terms.kind,
        option=BY_POLICY if setting.chosen else 0,
        slots=setting.slots,
        minimum=setting.slots,
        levels=setting.levels,
        metrics=terms.numbers(setting.chosen),
        window=0,
        closes=terms.first_second + 100,
        suite=terms.suite,
        modulus=1 << 60,
        policy=_policy(setting.context) if setting.chosen else b"",
    )
    pinned.check(_sound(setting, base))
    fewest = setting.slots - least(
        lambda lost: not accepted(lambda: pinned.check(_sound(setting, base, -lost)))
    )
    for minimum in sorted({min(fewest + 1, setting.slots), setting.slots}):
        yield from _with_least_noise(setting, pinned, replace(base, minimum=minimum))


def _policy(context: ContextTerms | None) -> bytes:
    if isinstance(context, FittedTerms):
        return FIT.encode()
    if isinstance(context, FeatureTerms):
        d = context.dimension
        return LinearPolicy((0.0,) * d, (((0.0,) * d,) * d,)).encode()
    return TablePolicy(((ONE, 0), (0, ONE))).encode()


def _sound(setting: Setting, base: Offer, fewer: int = 0) -> Offer:
    """A round with plenty of noise, of so many fewer reports."""
    offer = replace(base, minimum=base.minimum + fewer)
    most = MOST_MESSAGES // base.metrics
    if setting.by == "servers":
        return replace(offer, scale=Fraction(10**12))
    if setting.noise == "binomial":
        return replace(offer, modulus=None, divisor=1, total=Fraction(1, 2), parts=most)
    if setting.noise == "certified-polya":
        return _certified(setting, offer, 1)
    shared = 2**20 // base.metrics  # discrete Laplace has a limit for all numbers together
    wide = {"discrete-gaussian": 10**12 if setting.chosen else 1000}.get(setting.noise, shared)
    divisor = 19 if setting.trust is TrustModel.SHUFFLER else 1
    return replace(offer, divisor=divisor, total=Fraction(wide), parts=most)


def _certified(setting: Setting, offer: Offer, users: int) -> Offer:
    """A round with the shares of the strongest certificate of the table for so many users."""
    each = setting.epsilon / (setting.participations * setting.metrics)
    rows = [row for row in load_table() if row.users == users and row.target <= each]
    found = max(rows, key=lambda row: row.target).certificate.parameters
    total = 1 / found.noise_epsilon
    return replace(offer, modulus=None, divisor=users, total=total, parts=found.bits)


def _with_least_noise(setting: Setting, pinned: Pinned, base: Offer) -> Iterator[Offer]:
    sound = _sound(setting, base)
    if setting.by == "servers":
        grains = least(
            lambda k: accepted(lambda: pinned.check(replace(sound, scale=Fraction(k, GRAIN))))
        )
        yield replace(sound, scale=Fraction(grains, GRAIN))
        return
    if setting.noise == "certified-polya":
        sizes = sorted({row.users for row in load_table()})
        rounds = [_certified(setting, sound, users) for users in sizes]
        yield [one for one in rounds if accepted(partial(pinned.check, one))][-1]
        return
    known = sound.divisor or 1
    further = least(lambda k: not accepted(lambda: pinned.check(replace(sound, divisor=known + k))))
    shared = replace(sound, divisor=known + further - 1)
    if setting.noise == "binomial":
        for bias in (Fraction(1, 2), Fraction(1, 5)):
            biased = replace(shared, total=bias)
            yield replace(biased, parts=least(partial(_has_parts, pinned, biased)))
        return
    grains = least(
        lambda k: accepted(lambda: pinned.check(replace(shared, total=Fraction(k, GRAIN))))
    )
    yield replace(shared, total=Fraction(grains, GRAIN))


def _has_parts(pinned: Pinned, offer: Offer, parts: int) -> bool:
    return accepted(lambda: pinned.check(replace(offer, parts=parts)))


def honest_reports(document: dict[str, Any], offer: Offer) -> int:
    """Honest reports, the participant's own among them, by the signed list of assumptions."""
    dishonest = max(
        (
            max(one["count"], int(Fraction(one["fraction"]) * offer.slots))
            for one in document["assumptions"]
            if one["id"] == "dishonest-at-most"
        ),
        default=offer.slots - 1,
    )
    return max(1, offer.minimum - dishonest)


@dataclass(frozen=True)
class Number:
    """What is seen of one number: its largest loss, or the distribution of its noise; a participant
    moves `copies` such numbers in a round by `shift` each. Where noise is not symmetric, one of two
    cells gains what the other loses (`exchanged`).
    """

    copies: int
    pure: Any = None
    noise: slow.Distribution | None = None
    shift: int = 1
    exchanged: bool = False

    def delta(self, rounds: int, epsilon: Fraction) -> Any:
        """δ of so many rounds at this ε."""
        times = self.copies * rounds
        if self.noise is None:
            return 0 if times * self.pure <= mp.mpf(epsilon.numerator) / epsilon.denominator else 1
        if self.exchanged:
            return slow.exchanged_delta(self.noise, float(epsilon))
        if times == 1:
            return slow.delta(self.noise, self.shift, float(epsilon))
        return slow.composed_delta(self.noise, self.shift, times, float(epsilon))


def seen(setting: Setting, pinned: Pinned, offer: Offer) -> Number:
    """What a participant moves in a round, with as few honest reports as terms allow."""
    terms = pinned.terms
    moved, copies = setting.levels, setting.metrics
    if setting.chosen:
        moved, copies = 1, 2  # of a table two cells move by one
    if setting.by == "servers":
        assert offer.scale is not None
        return Number(copies, moved / _real(offer.scale))
    assert offer.total is not None
    assert offer.divisor is not None
    name = terms.distribution(setting.chosen)
    if name == "unary-encoding":
        return Number(1, _unary_loss(offer.total))
    if setting.trust is TrustModel.LOCAL:
        return Number(copies, moved / _real(offer.total))
    honest = honest_reports(terms.document(), offer)
    if name == "certified-polya":
        return Number(copies, _certified_loss(setting, offer, honest))
    if name == "discrete-laplace":
        return Number(copies, _laplace_loss(Fraction(honest, offer.divisor), offer.total, moved))
    exchanged = setting.chosen and name == "binomial"
    return Number(copies, None, _summed(name, offer, honest), moved, exchanged)


def _real(value: Fraction) -> Any:
    return mp.mpf(value.numerator) / value.denominator


def _unary_loss(parameter: Fraction) -> Any:
    """The largest |ln P/Q| of two cells' bits, over all of them, when the one moves from the first
    to the second: a fair coin for one's own cell, for others 1 with probability 1/(1 + e^ε).
    """
    other = 1 / (1 + mp.exp(2 / _real(parameter)))
    own = mp.mpf(1) / 2
    chance = {
        (cell, bit): (p if bit else 1 - p) for cell, p in ((1, own), (0, other)) for bit in (0, 1)
    }
    pairs = [(a, b) for a in (0, 1) for b in (0, 1)]
    return max(
        abs(mp.log(chance[1, a] * chance[0, b] / (chance[0, a] * chance[1, b]))) for a, b in pairs
    )


def _laplace_loss(part: Fraction, scale: Fraction, shift: int) -> Any:
    """Of so many parts of discrete Laplace noise: all of it, or Pólya shares that make up less."""
    if part >= 1:
        return shift / _real(scale)
    return slow.largest_loss(slow.polya_difference(part, 1 / scale), shift)


def _certified_loss(setting: Setting, offer: Offer, honest: int) -> Any:
    """When none, half or all of the other honest participants have a 1."""
    assert offer.divisor is not None
    assert offer.parts is not None
    if honest * offer.parts > LARGEST_GROUP:
        raise TacitError("large groups: python -m tacit.papers.certificates --check")
    each = setting.epsilon / (setting.participations * setting.metrics)
    rows = [row for row in load_table() if row.users == offer.divisor and row.target <= each]
    found = max(rows, key=lambda row: row.target).certificate.parameters
    share = slow.polya_difference(Fraction(1, found.users), found.noise_epsilon)
    weights = slow.reports(found.tau, found.mixture, share)
    return max(slow.group_loss(weights, honest, ones) for ones in {0, honest // 2, honest - 1})


def _summed(name: str, offer: Offer, honest: int) -> slow.Distribution:
    """The noise of the honest reports."""
    assert offer.total is not None
    assert offer.divisor is not None
    if name == "skellam":
        return slow.skellam(_real(offer.total * honest / offer.divisor))
    if name == "binomial":
        assert offer.parts is not None
        return slow.binomial((offer.parts - offer.levels) * honest, offer.total)
    share = float(offer.total) / math.sqrt(offer.divisor)
    if 10 * honest * math.exp(-((math.pi * share) ** 2)) < 1e-15:  # KLS21: a discrete Gaussian
        return slow.gaussian(share * math.sqrt(honest))
    return slow.power(slow.gaussian(share), honest)


def aggregation_delta(setting: Setting, rounds: int, epsilon: Fraction) -> Any:
    """What masks, or shares that are split and mixed, add to δ."""
    if setting.trust is TrustModel.SECURE_AGGREGATION:
        return mp.mpf(rounds) / 2**MASKS
    if setting.trust is TrustModel.SHUFFLER and setting.noise == "discrete-laplace":
        return rounds * setting.metrics * (1 + mp.exp(_real(epsilon))) / 2**SHUFFLE_SECURITY
    return mp.mpf(0)


def used(setting: Setting) -> Iterator[tuple[float, str]]:
    """The part of the stated ε or δ that is truly needed in the weakest rounds, for one round and
    for all participations.
    """
    pinned = weakest_terms(setting)
    terms = pinned.terms
    for offer in weakest_rounds(setting, pinned):
        number, cost = seen(setting, pinned, offer), pinned.check(offer)
        about = f"{setting}, {offer.minimum} of {offer.slots}, divisor {offer.divisor}"
        for rounds, epsilon, delta in (
            (1, cost, terms.delta_cost),
            (setting.participations, terms.guarantee.epsilon, terms.guarantee.delta),
        ):
            if number.noise is None:
                yield float(number.copies * rounds * number.pure / _real(epsilon)), about
                if not delta:
                    continue
            needed = aggregation_delta(setting, rounds, epsilon)
            if number.noise is not None:
                needed += number.delta(rounds, epsilon)
            yield float(needed / _real(delta)), about
        if number.noise is not None and not setting.chosen:  # of each, as basic composition has it
            epsilon, delta = terms.per_metric_target
            needed = slow.delta(number.noise, number.shift, float(epsilon))
            yield float(needed / _real(delta)), about


def settings(quick: bool) -> Iterator[Setting]:
    """The grid; every fifth of it where `quick`."""
    grid = [*_local(), *_two_servers(), *_masked(), *_shuffled()]
    yield from grid[::5] if quick else grid


def _local() -> Iterator[Setting]:
    epsilons = [Fraction(1, 10), Fraction(1), Fraction(13, 3)]
    for epsilon in epsilons:
        for levels, metrics, often in ((1, 1, 1), (1, 3, 2), (7, 2, 3)):
            about: dict[str, Any] = {
                "epsilon": epsilon,
                "metrics": metrics,
                "participations": often,
            }
            yield Setting(TrustModel.LOCAL, "discrete-laplace", levels=levels, **about)
            if levels == 1:
                yield Setting(TrustModel.LOCAL, "randomized-response", **about)
        for chosen in (False, True):
            context: dict[str, Any] = {
                "context": TABLE,
                "chosen": chosen,
                "metrics": 1 if chosen else 2,
            }
            yield Setting(TrustModel.LOCAL, "unary-encoding", epsilon=epsilon, **context)


def _two_servers() -> Iterator[Setting]:
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(13, 3)):
        for levels, metrics, often in ((1, 1, 1), (1, 3, 2), (7, 2, 3)):
            about: dict[str, Any] = {"levels": levels, "metrics": metrics, "participations": often}
            shared = about | {"dishonest": 1, "fraction": Fraction(1, 7), "missing": Fraction(1, 5)}
            for by, more in (("servers", about), ("devices", shared)):
                yield Setting(
                    TrustModel.TWO_SERVERS, "discrete-laplace", by, epsilon=epsilon, **more
                )
        for chosen in (False, True):
            context: dict[str, Any] = {
                "context": TABLE,
                "chosen": chosen,
                "metrics": 1 if chosen else 2,
            }
            yield Setting(
                TrustModel.TWO_SERVERS, "discrete-laplace", "servers", epsilon=epsilon, **context
            )
        context = {"context": CORNERS, "chosen": True}
        yield Setting(
            TrustModel.TWO_SERVERS, "discrete-laplace", "servers", epsilon=epsilon, **context
        )


def _masked() -> Iterator[Setting]:
    for epsilon, delta in ((Fraction(1, 3), Fraction(1, 10**6)), (Fraction(2), Fraction(1, 10**9))):
        for slots, dishonest, part, missing in (
            (2, 1, Fraction(0), Fraction(0)),
            (19, 3, Fraction(0), Fraction(0)),
            (64, 1, Fraction(1, 10), Fraction(1, 3)),
            (1000, 2, Fraction(1, 3), Fraction(1, 5)),
        ):
            for levels, metrics, often in ((1, 1, 1), (4, 2, 3)):
                about: dict[str, Any] = {
                    "levels": levels,
                    "metrics": metrics,
                    "participations": often,
                }
                about |= {"epsilon": epsilon, "delta": delta, "slots": slots, "missing": missing}
                about |= {"dishonest": dishonest, "fraction": part}
                for noise in ("discrete-laplace", "skellam", "discrete-gaussian"):
                    yield Setting(TrustModel.SECURE_AGGREGATION, noise, **about)
            about = {"epsilon": epsilon, "delta": delta, "slots": slots, "missing": missing}
            about |= {"dishonest": dishonest, "fraction": part, "context": TABLE}
            for chosen in (False, True):
                more: dict[str, Any] = {"chosen": chosen, "metrics": 1 if chosen else 2}
                yield Setting(TrustModel.SECURE_AGGREGATION, "discrete-laplace", **about, **more)
            more = {"context": CORNERS, "chosen": True}
            yield Setting(TrustModel.SECURE_AGGREGATION, "discrete-laplace", **about | more)


def _shuffled() -> Iterator[Setting]:
    for epsilon, delta in ((Fraction(1, 2), Fraction(1, 10**6)), (Fraction(2), Fraction(1, 10**8))):
        for slots, dishonest, part, missing in (
            (25, 1, Fraction(0), Fraction(1, 10)),
            (100, 1, Fraction(1, 10), Fraction(1, 5)),
            (700, 5, Fraction(1, 3), Fraction(0)),
        ):
            about: dict[str, Any] = {
                "epsilon": epsilon,
                "delta": delta,
                "slots": slots,
                "missing": missing,
            }
            about |= {"dishonest": dishonest, "fraction": part}
            for levels, metrics, often in ((1, 1, 1), (3, 2, 2)):
                more: dict[str, Any] = {
                    "levels": levels,
                    "metrics": metrics,
                    "participations": often,
                }
                for noise in ("discrete-laplace", "binomial"):
                    yield Setting(TrustModel.SHUFFLER, noise, **about, **more)
            about |= {"context": WHOLE_TABLE, "chosen": True}
            yield Setting(TrustModel.SHUFFLER, "binomial", **about)
    for slots, dishonest, missing, metrics in (
        (3, 1, Fraction(0), 1),
        (9, 2, Fraction(1, 9), 1),
        (20, 3, Fraction(1, 10), 2),
    ):
        about = {"slots": slots, "dishonest": dishonest, "missing": missing, "metrics": metrics}
        yield Setting(TrustModel.SHUFFLER, "certified-polya", epsilon=Fraction(2), **about)
