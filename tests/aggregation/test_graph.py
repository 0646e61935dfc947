"""Neighbour graphs: regular, random, with parameters from exact hypergeometric tails."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.aggregation import Rejected
from tacit.aggregation.graph import (
    Claim,
    Neighbourhood,
    connected,
    disconnection,
    neighbourhood,
    quantile,
    regular_graph,
    security,
    shuffled_by,
    tail,
)
from tacit.errors import TacitError


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 60), st.data())
def test_graph_is_regular_symmetric_and_without_loops(clients: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, clients - 1).filter(lambda k: not (k % 2 and clients % 2)))
    graph = regular_graph(clients, degree)
    for client, neighbours in enumerate(graph):
        assert len(set(neighbours)) == degree
        assert neighbours == sorted(neighbours)
        assert client not in neighbours
        assert all(client in graph[other] for other in neighbours)


def test_neighbours_of_a_client_are_a_uniform_set(
    assert_uniform: Callable[[Iterable[object], int], None],
) -> None:
    draws = [tuple(regular_graph(6, 2)[0]) for _ in range(6000)]
    assert_uniform(draws, 10)


def test_a_permutation_of_a_random_seed_is_uniform(
    assert_uniform: Callable[[Iterable[object], int], None],
) -> None:
    draws = []
    for turn in range(6000):
        places = list(range(4))
        shuffled_by(hashlib.sha256(turn.to_bytes(4, "big")).digest())(places)
        draws.append(tuple(places))
    assert_uniform(draws, 24)


def test_impossible_graphs_are_rejected() -> None:
    for clients, degree in [(5, 3), (5, 5), (5, 0)]:
        with pytest.raises(TacitError, match="and even if their number"):
            regular_graph(clients, degree)


@given(st.integers(1, 60), st.data())
def test_tail_is_the_hypergeometric_tail(population: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    least = data.draw(st.integers(0, draws + 1))
    expected = stats.hypergeom(population, marked, draws).sf(least - 1)
    assert float(tail(population, marked, draws, least)) == pytest.approx(float(expected), abs=1e-9)


@given(st.integers(1, 40), st.data())
def test_quantile_is_the_least_with_a_small_enough_tail(
    population: int, data: st.DataObject
) -> None:
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    level = Fraction(1, data.draw(st.integers(1, 10**6)))
    found = quantile(population, marked, draws, level)
    assert tail(population, marked, draws, found + 1) <= level
    assert found == 0 or tail(population, marked, draws, found) > level


@pytest.mark.parametrize(("clients", "degree"), [(8, 2), (8, 3), (8, 4), (9, 4), (10, 5), (10, 6)])
def test_disconnection_bounds_the_exact_probability(clients: int, degree: int) -> None:
    graph = regular_graph(clients, degree, shuffle=lambda _: None)
    for removed in range(clients - 1):
        sets = list(itertools.combinations(range(clients), removed))
        broken = sum(not connected(graph, set(range(clients)) - set(gone)) for gone in sets)
        assert Fraction(broken, len(sets)) <= disconnection(clients, degree, removed)


@pytest.mark.parametrize("clients", [2, 3, 5, 10, 37, 64, 200, 1001])
@pytest.mark.parametrize("claim", list(Claim))
def test_neighbourhoods_meet_the_claimed_security_bounds(clients: int, claim: Claim) -> None:
    chosen = neighbourhood(clients, dropout=0.1, corrupt=0.1, claim=claim)
    gone = bad = clients // 10
    degree, threshold = chosen.degree, chosen.threshold
    missing = tail(clients - 1, gone, degree, degree - threshold + 1)
    enough = threshold if claim is Claim.SEMI_HONEST else 2 * threshold - degree
    both = tail(max(clients - 1 - gone, degree), bad, degree, enough)
    failure = clients * both + disconnection(clients, degree, gone + bad)
    assert clients * missing <= Fraction(1, 2**30)
    assert failure <= Fraction(1, 2**40)
    assert security(chosen, clients, clients - gone, bad, claim).failure == failure


def test_the_default_neighbourhood_has_the_documented_security_bits() -> None:
    for claim, expected, shown in (
        (Claim.SEMI_HONEST, (53, 29), "41.1 bits (semi-honest"),
        (Claim.TWO_FATES, (117, 80), "40.4 bits (two-fates"),
    ):
        chosen = neighbourhood(1000, claim=claim)
        assert (chosen.degree, chosen.threshold) == expected
        assert shown in str(security(chosen, 1000, 900, claim=claim))
    assert "certain (semi-honest, 1 of 5 corrupt" in str(security(neighbourhood(5), 5, 4))


@pytest.mark.parametrize(("minimum", "bits"), [(900, 41), (800, 35), (600, 20), (400, 1)])
def test_the_security_of_a_neighbourhood_depends_on_the_minimum(minimum: int, bits: int) -> None:
    """A threshold made for 900 of 1000 is worth little where a sum of 400 is released."""
    among = Neighbourhood(115, 79)
    assert int(security(among, 1000, minimum, 100, Claim.TWO_FATES).bits) == bits
    bound = neighbourhood(1000, minimum)
    assert security(bound, 1000, minimum).bits >= 40


def test_a_lower_minimum_needs_more_neighbours_and_too_few_clients_are_rejected() -> None:
    degrees = [neighbourhood(1000, minimum).degree for minimum in (1000, 900, 800, 600, 400)]
    assert degrees == sorted(degrees)
    assert degrees[0] == degrees[1] < degrees[2]
    with pytest.raises(TacitError, match="must be above 100"):
        neighbourhood(1000, 100)


@given(st.integers(2, 300), st.integers(0, 40))
def test_shares_of_clients_are_counted_exactly(clients: int, hundredths: int) -> None:
    """A float means the decimal that it prints as: 0.3 of 10 are 3, though 0.3 as a binary
    fraction is less.
    """
    as_float, exact = hundredths / 100, Fraction(hundredths, 100)
    try:
        expected = neighbourhood(clients, dropout=exact, corrupt=0)
    except TacitError:
        with pytest.raises(TacitError):
            neighbourhood(clients, dropout=as_float, corrupt=0)
    else:
        assert neighbourhood(clients, dropout=as_float, corrupt=0.0) == expected


def test_fractions_of_clients_are_computed_exactly() -> None:
    three = neighbourhood(10, dropout=0.3, corrupt=0)
    assert three == neighbourhood(10, dropout=Fraction(3, 10), corrupt=0)
    assert three != neighbourhood(10, dropout=Fraction(2, 10), corrupt=0)


def test_more_security_needs_more_neighbours() -> None:
    degrees = [neighbourhood(1000, security=bits).degree for bits in (20, 40, 60)]
    assert degrees == sorted(set(degrees))


def test_too_much_dropout_and_corruption_is_rejected() -> None:
    for claim, dropout in ((Claim.TWO_FATES, 0.4), (Claim.SEMI_HONEST, 0.5)):
        with pytest.raises(TacitError, match="Tolerate fewer"):
            neighbourhood(100, dropout=dropout, corrupt=0.3, claim=claim)


@given(st.integers(1, 40), st.data())
def test_fitting_never_weakens_secrecy(degree: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(degree // 2 + 1, degree))
    clients = data.draw(st.integers(2, 80))
    asked = Neighbourhood(degree, threshold)
    try:
        fitted = asked.fit(clients)
    except Rejected:
        assert clients - 1 < threshold
        return
    assert 2 * fitted.threshold - fitted.degree >= 2 * threshold - degree
    assert len(regular_graph(clients, fitted.degree, random.Random(1).shuffle)) == clients


@pytest.mark.parametrize(("degree", "threshold"), [(20, 10), (21, 22), (0, 0), (1 << 16, 1 << 16)])
def test_thresholds_of_half_or_less_are_rejected(degree: int, threshold: int) -> None:
    with pytest.raises(TacitError):
        Neighbourhood(degree, threshold)
