"""Who masks with whom: a random k-regular graph, and how large k and the threshold t must be (Bell
et al. 2020).

The graph is a ring whose places are dealt at random; each client is joined to the k nearest on the
ring. So the neighbours of a client are a uniformly random k-set of the others, and how many of them
drop out or are corrupt has a hypergeometric law. `neighbourhood` and `security` sum that law's
tails with exact integers; they use no asymptotic constant.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tacit.aggregation.interface import Refusal, uniform
from tacit.errors import Number, TacitError, integer, probability

Shuffle = Callable[[list[int]], None]

COMPLAINTS = 1
"""How many complaints a client may be in, made or received, before it is left out: an honest one is
in no more than it has lying neighbours.
"""


@dataclass(frozen=True)
class Neighbourhood:
    """Each client has `degree` neighbours, `threshold` of which can open what it shared with them.

    More than half of the neighbours are needed, so that no two disjoint groups of them can be told
    different things about the client and each open one of its two secrets.
    """

    degree: int
    threshold: int

    def __post_init__(self) -> None:
        integer("degree", self.degree, at_least=1)
        integer("threshold", self.threshold, at_least=1)
        if self.degree >= 1 << 16:
            raise TacitError(f"degree is {self.degree}; it must be below 65536")
        if not self.degree < 2 * self.threshold <= 2 * self.degree:
            raise TacitError(
                f"threshold is {self.threshold} of {self.degree} neighbours; it must be over half "
                "of them, at most all"
            )

    def fit(self, clients: int) -> Neighbourhood:
        """The same neighbourhood among those who came, never with weaker secrecy.

        Too few clients for the degree: all are neighbours. A regular graph of odd degree needs an
        even number of clients: otherwise degree and threshold grow by one.

        >>> Neighbourhood(21, 11).fit(999)
        Neighbourhood(degree=22, threshold=12)
        """
        degree, threshold = self.degree, self.threshold
        if degree >= clients - 1:
            degree = clients - 1
        elif degree % 2 and clients % 2:
            degree, threshold = degree + 1, threshold + 1
        if threshold > degree:
            raise Refusal(
                f"{clients} clients came, so each has {degree} neighbours, fewer than the "
                f"threshold of {threshold}; "
                f"nothing was opened. Wait for more, or open a new round."
            )
        return Neighbourhood(degree, threshold)


def regular_graph(clients: int, degree: int, shuffle: Shuffle | None = None) -> list[list[int]]:
    """The sorted neighbours of each client in a random regular graph.

    `shuffle` deals the places on the ring; without one it is the operating system's generator that
    does.

    >>> regular_graph(5, 2, shuffle=lambda _: None)
    [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
    """
    if not 1 <= degree < clients or (degree % 2 and clients % 2):
        raise TacitError(
            f"there is no {degree}-regular graph on {clients} clients; see Neighbourhood.fit"
        )
    ring = list(range(clients))
    (shuffle or secrets.SystemRandom().shuffle)(ring)
    steps = [*range(1, degree // 2 + 1), *range(-(degree // 2), 0)]
    if degree % 2:
        steps.append(clients // 2)
    neighbours: list[list[int]] = [[] for _ in ring]
    for place, client in enumerate(ring):
        neighbours[client] = sorted(ring[(place + step) % clients] for step in steps)
    return neighbours


def shuffled_by(seed: bytes) -> Shuffle:
    """A uniformly random order that follows from a 32-byte seed (Fisher-Yates).

    >>> places = list(range(5))
    >>> shuffled_by(bytes(32))(places)
    >>> sorted(places), places != list(range(5))
    ([0, 1, 2, 3, 4], True)
    """

    def shuffle(places: list[int]) -> None:
        stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor()
        for last in range(len(places) - 1, 0, -1):
            (pick,) = uniform(last + 1, 1, lambda size: stream.update(bytes(size)))
            places[last], places[pick] = places[pick], places[last]

    return shuffle


class Claim(StrEnum):
    """Against which server a neighbourhood is to hold, together with the corrupt clients.

    `SEMI_HONEST`: it follows the protocol, so it gets t shares of a client's second secret only
    if t neighbours are corrupt (Bell et al. 2020, Def. 3.2 and 3.3). `TWO_FATES`: it may tell some
    neighbours that a client stayed and others that it left; both secrets stay apart if 2t exceeds
    the degree by more than the corrupt neighbours. Neither holds against a server that lies about
    many clients at once or invents them.
    """

    SEMI_HONEST = "semi-honest"
    TWO_FATES = "two-fates"


@dataclass(frozen=True)
class Security:
    """How sure it is that nothing but the sum of the honest ones is learnt, whoever of `clients`
    come and stay, as long as `minimum` do and no more than `corrupt` are corrupt.

    >>> print(security(Neighbourhood(21, 11), 1000, 950, corrupt=50))
    21 neighbours, threshold 11: 20.5 bits (semi-honest, 50 of 1000 corrupt, 950 or more stay)
    """

    among: Neighbourhood
    clients: int
    minimum: int
    corrupt: int
    claim: Claim
    failure: Fraction
    """A bound on the probability over the graph that more than the sum is learnt."""

    @property
    def bits(self) -> float:
        """-log2 of `failure`; infinite where it cannot happen."""
        if not self.failure:
            return math.inf
        return math.log2(self.failure.denominator) - math.log2(self.failure.numerator)

    def __str__(self) -> str:
        bits = "certain" if not self.failure else f"{math.floor(10 * self.bits) / 10} bits"
        return (
            f"{self.among.degree} neighbours, threshold {self.among.threshold}: {bits} "
            f"({self.claim}, {self.corrupt} of {self.clients} corrupt, {self.minimum} or more stay)"
        )


def security(
    among: Neighbourhood,
    clients: int,
    minimum: int,
    corrupt: int | None = None,
    claim: Claim = Claim.SEMI_HONEST,
) -> Security:
    """The security that a neighbourhood has in a round of `clients` that opens for `minimum`."""
    n = integer("clients", clients, at_least=2)
    fewest = integer("minimum", minimum, at_least=1)
    bad = _tenth(n) if corrupt is None else integer("corrupt", corrupt, at_least=0)
    kept = Claim(claim)
    failure = _failure(n, n - fewest, bad, (among.degree, among.threshold), kept)
    return Security(among, n, fewest, bad, kept, failure)


def neighbourhood(
    clients: int,
    minimum: int | None = None,
    *,
    dropout: Number | None = None,
    corrupt: Number | None = None,
    security: int = 40,
    completion: int = 30,
    claim: Claim = Claim.SEMI_HONEST,
) -> Neighbourhood:
    """The smallest neighbourhood that keeps its promises while floor(dropout·n) leave and
    floor(corrupt·n) are corrupt: each a tenth unless said, and from four clients on at least one.

    Except with probability 2^-security over the graph, what is claimed holds for every client and
    the honest clients that stay are connected, so that only their sum is revealed; this with as few
    staying as the round's `minimum` allows, if that is fewer than n - floor(dropout·n). Except with
    probability 2^-completion, every client keeps t neighbours while no more than floor(dropout·n)
    leave, lie about parcels or are left out.

    >>> neighbourhood(1000)
    Neighbourhood(degree=53, threshold=29)
    >>> neighbourhood(1000, claim=Claim.TWO_FATES)
    Neighbourhood(degree=117, threshold=80)
    >>> neighbourhood(1000, minimum=400)
    Neighbourhood(degree=108, threshold=73)
    >>> neighbourhood(10)
    Neighbourhood(degree=4, threshold=3)
    """
    n = integer("clients", clients, at_least=2)
    gone, bad = _part("dropout", dropout, n), _part("corrupt", corrupt, n)
    fewest = n - gone if minimum is None else integer("minimum", minimum, at_least=1)
    lost = max(gone, n - fewest)
    if n - lost <= bad:
        raise TacitError(
            f"minimum is {n - lost} but {bad} of {n} clients may be corrupt: a sum of so few could "
            f"be of nobody else; raise the minimum above {bad}"
        )
    return _neighbourhood(
        n,
        (gone, lost, bad),
        integer("security", security, at_least=1),
        integer("completion", completion, at_least=1),
        Claim(claim),
    )


def _part(name: str, share: Number | None, clients: int) -> int:
    """floor(share·clients), where a float stands for the decimal number that it prints as: 0.3 of
    10 is 3.
    """
    if share is None:
        return _tenth(clients)
    exact = Fraction(repr(float(share))) if isinstance(share, float) else share
    return math.floor(probability(name, exact, zero=True) * clients)


def _tenth(clients: int) -> int:
    """Three clients cannot spare one: any two of them would be fewer than hide each other."""
    return max(1, clients // 10) if clients > 3 else 0


@lru_cache(maxsize=256)
def _neighbourhood(
    n: int, counts: tuple[int, int, int], security: int, completion: int, claim: Claim
) -> Neighbourhood:
    gone, lost, bad = counts
    leak, stall = Fraction(1, 2**security), Fraction(1, 2**completion)
    for degree in range(1, min(n, 1 << 16)):
        if degree % 2 and n % 2 and degree < n - 1:
            continue
        if disconnection(n, degree, lost + bad) > leak:
            continue
        threshold = degree - _spare(n, gone, degree, stall)
        if 2 * threshold <= degree:
            continue
        if _failure(n, lost, bad, (degree, threshold), claim) <= leak:
            return Neighbourhood(degree, threshold)
    raise TacitError(
        f"no neighbourhood among {n} clients tolerates {gone} dropouts and {bad} corrupt clients "
        f"for the claim {claim}; twice the dropouts plus the corrupt must stay well below the "
        "clients: tolerate fewer, or take more clients"
    )


def _spare(n: int, gone: int, degree: int, stall: Fraction) -> int:
    """The fewest pairs x that every client must be able to lose, so that some client loses more
    with probability `stall` at most. Each of the `gone` costs its neighbours one; and it may not
    have left, but lie and be in `COMPLAINTS` with others, each of which costs itself one too.
    """
    spare = quantile(n - 1, gone, degree, stall / n)
    while gone and spare < degree:
        honest = tail(n - 1, gone, degree, spare + 1)
        lying = tail(n - 1, gone - 1, degree, spare + 1 - COMPLAINTS)
        if (n - gone) * honest + gone * lying <= stall:
            break
        spare += 1
    return spare


@lru_cache(maxsize=256)
def _failure(n: int, lost: int, bad: int, among: tuple[int, int], claim: Claim) -> Fraction:
    """A bound on P[some client has too many corrupt neighbours, or the honest fall apart].

    The first is likeliest when all `lost` leave before the graph is dealt, the second when they
    leave after: both are counted. Where fewer come than a client should have neighbours, all are
    neighbours, which the pool of `degree` covers.
    """
    degree, threshold = among
    enough = threshold if claim is Claim.SEMI_HONEST else 2 * threshold - degree
    pool = max(n - 1 - lost, degree)
    both = n * tail(pool, min(bad, pool), degree, enough)
    return min(Fraction(1), both + disconnection(n, degree, min(n, lost + bad)))


def tail(population: int, marked: int, draws: int, least: int) -> Fraction:
    """P[at least `least` of `draws` drawn without replacement are marked], exactly.

    >>> tail(population=10, marked=3, draws=2, least=2)
    Fraction(1, 15)
    """
    ways = sum(
        math.comb(marked, hit) * math.comb(population - marked, draws - hit)
        for hit in range(max(least, 0), min(marked, draws) + 1)
    )
    return Fraction(ways, math.comb(population, draws))


def quantile(population: int, marked: int, draws: int, level: Fraction) -> int:
    """The smallest x such that P[more than x of the draws are marked] <= level."""
    allowed = level * math.comb(population, draws)
    ways = 0
    for hit in range(min(marked, draws), -1, -1):
        ways += math.comb(marked, hit) * math.comb(population - marked, draws - hit)
        if ways > allowed:
            return hit
    return 0


def disconnection(clients: int, degree: int, removed: int) -> Fraction:
    """A bound on P[the ring falls apart] when a set of `removed` clients, chosen apart from the
    graph, goes.

    Two that stay and follow each other on the ring are neighbours unless h = floor(degree/2) or
    more between them went. So the ring falls apart only where at least two disjoint runs of h went,
    and each of the at most n(n-1)/2 pairs of runs has the hypergeometric probability that 2h given
    places all went. A complete graph does not fall apart.
    """
    half = degree // 2
    if degree >= clients - 1:
        return Fraction(0)
    if half == 0:
        return Fraction(1)
    pairs = clients * (clients - 1) // 2
    return min(
        Fraction(1), pairs * Fraction(math.perm(removed, 2 * half), math.perm(clients, 2 * half))
    )


def connected(neighbours: Sequence[Sequence[int]], staying: AbstractSet[int]) -> bool:
    """Whether those who stay hang together in the graph: then their masks cancel only in the sum of
    all of them.

    >>> ring = regular_graph(6, 2, shuffle=lambda _: None)
    >>> connected(ring, {0, 1, 2}), connected(ring, {0, 1, 3, 4})
    (True, False)
    """
    left = set(staying)
    frontier = [left.pop()] if left else []
    while frontier:
        reached = left.intersection(neighbours[frontier.pop()])
        left -= reached
        frontier += reached
    return not left
