"""Checks of a sum protocol's declared guarantee: recomputed from its stated distribution, and
sampled from its devices.

`recompute` sums δ(ε) between neighbouring inputs from `view_distribution`. `sample` draws the real
`randomize` and `combine` and tests their distribution, their independence and their source of
randomness. `check_declared` does both once per content. They cannot show that an adversary sees no
more than the view says, nor check rounds that are too large to repeat.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations
from numbers import Integral
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tacit.assumptions import DishonestAtMost, Protects, ReleasedOnlyAbove, Scope
from tacit.errors import TacitError
from tacit.names import is_own
from tacit.noise import NoiseDistribution, Table
from tacit.noise.goodness_of_fit import dependent_lag, is_pseudo_random, p_value, scores, seeded
from tacit.noise.table import convolution_power, convolve, entries, modular_pmf
from tacit.privacy import (
    ApproximateDP,
    ComposedLoss,
    ConcentratedDP,
    Guarantee,
    Neighbours,
    PrivacyLoss,
    PureDP,
    RenyiDP,
    View,
)
from tacit.privacy.divergences import SHOWN
from tacit.privacy.loss import Direction
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.sums import ModularSum
from tacit.types import Aggregate, Floats, Integers

FALSE_POSITIVE_RATE = 1e-9
DRAWS = 100_000
FEWEST_ROUNDS = 150  # with fewer, missing half of the noise goes undetected
MOST_SHIFTS = 32  # shifts of a sum by one participant that are checked
MOST_POINTS = 20_000_000  # of all distributions compared; fewer shifts are checked beyond it
LARGEST = 4_000_000  # points of one distribution
ROUNDING = 1e-15  # of a probability that went through a Fourier transform
RELIABLE = 1e-10  # probabilities that rounding changes by less than a part in 10^5
UNRESOLVED, RESOLVED = 1e-6, 0.01  # largest rounding error of a δ; or this part of the declared one
COMPOSED = 0.02  # relative increase of a composed δ by discretization
READ_AT = (1e-3, 1e-6)  # δ at which guarantees of other kinds are compared
CLOSE = 1e-9  # total variation between two ways of stating one distribution
ADDED = 1e-6  # the same where one was convolved: far less than sampling shows
AT_SERVERS = (View.SERVER_OUTPUT, View.OTHER_SERVER)  # devices add no noise

_verdicts: dict[str, bool | str] = {}
_instances: WeakKeyDictionary[Protocol, tuple[str, str]] = WeakKeyDictionary()


class NotCheckableError(TacitError):
    """No automatic check exists for this protocol."""


def recompute(protocol: SumProtocol) -> None:
    """Recompute the declared guarantee from the stated distribution.

    Computes δ at the declared ε (and Rényi divergences where these are declared), in both
    directions, for all pairs of sums that differ in one participant, at the fewest honest reports
    that the guarantee allows and over several sums. Guarantees about several participations are
    composed.

    Parameters
    ----------
    protocol
        A protocol with a guarantee and an exact `view_distribution`.

    Raises
    ------
    TacitError
        Names the δ that was found and the one that was declared.
    NotCheckableError
        If there is no guarantee, or no exact distribution; or if it says what a distribution cannot
        show.

    Examples
    --------
    >>> from tacit.protocols.randomized_bits import RandomizedBits
    >>> recompute(RandomizedBits(40, PureDP(1.0)))
    """
    guarantee = _declared(protocol)
    _check_statement(protocol, guarantee)
    _check_size(protocol, guarantee)
    reports = _honest_reports(protocol)
    _check_added(protocol, reports)
    points = len(entries(_distribution(protocol, 0, reports))[1])
    shifts = min(MOST_SHIFTS, max(2, MOST_POINTS // (6 * points)))
    for one, other in _neighbours(protocol, reports, shifts):
        pair = _aligned(
            _distribution(protocol, one, reports), _distribution(protocol, other, reports)
        )
        for order, value in _divergences(guarantee):
            least = guarantee.participations * _least_divergence(*pair, order)
            if not least <= value:
                raise TacitError(
                    f"divergence of {type(protocol).__name__} at order {order:g} is at least "
                    f"{least:.4g} between sums {one} and {other} of {reports} reports: declared is "
                    f"{value:.4g} ({guarantee.short}). Add noise, or declare what it gives."
                )
        for epsilon, declared, times in _statements(guarantee):
            found = _delta(*pair, epsilon, times)
            rounding = _rounding(len(pair[0]), epsilon)
            slack = rounding + (COMPOSED * declared + 1e-9 if times > 1 else 0.0)
            if not found <= declared * (1 + 1e-6) + slack:
                raise TacitError(
                    f"delta of {type(protocol).__name__} is {found:.4g} at epsilon = {epsilon:g} "
                    f"between sums {one} and {other} of {reports} reports: declared is "
                    f"{declared:.4g} ({guarantee.short}). Add noise, or declare what it gives."
                )
            if rounding > max(UNRESOLVED, declared * RESOLVED):
                raise NotCheckableError(
                    f"delta of {type(protocol).__name__} at epsilon = {epsilon:g} has a rounding "
                    f"error of {rounding:.2g}: check the same protocol at a smaller epsilon"
                )


def sample(protocol: SumProtocol, draws: int = DRAWS) -> None:
    """Sample the real devices and compare them with the stated distribution.

    Compares messages if the view is one message, otherwise combined rounds of `minimum` reports.
    Tests the distribution (likelihood ratio), independence at every lag, and whether draws repeat
    when pseudo-random generators are reset. Each test has a false positive rate of at most 1e-9.

    Parameters
    ----------
    protocol
        A protocol with an exact distribution.
    draws
        Number of reports that are randomized, at least.

    Raises
    ------
    TacitError
        States which of the three tests failed.
    NotCheckableError
        If there is no exact distribution, or rounds are too large to repeat.

    Examples
    --------
    >>> from tacit.protocols.randomized_bits import RandomizedBits
    >>> sample(RandomizedBits(40, PureDP(1.0)), draws=2_000)
    """
    name = type(protocol).__name__
    by_message = protocol.guarantee is not None and protocol.guarantee.view is View.MESSAGE
    parts = _messages(protocol, draws) if by_message else _rounds(protocol, draws)
    ranks, variances = [], []
    for what, values, distribution in parts:
        found = p_value(values, distribution)
        if found < FALSE_POSITIVE_RATE:
            raise TacitError(
                f"{what} of {name} do not have the stated distribution: p = {found:.2g} over "
                f"{len(values)} draws, mean {values.mean():.4g} and variance {values.var():.4g} "
                f"instead of {distribution.mean:.4g} and {distribution.variance:.4g}. Correct "
                "randomize() or view_distribution()/released_distribution()."
            )
        rank, variance = scores(values, distribution)
        ranks.append(rank)
        variances.append(np.full(len(rank), variance))
    lag = dependent_lag(np.concatenate(ranks), np.concatenate(variances), FALSE_POSITIVE_RATE)
    if lag is not None:
        raise TacitError(
            f"draws of {name} depend on each other at lag {lag}: noise must not be reused. Draw it "
            "anew in every call of randomize()."
        )
    if seeded(_server_draw(protocol, by_message), _generators(protocol)):
        raise TacitError(
            f"noise of {name} repeats with the state of a pseudo-random generator: it must come "
            "from the operating system. Use draw() of a distribution in tacit.noise, or secrets."
        )


def check_declared(protocol: Protocol) -> bool:
    """Check a protocol's declared guarantee, once per content.

    Parameters
    ----------
    protocol
        Any protocol.

    Returns
    -------
    bool
        True if `recompute` and `sample` passed; False if the protocol cannot be checked
        automatically: it is no `SumProtocol`, declares nothing, has no exact distribution
        (continuous noise), or its rounds are too large to sum or to repeat.

    Raises
    ------
    TacitError
        Where the declared guarantee does not hold.

    Notes
    -----
    The result is kept for the process under a digest of the source code of the class and its bases,
    their modules, the public parameters and the state of the protocol.

    Examples
    --------
    >>> from tacit.protocols.continuous import CentralLaplace
    >>> check_declared(CentralLaplace(40, PureDP(1.0)))
    False
    """
    if not isinstance(protocol, SumProtocol) or protocol.guarantee is None:
        return False
    verdict = _known(protocol)
    if isinstance(verdict, str):
        raise TacitError(verdict)
    return verdict


def _known(protocol: SumProtocol) -> bool | str:
    """The cached verdict about an instance; its caches may grow, its parameters must not change."""
    public = _public_digest(protocol)
    try:
        before, key = _instances.get(protocol, ("", ""))
    except TypeError:  # instances that cannot be hashed
        before, key = "", ""
    if before != public:
        key = hashlib.sha256(public.encode() + _state(protocol)).hexdigest()
    if key not in _verdicts:
        _verdicts[key] = _verdict(protocol)
    try:
        _instances[protocol] = (public, key)
    except TypeError:
        return _verdicts[key]
    return _verdicts[key]


def _verdict(protocol: SumProtocol) -> bool | str:
    try:
        recompute(protocol)
        sample(protocol)
    except NotCheckableError:
        return False
    except TacitError as problem:
        return str(problem)
    return True


def _public_digest(protocol: SumProtocol) -> str:
    """SHA-256 of a protocol's source and public numbers."""
    digest = hashlib.sha256()
    for kind in type(protocol).__mro__[:-1]:
        digest.update(_source(kind))
    numbers = (protocol.participants, protocol.precision, protocol.minimum, protocol.honest)
    digest.update(repr((type(protocol).__qualname__, numbers, protocol.guarantee)).encode())
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def _source(kind: type) -> bytes:
    """The source of a class and of its module; bytecode if there is no source."""
    try:
        text = inspect.getsource(kind).encode()
    except (OSError, TypeError):
        text = b"".join(
            value.__code__.co_code + repr(value.__code__.co_consts).encode()
            for value in vars(kind).values()
            if inspect.isfunction(value)
        )
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        return text + (Path(path).read_bytes() if path else b"")
    except OSError:
        return text


def _state(protocol: SumProtocol) -> bytes:
    try:
        return pickle.dumps(vars(protocol))
    except Exception:
        return repr(sorted(vars(protocol).items())).encode()


# Declared guarantees and neighbouring inputs


def _declared(protocol: SumProtocol) -> Guarantee:
    if protocol.guarantee is None:
        raise NotCheckableError(
            f"{type(protocol).__name__} declares no guarantee: nothing to recompute"
        )
    return protocol.guarantee


def _check_statement(protocol: SumProtocol, guarantee: Guarantee) -> None:
    """Reject a guarantee that says more than the stated distribution can show, or that assumes more
    reports than the protocol waits for.
    """
    kept = [one.fraction for one in guarantee.assumptions if isinstance(one, ReleasedOnlyAbove)]
    least = math.ceil(max(kept, default=0) * protocol.participants)
    if protocol.minimum < least:
        raise TacitError(
            f"minimum of {type(protocol).__name__} is {protocol.minimum}: must be at least {least} "
            f"of {protocol.participants} reports, below which its guarantee assumes that nothing "
            "is released. Raise it, or state the fraction of reports that it waits for."
        )
    claims = [
        one.identifier
        for one in guarantee.sorted_assumptions()
        if one.descriptive and not isinstance(one, Protects) and not is_own(type(protocol))
    ]
    if guarantee.neighbours is not Neighbours.REPLACE_ONE:
        claims.append(guarantee.neighbours.value)
    if guarantee.metrics > 1:
        claims.append(f"{guarantee.metrics} metrics")
    if claims:
        raise NotCheckableError(
            f"{type(protocol).__name__} declares {', '.join(claims)}: a distribution of one sum of "
            "so many reports shows nothing about it"
        )


def _statements(guarantee: Guarantee) -> Iterator[tuple[float, float, int]]:
    """The (ε, δ) that the guarantee states, and the number of participations; per participation for
    a pure guarantee, since pure losses add up exactly.
    """
    times = guarantee.participations
    if isinstance(guarantee, PureDP):
        yield guarantee.epsilon / times, 0.0, 1
    elif isinstance(guarantee, ApproximateDP):
        yield guarantee.epsilon, guarantee.delta, times
    else:
        for delta in READ_AT:
            epsilon = guarantee.epsilon_at(delta)
            if math.isfinite(epsilon):
                yield epsilon, guarantee.delta_at(epsilon), times


def _divergences(guarantee: Guarantee) -> Iterator[tuple[float, float]]:
    """The orders and Rényi divergences that the guarantee states; of zCDP at a few orders."""
    if isinstance(guarantee, RenyiDP):
        yield from guarantee.curve
    elif isinstance(guarantee, ConcentratedDP):
        yield from ((order, guarantee.renyi(order)) for order in SHOWN)


def _least_divergence(p: Floats, q: Floats, order: float) -> float:
    """A lower bound on the Rényi divergence, of the larger direction: tiny probabilities, of which
    rounding leaves little, are left out, and what it may add to others is subtracted.
    """
    found = 0.0
    for one, other in ((p, q), (q, p)):
        seen = one > RELIABLE
        if np.any(seen & (other <= 0)):
            return math.inf
        seen &= other > RELIABLE
        logs = order * np.log(one[seen]) + (1 - order) * np.log(other[seen])
        if len(logs):
            top = float(logs.max())
            found = max(found, (top + math.log(float(np.exp(logs - top).sum()))) / (order - 1))
    return found * (1 - 1e-6) - ROUNDING / RELIABLE * (2 * order - 1) / (order - 1)


def _distribution(protocol: SumProtocol, total: int, reports: int) -> NoiseDistribution:
    try:
        return protocol.view_distribution(total, reports)
    except TacitError as problem:
        raise NotCheckableError(
            f"{type(protocol).__name__} has no exact view_distribution: {problem}"
        ) from None


def _honest_reports(protocol: SumProtocol) -> int:
    """The number of reports whose noise the adversary does not know.

    1 for a message. For a sum, as many as the stated assumptions leave; the participant's own alone
    if they limit no one. All reports for protocols of tacit that state complete rounds only, whose
    guarantee is certified.
    """
    guarantee, n = _declared(protocol), protocol.participants
    if guarantee.view is View.MESSAGE:
        return 1
    limits = [
        one.limit(n)
        for one in guarantee.assumptions
        if isinstance(one, DishonestAtMost) and one.scope is not Scope.SILOS
    ]
    kept = [one.fraction for one in guarantee.assumptions if isinstance(one, ReleasedOnlyAbove)]
    arrived = math.ceil(max(kept) * n) if kept else protocol.minimum
    honest = max(1, arrived - min(limits, default=n - 1))
    if guarantee.view in AT_SERVERS:
        honest = protocol.minimum
    try:
        protocol.view_distribution(0, honest)
    except TacitError as problem:
        if is_own(type(protocol)):
            return protocol.minimum
        raise NotCheckableError(
            f"view_distribution of {type(protocol).__name__} is not stated for {honest} reports, "
            f"the honest ones that its guarantee leaves of {n}: {problem}"
        ) from None
    return honest


def _check_added(protocol: SumProtocol, honest: int) -> None:
    """Reject a view of fewer reports than are sampled, unless the noise of these and of the others
    adds up to that of a released sum, which is sampled.
    """
    least = protocol.minimum
    if honest >= least or _declared(protocol).view in (View.MESSAGE, *AT_SERVERS):
        return
    parts = [_distribution(protocol, 0, count) for count in (honest, least - honest)]
    whole = _distribution(protocol, 0, least)
    p, q = _aligned(*_folded(protocol, convolve(*parts), whole))
    if float(np.abs(p - q).sum()) / 2 > ADDED:
        raise NotCheckableError(
            f"view_distribution of {type(protocol).__name__} states noise of {honest} and of "
            f"{least - honest} reports that does not add up to that of {least}, which is sampled: "
            "state the noise of as many devices as report"
        )


def _check_size(protocol: SumProtocol, guarantee: Guarantee) -> None:
    """Reject distributions with too many points."""
    top = protocol.participants * protocol.precision
    points = 1 if guarantee.view is View.MESSAGE else top
    if isinstance(protocol, ModularSum):
        points = protocol.modulus
    if points > LARGEST:
        raise NotCheckableError(
            f"sums of {type(protocol).__name__} range over {points:,} numbers: at most {LARGEST:,} "
            "are summed. Check the same protocol at a smaller size."
        )


def _neighbours(protocol: SumProtocol, reports: int, shifts: int) -> Iterator[tuple[int, int]]:
    """Pairs of sums that differ in one participant."""
    top = protocol.precision
    if reports == 1:
        yield from combinations(reversed(_evenly_spaced(0, top, math.isqrt(2 * shifts) + 2)), 2)
        return
    rest = (reports - 1) * top
    for others in sorted({0, rest // 2, rest}):
        for move in reversed(
            _evenly_spaced(1, top, shifts)
        ):  # the largest shift is the worst for most noise
            yield others, others + move


def _evenly_spaced(first: int, last: int, limit: int) -> list[int]:
    """All numbers, or about `limit` evenly spaced ones including both ends."""
    if last - first < limit:
        return list(range(first, last + 1))
    return sorted({round(x) for x in np.geomspace(first + 1, last + 1, limit) - 1} | {last})


def _aligned(first: NoiseDistribution, second: NoiseDistribution) -> tuple[Floats, Floats]:
    """The probabilities of two distributions over the same points."""
    (start, p), (offset, q) = entries(first), entries(second)
    low, high = min(start, offset), max(start + len(p), offset + len(q))
    both = np.zeros((2, high - low))
    both[0, start - low : start - low + len(p)] = p
    both[1, offset - low : offset - low + len(q)] = q
    return both[0], both[1]


def _rounding(points: int, epsilon: float) -> float:
    """The rounding error of a δ that is summed over this many points."""
    return ROUNDING * points * (1 + math.exp(min(epsilon, 700.0)))


def _delta(p: Floats, q: Floats, epsilon: float, participations: int) -> float:
    """The larger δ at ε of both directions; composed for several participations."""
    if epsilon > 700:
        return 0.0
    if participations == 1 or not np.any(p != q):
        factor = math.exp(epsilon)
        return max(
            float(np.maximum(0.0, one - factor * other).sum()) for one, other in ((p, q), (q, p))
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log(p) - np.log(q)
    directions = tuple(
        Direction.of(sign * losses[mass > 0], mass[mass > 0], 0.0)
        for sign, mass in ((1.0, p), (-1.0, q))
    )
    loss = PrivacyLoss(directions, math.inf)
    return ComposedLoss(((loss, participations),)).delta(epsilon)


# Samples from devices

Part = tuple[str, Integers, NoiseDistribution]


def _messages(protocol: SumProtocol, draws: int) -> Iterator[Part]:
    """Messages of participants in every slot, at several levels."""
    top = protocol.precision
    levels = sorted({0, top // 2, top})
    for level in levels:
        distribution, reward = _distribution(protocol, level, 1), level / top
        turns = math.ceil(draws / len(levels))
        slots = (turn % protocol.participants for turn in range(turns))
        sent = [protocol.report(reward, slot) for slot in slots]
        if not all(isinstance(message, Integral) for message in sent):
            raise TacitError(
                f"a message of {type(protocol).__name__} is {sent[0]!r}: view_distribution is "
                "about whole numbers. Send one, or state another view."
            )
        yield f"messages at level {level}", np.array([int(m) for m in sent]), distribution


def _rounds(protocol: SumProtocol, draws: int) -> Iterator[Part]:
    """Combined rounds of the fewest reports, from every slot in turn; the first half hold ones."""
    reports = protocol.minimum
    rounds = max(FEWEST_ROUNDS, math.ceil(draws / reports))
    if rounds * reports > 2 * max(draws, DRAWS):
        raise NotCheckableError(
            f"a round of {type(protocol).__name__} has {reports} reports: {rounds} rounds are too "
            "many to draw. Check the same protocol at a smaller size."
        )
    ones = (reports + 1) // 2
    rewards, total = [1.0] * ones + [0.0] * (reports - ones), ones * protocol.precision
    distribution = _released_distribution(protocol, total, reports)
    values = [_round(protocol, rewards, turn * reports).value for turn in range(rounds)]
    yield "combined rounds", np.array([int(value) for value in values]), distribution


def _released_distribution(protocol: SumProtocol, total: int, reports: int) -> NoiseDistribution:
    """`released_distribution`, which must equal the view where the view is the number itself.

    Where a server sees the rest besides its own noise, two draws of what it sees must be released:
    either server may be the honest one.
    """
    view = _distribution(protocol, total, reports)
    distribution = protocol.released_distribution(total, reports)
    if protocol.guarantee is not None and protocol.guarantee.view is View.OTHER_SERVER:
        start, both = convolution_power(_distribution(protocol, 0, reports), 2)
        p, q = _aligned(*_folded(protocol, Table.of(start + total, both), distribution))
        if float(np.abs(p - q).sum()) / 2 > CLOSE:
            raise NotCheckableError(
                f"released_distribution of {type(protocol).__name__} has not the noise of two "
                "equal servers: sampling it shows nothing about one of them"
            )
        return distribution
    p, q = _aligned(view, distribution)
    if float(np.abs(p - q).sum()) / 2 > CLOSE:
        raise TacitError(
            f"view_distribution and released_distribution of {type(protocol).__name__} differ: "
            "both are about the "
            "released number. State one distribution, or another view."
        )
    return distribution


def _folded(protocol: SumProtocol, *distributions: NoiseDistribution) -> list[NoiseDistribution]:
    """The distributions modulo m, where the protocol's sums are."""
    if not isinstance(protocol, ModularSum):
        return list(distributions)
    return [Table.of(0, modular_pmf(one, protocol.modulus)) for one in distributions]


def _round(protocol: SumProtocol, rewards: list[float], first: int) -> Aggregate:
    """A round of reports from consecutive slots, so that every slot takes its turn."""
    slots = ((first + place) % protocol.participants for place in range(len(rewards)))
    sent = [protocol.report(x, slot) for x, slot in zip(rewards, slots, strict=True)]
    return protocol.combine(sent)


def _server_draw(protocol: SumProtocol, by_message: bool) -> Callable[[], Any]:
    """A function that makes one draw of the party that adds the noise."""
    if protocol.guarantee is not None and protocol.guarantee.view in AT_SERVERS:
        sent = [protocol.report(0.0, place) for place in range(protocol.minimum)]
        return lambda: protocol.combine(sent).value
    count = 1 if by_message else min(protocol.minimum, 64)
    return lambda: [protocol.report(0.0, place) for place in range(count)]


def _generators(protocol: SumProtocol) -> list[Any]:
    """Pseudo-random generators that the protocol or its modules hold."""
    places = [vars(protocol)]
    for kind in type(protocol).__mro__[:-1]:
        module = sys.modules.get(kind.__module__)
        places += [dict(vars(kind)), {} if module is None else vars(module)]
    held = (value for place in places for value in list(place.values()))
    return [value for value in held if is_pseudo_random(value)]
