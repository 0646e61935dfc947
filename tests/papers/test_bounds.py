"""The papers' regret bounds with constants 1: values and monotonicity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import algorithms
from tacit.papers import bounds
from tacit.simulation import simulate
from tacit.simulation.pictures import Panel, picture

GAPS = [0.0, 0.1, 0.5]
T = 10**6
LOG = 13.815510557964274  # ln 10^6
LINEAR = bounds.Linear(dimension=4, actions=100, alpha=0.5, client_std=0.2, bound=2.0)
SILOS = bounds.SilosSetting(silos=16, dimension=4, sync=25, failure_probability=0.01)
PRIVATE: dict[str, Callable[[Any, float], Any]] = {
    "CZ23 Thm 1": lambda t, e: bounds.cz23_theorem_1(t, GAPS, e),
    "CZ23 Thm 2": lambda t, e: bounds.cz23_theorem_2(t, GAPS, e, 10),
    "CZ23 Thm 4": lambda t, e: bounds.cz23_theorem_4(t, GAPS, e),
    "CZ23 Thm 6": lambda t, e: bounds.cz23_theorem_6(t, GAPS, e),
    "TKMS21 Cor. 3.2": lambda t, e: bounds.tkms21_corollary_3_2(t, GAPS, e, 1e-5),
    "TKMS21 Cor. 3.4": lambda t, e: bounds.tkms21_corollary_3_4(t, GAPS, e, 1e-5),
    "LZJ22 Thm 5.3": lambda t, e: LINEAR.theorem_5_3(t, e, 1e-5),
    "LZJ22 Thm 5.4": lambda t, e: LINEAR.theorem_5_4(t, e, 1e-5),
    "LZJ22 Thm 5.5": lambda t, e: LINEAR.theorem_5_5(t, e, 1e-5),
    "LZJ22 Thm C.2": lambda t, e: LINEAR.theorem_c_2(t, e, 1e-5),
    "LZJ22 Thm C.4": lambda t, e: LINEAR.theorem_c_4(t, e, 1e-5),
    "ZC24 Thm 5.1": lambda t, e: SILOS.theorem_5_1(t, e, 1e-5),
    "ZC24 Thm 5.3": lambda t, e: SILOS.theorem_5_3(t, e, 1e-5),
    "ZC24 Thm 5.5": lambda t, e: SILOS.theorem_5_5(t, e, 1e-5),
    "SS18": lambda t, e: SILOS.super_agent(t, e, 1e-5),
}


def test_bounds_of_arms_match_the_papers() -> None:
    """Σ 1/Δ = 12; three arms; ln(1/δ) = 11.5129… at δ = 1e-5."""
    assert bounds.cz23_theorem_1(T, GAPS, 0.5) == pytest.approx(12 * LOG + 6 * LOG)
    root = math.sqrt(LOG)
    assert bounds.cz23_theorem_2(T, GAPS, 0.5, 10) == pytest.approx(12 * LOG + 6 * root + 0.6 * LOG)
    assert bounds.cz23_theorem_4(T, GAPS, 0.5) == pytest.approx(12 * LOG + 6 * root)
    assert bounds.cz23_theorem_6(T, GAPS, 0.5) == pytest.approx(48 * LOG)
    failing = 11.512925464970229
    assert bounds.tkms21_corollary_3_2(T, GAPS, 0.5, 1e-5) == pytest.approx(
        12 * LOG + 0.6 * failing * 4
    )
    assert bounds.tkms21_corollary_3_4(T, GAPS, 0.5, 1e-5) == pytest.approx(
        12 * LOG + 6 * math.sqrt(failing) * LOG
    )


def test_bounds_of_linear_bandits_match_the_papers() -> None:
    """d = 4, k = 100, T = 10^4, α = ½, σ = 0.2, B = 2, ε = ½, δ = e^-9: ln(kT) = ln 10^6."""
    t, delta, root = 10**4, math.exp(-9), math.sqrt(LOG)
    free = 200 * root + 0.2 * 1000 * root
    assert LINEAR.theorem_5_1(t) == pytest.approx(free)
    # B d^1.5 = 16, B d^2.5 = 64, √ln(1/δ)/ε = 6, T^(1-α) = 100, T^(1-α/2) = 1000
    assert LINEAR.theorem_5_3(t, 0.5, delta) == pytest.approx(free + 6 * (1600 + 64) * root)
    assert LINEAR.theorem_5_4(t, 0.5, delta) == pytest.approx(free + 6 * (16000 + 64) * root)
    shuffled = 2 * (9 + math.log(4))
    assert LINEAR.theorem_5_5(t, 0.5, delta) == pytest.approx(free + shuffled * (1664) * root)
    logs = math.log(t) + 1
    assert LINEAR.theorem_c_2(t, 0.5, delta) == pytest.approx(200 * root + 96 * logs * root)
    assert LINEAR.theorem_c_4(t, 0.5, delta) == pytest.approx(200 * root + 12 * 816 * root)


def test_bounds_of_silos_match_the_papers() -> None:
    """M = 16, d = 4, B = 25, α = 0.01, T = 10^4: √(MT) = 400, (Md)^¾ = 22.627…, d^¾ = 2^1.5."""
    t, delta = 10**4, math.exp(-16)
    free = 1600 * math.log(t) + 1600 * math.log(16 * 10**6)
    assert SILOS.free(t) == pytest.approx(free)
    tail = math.log(40_000) ** 0.25
    assert SILOS.theorem_5_1(t, 0.25, delta) == pytest.approx(
        free + 100 * 64**0.75 * 2 / 0.5 * tail
    )
    nodes = 1 + math.log2(400)
    assert SILOS.nodes(t) == pytest.approx(nodes)
    amplified = math.log(16 * nodes) + 16
    assert SILOS.theorem_5_3(t, 0.25, delta) == pytest.approx(
        free + 2**1.5 * 800 * amplified**0.75 * tail
    )
    vector = math.log(16 * nodes) + 16  # d² = 16 = M
    assert SILOS.theorem_5_5(t, 0.25, delta) == pytest.approx(
        free + 2**1.5 * 800 * vector**0.75 * tail
    )
    assert SILOS.super_agent(t, 0.25, delta) == pytest.approx(1600 + 400 * 2**1.5 * 2 / 0.5)


@pytest.mark.parametrize("name", PRIVATE)
def test_bounds_grow_with_privacy_and_rounds(name: str) -> None:
    horizons = np.array([1e3, 1e4, 1e5, 1e6])
    for epsilon in (0.1, 1.0, 5.0):
        assert np.all(np.diff(PRIVATE[name](horizons, epsilon)) > 0)
    by_epsilon = [float(PRIVATE[name](T, epsilon)) for epsilon in (5.0, 1.0, 0.5, 0.1)]
    assert by_epsilon == sorted(by_epsilon)
    assert by_epsilon[0] < by_epsilon[-1]


def test_bounds_grow_with_options_and_silos() -> None:
    for k in (2, 5, 20):
        fewer, more = ([0.0] + [0.2] * (n - 1) for n in (k, k + 1))
        for bound in (bounds.cz23_theorem_1, bounds.cz23_theorem_4, bounds.cz23_theorem_6):
            assert bound(T, fewer, 0.5) < bound(T, more, 0.5)
        sizes = (bounds.Linear(4, k), bounds.Linear(4, k + 1))
        assert float(sizes[0].theorem_5_3(T, 1.0, 1e-5)) < float(sizes[1].theorem_5_3(T, 1.0, 1e-5))
        silos = (bounds.SilosSetting(k, 4, 25), bounds.SilosSetting(k + 1, 4, 25))
        assert float(silos[0].theorem_5_1(T, 1.0, 1e-5)) < float(silos[1].theorem_5_1(T, 1.0, 1e-5))


def test_every_algorithm_of_the_papers_has_its_theorem() -> None:
    published = {"CZ23", "TKMS21", "LZJ22", "ZC24", "SS18"}
    named = {n for n, entry in algorithms().items() if entry.paper.split()[0] in published}
    known = {*bounds.ARMS, *bounds.LINEAR, *bounds.FEDERATED}
    assert known <= set(algorithms())
    # beside the papers' own
    ours = {"private-pe", "private-dpe", "secagg-dpe", "secagg-pe", "split-dp-se"}
    assert named - known - ours == {"dpe-fixed"}  # about which the paper proves nothing


def test_a_chart_labels_each_theorem_and_its_order() -> None:
    pytest.importorskip("matplotlib")
    size: dict[str, Any] = {"arms": 3, "horizon": 2000, "runs": 2, "workers": 1, "epsilon": 1.0}
    results = {name: simulate(name, **size) for name in ("dist-dp-se", "ldp-se", "private-klucb")}
    one = picture([Panel("", {k: bounds.with_bounds(v) for k, v in results.items()})]).axes[0]
    lines = {line.get_label(): line for line in one.get_lines()}
    (first,) = (line for label, line in lines.items() if "CZ23 Thm 1 for dist-dp-se" in label)
    (other,) = (line for label, line in lines.items() if "CZ23 Thm 6 for ldp-se" in label)
    assert "order only, drawn with constant 1" in str(first.get_label())
    assert not any("for private-klucb" in str(label) for label in lines)  # no paper has one
    bound = bounds.of(results["dist-dp-se"])
    assert bound is not None
    assert first.get_ydata()[-1] == pytest.approx(float(bound.at(2000)) / 2000)
    every = [bounds.cz23_theorem_6(2000, gaps, 1.0) for gaps in bounds._gaps(results["ldp-se"])]
    assert other.get_ydata()[-1] == pytest.approx(float(np.mean(every)) / 2000)


def test_gap_free_bounds_match_the_papers() -> None:
    """TKMS21 Theorems 3.1 and 3.3 with k = 3, σ² = 8, m = 4: (1 + σ²/m) = 3."""
    assert bounds.tkms21_theorem_3_1(T, GAPS, 8.0, 4.0) == pytest.approx(3 * 12 * LOG + 4 * 0.6)
    free = bounds.tkms21_theorem_3_1_independent(T, 3, 8.0, 4.0)
    assert free == pytest.approx(math.sqrt(3 * 3 * T * LOG) + 12)
    root = math.sqrt(8.0)
    assert bounds.tkms21_theorem_3_3(T, GAPS, root) == pytest.approx(12 * LOG + 3 * root * LOG)
    free = bounds.tkms21_theorem_3_3_independent(T, 3, root)
    assert free == pytest.approx(math.sqrt(3 * T * LOG) + 3 * root * LOG)


def test_corollaries_equal_the_theorems_at_their_noise_and_batch() -> None:
    """σ² = ln(1/δ)/ε² = m; the corollaries leave a factor of 2 to the O(·)."""
    variance = math.log(1e5) / 0.5**2
    assert bounds.tkms21_theorem_3_3(T, GAPS, variance**0.5) == pytest.approx(
        bounds.tkms21_corollary_3_4(T, GAPS, 0.5, 1e-5)
    )
    assert bounds.tkms21_theorem_3_1(T, GAPS, variance, variance) == pytest.approx(
        bounds.tkms21_corollary_3_2(T, GAPS, 0.5, 1e-5) + 12 * LOG
    )


def test_no_instance_exceeds_the_gap_free_bound_up_to_a_constant() -> None:
    """The worst equal gaps √(k ln T / T) give the bound at any gaps, within a factor of 2."""
    for arms in (2, 10, 50):
        worst = math.sqrt(arms * LOG / T)
        by_gaps = float(bounds.tkms21_theorem_3_3(T, [0.0] + [worst] * (arms - 1), 1.0))
        free = float(bounds.tkms21_theorem_3_3_independent(T, arms, 1.0))
        assert free / 2 <= by_gaps <= free


def test_a_chart_shows_gap_free_bounds_and_explains_curves_below_the_lower_one() -> None:
    pytest.importorskip("matplotlib")
    size: dict[str, Any] = {"arms": 3, "horizon": 2000, "runs": 2, "workers": 1}
    found = simulate("vb-sdp-ae", epsilon=1.0, delta=1e-5, **size)
    one = picture([Panel("", {"vb-sdp-ae": bounds.with_bounds(found)})]).axes[0]
    labels = {str(line.get_label()): line for line in one.get_lines()}
    (free,) = (line for label, line in labels.items() if "TKMS21 Thm 3.3, any gaps" in label)
    expected = bounds.tkms21_theorem_3_3_independent(2000, 3, math.sqrt(math.log(1e5)))
    assert free.get_ydata()[-1] == pytest.approx(float(expected) / 2000)
    below = simulate("thompson", means=(0.5, 0.6), horizon=1000, runs=4, workers=1)
    said = [
        str(line.get_label()) for line in picture([Panel("", {"t": below})]).axes[0].get_lines()
    ]
    mean = below.curve()[0][-1]
    assert mean < below.mean("lower_bound")  # as it may at 1,000 participants
    assert any("a curve may lie below it" in label for label in said)
