"""Random k-regular communication graph for secure aggregation, and the choice of k and threshold t.

Implements Bell et al. 2020. The graph is a ring in random order; each client is joined to the k
nearest on the ring. So the neighbours of a client are a uniformly random k-subset of the others,
and the number of dropouts or corrupted clients among them is hypergeometric. `neighbourhood` and
`security` sum hypergeometric tails in exact integers; they use no asymptotic constants.
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

from tacit.aggregation.interface import Rejected, uniform
from tacit.errors import Number, TacitError, integer, probability, require

Shuffle = Callable[[list[int]], None]

COMPLETION = 30  # bits of the error probability that clients keep enough neighbours
COMPLAINTS = 1
"""Complaints, made or received, that a client may be in before it is excluded.

An honest client is in no more complaints than it has malicious neighbours.
"""


@dataclass(frozen=True)
class Neighbourhood:
    """Each client has `degree` neighbours; any `threshold` of them can reconstruct its secrets.

    The threshold exceeds half of the degree. Otherwise a malicious server could tell two disjoint
    groups different things about a client and have each reconstruct one of its two secrets.
    """

    degree: int
    threshold: int

    def __post_init__(self) -> None:
        integer("degree", self.degree, at_least=1)
        integer("threshold", self.threshold, at_least=1)
        require(self.degree < 1 << 16, "degree", self.degree, "below 65536")
        most = self.degree < 2 * self.threshold <= 2 * self.degree
        rule = f"over half of the {self.degree} neighbours and at most all"
        require(most, "threshold", self.threshold, rule)

    def fit(self, clients: int) -> Neighbourhood:
        """The neighbourhood for the clients that joined, never with weaker secrecy.

        With too few clients for the degree, all are neighbours. A regular graph of odd degree needs
        an even number of clients; otherwise degree and threshold increase by one.

        >>> Neighbourhood(21, 11).fit(999)
        Neighbourhood(degree=22, threshold=12)
        """
        degree, threshold = self.degree, self.threshold
        if degree >= clients - 1:
            degree = clients - 1
        elif degree % 2 and clients % 2:
            degree, threshold = degree + 1, threshold + 1
        rule = f"at most the {degree} neighbours among {clients} clients. Wait for more clients"
        require(threshold <= degree, "threshold", threshold, rule, Rejected)
        return Neighbourhood(degree, threshold)


def regular_graph(clients: int, degree: int, shuffle: Shuffle | None = None) -> list[list[int]]:
    """The sorted neighbours of each client in a random regular graph.

    `shuffle` permutes the ring; the default is the operating system's generator.

    >>> regular_graph(5, 2, shuffle=lambda _: None)
    [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]
    """
    regular = 1 <= degree < clients and not (degree % 2 and clients % 2)
    rule = f"below {clients} clients, and even if their number is odd. Use Neighbourhood.fit"
    require(regular, "degree", degree, rule)
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
    """A uniformly random permutation derived from a 32-byte seed (Fisher-Yates).

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
    """The server, colluding with corrupted clients, that a neighbourhood must withstand.

    `SEMI_HONEST`: the server follows the protocol, so it gets t shares of a client's second secret
    only if t neighbours are corrupted (Bell et al. 2020, Def. 3.2 and 3.3). `TWO_FATES`: it may
    tell some neighbours that a client survived and others that it dropped out. Both secrets stay
    apart if 2t exceeds the degree by more than the corrupted neighbours. Neither holds against a
    server that misreports many clients at once or invents clients (Sybils).
    """

    SEMI_HONEST = "semi-honest"
    TWO_FATES = "two-fates"


@dataclass(frozen=True)
class Security:
    """A bound on the probability that more than the sum of the honest clients' numbers is revealed.

    It holds whichever of `clients` join and survive, if at least `minimum` do and at most `corrupt`
    are corrupted.

    >>> print(security(Neighbourhood(21, 11), 1000, 950, corrupt=50))
    21 neighbours, threshold 11: 20.5 bits (semi-honest, 50 of 1000 corrupt, 950 or more stay)
    """

    among: Neighbourhood
    clients: int
    minimum: int
    corrupt: int
    claim: Claim
    failure: Fraction
    """A bound on the probability over the graph that more than the sum is revealed."""

    @property
    def bits(self) -> float:
        """-log2 of `failure`; infinite if failure is impossible."""
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
    neighbourhood: Neighbourhood,
    clients: int,
    minimum: int,
    corrupt: int | None = None,
    claim: Claim = Claim.SEMI_HONEST,
) -> Security:
    """The security of a neighbourhood in a round.

    Parameters
    ----------
    neighbourhood : Neighbourhood
        Degree and threshold.
    clients : int
        The number of clients that the round is for.
    minimum : int
        The minimum batch size: the fewest survivors for a release.
    corrupt : int, optional
        The number of corrupted clients; default a tenth, and at least one from four clients on.
    claim : Claim
        The server to withstand.

    Returns
    -------
    Security
        With a bound on the probability that more than the sum is revealed.
    """
    n = integer("clients", clients, at_least=2)
    fewest = integer("minimum", minimum, at_least=1)
    bad = _tenth(n) if corrupt is None else integer("corrupt", corrupt, at_least=0)
    kept = Claim(claim)
    failure = _failure(n, n - fewest, bad, (neighbourhood.degree, neighbourhood.threshold), kept)
    return Security(neighbourhood, n, fewest, bad, kept, failure)


def neighbourhood(
    clients: int,
    minimum: int | None = None,
    *,
    dropout: Number | None = None,
    corrupt: Number | None = None,
    security: int = 40,
    claim: Claim = Claim.SEMI_HONEST,
) -> Neighbourhood:
    """The smallest neighbourhood that tolerates the given corruption and dropout.

    Parameters
    ----------
    clients : int
        The number n of clients.
    minimum : int, optional
        The minimum batch size; default n - floor(dropout·n).
    dropout, corrupt : number, optional
        The fractions that may drop out and be corrupted: floor(dropout·n) and floor(corrupt·n)
        clients. Each defaults to a tenth, and to at least one client from four clients on.
    security : int
        The bits of the first error probability below.
    claim : Claim
        The server to withstand.

    Returns
    -------
    Neighbourhood
        The smallest degree, and the threshold that goes with it.

    Raises
    ------
    TacitError
        If no neighbourhood suffices, or if all clients of a minimum batch may be corrupted.

    Notes
    -----
    Except with probability 2^-security over the graph, the claim holds for every client and the
    surviving honest clients are connected, so that only their sum is revealed. This covers as few
    survivors as `minimum` allows, if that is fewer than n - floor(dropout·n). Except with
    probability 2^-30, every client keeps t neighbours while at most floor(dropout·n) drop
    out, send invalid shares or are excluded.

    Examples
    --------
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
    rule = f"above {bad}, the clients that may be corrupted, so that it includes an honest one"
    require(n - lost > bad, "minimum", n - lost, rule)
    return _neighbourhood(
        n,
        (gone, lost, bad),
        integer("security", security, at_least=1),
        Claim(claim),
    )


def least_minimum(clients: int, minimum: int) -> int:
    """The minimum batch size for masking: at least 2, since masks are pairwise.

    Where all clients in it may be corrupted, it is n - floor(n/10), as usual in `neighbourhood`.

    >>> least_minimum(64, 1), least_minimum(64, 40), least_minimum(3, 1)
    (58, 40, 2)
    """
    least = max(2, minimum)
    return least if least > _tenth(clients) else clients - _tenth(clients)


def _part(name: str, share: Number | None, clients: int) -> int:
    """floor(share·clients), where a float means the decimal that it prints as: 0.3 of 10 is 3."""
    if share is None:
        return _tenth(clients)
    exact = Fraction(repr(float(share))) if isinstance(share, float) else share
    return math.floor(probability(name, exact, zero=True) * clients)


def _tenth(clients: int) -> int:
    """A tenth, at least 1; 0 for up to three clients, since two are too few to hide each other."""
    return max(1, clients // 10) if clients > 3 else 0


@lru_cache(maxsize=256)
def _neighbourhood(
    n: int, counts: tuple[int, int, int], security: int, claim: Claim
) -> Neighbourhood:
    gone, lost, bad = counts
    leak, stall = Fraction(1, 2**security), Fraction(1, 2**COMPLETION)
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
        f"no neighbourhood among {n} clients tolerates {gone} dropouts and {bad} corrupted clients "
        f"for the claim {claim}. Tolerate fewer, or use more clients"
    )


def _spare(n: int, gone: int, degree: int, stall: Fraction) -> int:
    """The fewest pairs x such that some client loses more than x with probability at most `stall`.

    Each of the `gone` costs each of its neighbours one pair. Instead of dropping out it may be
    malicious and be in `COMPLAINTS` complaints, each of which costs itself a pair too.
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
def _failure(n: int, dropouts: int, bad: int, among: tuple[int, int], claim: Claim) -> Fraction:
    """A bound on P[too many corrupted neighbours of some client, or honest ones disconnected].

    The first event is likeliest if all `dropouts` leave before the graph is drawn, the second if
    they leave afterwards: both are counted. If fewer clients join than a client should have
    neighbours, all are neighbours; the pool of `degree` covers that case.
    """
    degree, threshold = among
    enough = threshold if claim is Claim.SEMI_HONEST else 2 * threshold - degree
    pool = max(n - 1 - dropouts, degree)
    both = n * tail(pool, min(bad, pool), degree, enough)
    return min(Fraction(1), both + disconnection(n, degree, min(n, dropouts + bad)))


def tail(population: int, marked: int, draws: int, least: int) -> Fraction:
    """Exact P[at least `least` of `draws` drawn without replacement are marked].

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
    """A bound on P[graph disconnected] after removing `removed` clients chosen independently of it.

    Two survivors that are consecutive on the ring are neighbours unless h = floor(degree/2) or more
    between them were removed. So the graph is disconnected only if at least two disjoint runs of h
    were removed. Each of the at most n(n-1)/2 pairs of runs has the hypergeometric probability that
    2h given positions were all removed. A complete graph stays connected.
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


def connected(neighbours: Sequence[Sequence[int]], survivors: AbstractSet[int]) -> bool:
    """Whether the survivors are connected in the graph: then masks cancel only in the sum of all.

    >>> ring = regular_graph(6, 2, shuffle=lambda _: None)
    >>> connected(ring, {0, 1, 2}), connected(ring, {0, 1, 3, 4})
    (True, False)
    """
    left = set(survivors)
    frontier = [left.pop()] if left else []
    while frontier:
        reached = left.intersection(neighbours[frontier.pop()])
        left -= reached
        frontier += reached
    return not left
