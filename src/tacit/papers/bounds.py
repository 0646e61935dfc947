"""The regret bounds of the papers' theorems as functions, and their lookup by result.

`of` finds the theorem about a result, `independent_of_gaps` the bound that holds at any gaps where
a paper states one beside it; `with_bounds` adds both, so that plots of the result show them. The
theorems of LZJ22 and ZC24 hold at any gaps as they are; CZ23 states none such.

Theorems state orders. The functions compute the expression inside O(·) as printed, with natural
logarithms and with every constant and hidden logarithm set to 1. A line shows how regret may grow,
not an upper bound on it; every plot says so (`RegretBound.order`). TKMS21 is Tenenbaum et al. 2021,
CZ23 Chowdhury & Zhou 2023 (Theorems 1 and 2 are those of its version of 2022), LZJ22 Li et al.
2022, ZC24 Zhou & Chowdhury 2024, SS18 Shariff & Sheffet 2018 as cited by ZC24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.environments import instance_means
from tacit.simulation.results import RegretBound, Result

Floats = npt.NDArray[np.float64]


def _log(x: npt.ArrayLike) -> Floats:
    return np.asarray(np.log(np.maximum(np.asarray(x, dtype=float), 1.0)))


def by_gaps(horizon: npt.ArrayLike, gaps: Sequence[float]) -> Floats:
    """Σ_a ln T / Δ_a over the suboptimal arms: the order of regret without privacy."""
    return np.asarray(sum(1 / gap for gap in gaps if gap > 0) * _log(horizon))


def cz23_theorem_1(horizon: npt.ArrayLike, gaps: Sequence[float], epsilon: float) -> Floats:
    """Pure DP by secure aggregation: Σ ln T/Δ + K ln T/ε.

    The shuffler (Theorem 3) and the trusted server (Theorem 5) have the same order.

    >>> float(cz23_theorem_1(np.e, [0.0, 0.5], 0.5))
    6.0
    """
    return np.asarray(by_gaps(horizon, gaps) + len(gaps) * _log(horizon) / epsilon)


def cz23_theorem_2(
    horizon: npt.ArrayLike, gaps: Sequence[float], epsilon: float, scale: float
) -> Floats:
    """Rényi DP by secure aggregation: Σ ln T/Δ + K √ln T/ε + K ln T/(sε), s the scale."""
    logs = _log(horizon)
    noise = len(gaps) / epsilon * (np.sqrt(logs) + logs / scale)
    return np.asarray(by_gaps(horizon, gaps) + noise)


def cz23_theorem_4(horizon: npt.ArrayLike, gaps: Sequence[float], epsilon: float) -> Floats:
    """Concentrated DP by secure aggregation: Σ ln T/Δ + K √ln T/ε."""
    return np.asarray(by_gaps(horizon, gaps) + len(gaps) / epsilon * np.sqrt(_log(horizon)))


def cz23_theorem_6(horizon: npt.ArrayLike, gaps: Sequence[float], epsilon: float) -> Floats:
    """Local pure DP: Σ ln T/(ε² Δ)."""
    return np.asarray(by_gaps(horizon, gaps) / epsilon**2)


def tkms21_theorem_3_1(
    horizon: npt.ArrayLike, gaps: Sequence[float], variance: float, batch: float
) -> Floats:
    """SDP-AE, batches of one size m with noise of variance σ²: Σ ((1 + σ²/m) ln T/Δ + m Δ)."""
    return np.asarray((1 + variance / batch) * by_gaps(horizon, gaps) + batch * sum(gaps))


def tkms21_theorem_3_1_independent(
    horizon: npt.ArrayLike, arms: int, variance: float, batch: float
) -> Floats:
    """SDP-AE at any gaps: √((1 + σ²/m) k T ln T) + m k, as in the proof (CORRECTIONS 33).

    >>> float(tkms21_theorem_3_1_independent(np.e, 1, 0.0, 2.0).round(4))
    3.6487
    """
    return np.asarray(_spread_out(horizon, arms, 1 + variance / batch) + batch * arms)


def tkms21_theorem_3_3(horizon: npt.ArrayLike, gaps: Sequence[float], sigma: float) -> Floats:
    """VB-SDP-AE, batches that double: Σ ln T/Δ + k σ ln T."""
    return np.asarray(by_gaps(horizon, gaps) + len(gaps) * sigma * _log(horizon))


def tkms21_theorem_3_3_independent(horizon: npt.ArrayLike, arms: int, sigma: float) -> Floats:
    """VB-SDP-AE at any gaps: √(k T ln T) + k σ ln T."""
    return np.asarray(_spread_out(horizon, arms) + arms * sigma * _log(horizon))


def _spread_out(horizon: npt.ArrayLike, arms: int, factor: float = 1.0) -> Floats:
    """√(factor · k T ln T): the worst case of `by_gaps` over all gaps."""
    rounds = np.asarray(horizon, dtype=float)
    return np.asarray(np.sqrt(factor * arms * rounds * _log(rounds)))


def tkms21_corollary_3_2(
    horizon: npt.ArrayLike, gaps: Sequence[float], epsilon: float, delta: float
) -> Floats:
    """SDP-AE, batches of one size: Σ (ln T/Δ + Δ ln(1/δ)/ε²)."""
    return np.asarray(by_gaps(horizon, gaps) + sum(gaps) * float(_log(1 / delta)) / epsilon**2)


def tkms21_corollary_3_4(
    horizon: npt.ArrayLike, gaps: Sequence[float], epsilon: float, delta: float
) -> Floats:
    """VB-SDP-AE, batches that double: Σ ln T/Δ + K √ln(1/δ) ln T/ε."""
    root = float(np.sqrt(_log(1 / delta)))
    return np.asarray(by_gaps(horizon, gaps) + len(gaps) * root * _log(horizon) / epsilon)


@dataclass(frozen=True)
class Linear:
    """Parameters of a linear bandit in LZJ22's theorems: d, k, α, σ and the bound B on rewards."""

    dimension: int
    actions: int
    alpha: float = 0.8
    client_std: float = 0.1
    bound: float = 1.0

    def root(self, horizon: npt.ArrayLike) -> Floats:
        """√ln(kT)."""
        return np.asarray(np.sqrt(_log(self.actions * np.asarray(horizon, dtype=float))))

    def learning(self, horizon: npt.ArrayLike) -> Floats:
        """√(dT ln(kT)): the order of regret without privacy and without variation between
        clients.
        """
        return np.asarray(np.sqrt(self.dimension * np.asarray(horizon)) * self.root(horizon))

    def theorem_5_1(self, horizon: npt.ArrayLike) -> Floats:
        """DPE: √(dT ln(kT)) + σ T^(1-α/2) √ln(kT)."""
        clients = self.client_std * np.asarray(horizon, dtype=float) ** (1 - self.alpha / 2)
        return np.asarray(self.learning(horizon) + clients * self.root(horizon))

    def _private(self, horizon: npt.ArrayLike, power: float, noise: float) -> Floats:
        """DPE's bound plus B d^1.5 (T^power + d) √ln(kT) times the noise factor."""
        grown = np.asarray(horizon, dtype=float) ** power + self.dimension
        size = self.bound * self.dimension**1.5 * noise
        return np.asarray(self.theorem_5_1(horizon) + size * grown * self.root(horizon))

    def theorem_5_3(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """CDP-DPE: DPE's bound plus B (d^1.5 T^(1-α) + d^2.5) √(ln(1/δ) ln(kT))/ε."""
        return self._private(horizon, 1 - self.alpha, float(np.sqrt(_log(1 / delta))) / epsilon)

    def theorem_5_4(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """LDP-DPE: DPE's bound plus B (d^1.5 T^(1-α/2) + d^2.5) √(ln(1/δ) ln(kT))/ε."""
        return self._private(horizon, 1 - self.alpha / 2, float(np.sqrt(_log(1 / delta))) / epsilon)

    def theorem_5_5(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """SDP-DPE: DPE's bound plus B (d^1.5 T^(1-α) + d^2.5) ln(d/δ) √ln(kT)/ε."""
        return self._private(horizon, 1 - self.alpha, float(_log(self.dimension / delta)) / epsilon)

    def theorem_c_2(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """CDP-PE, and as printed SDP-PE (Theorem C.7): √(dT ln(kT)) + B d^1.5 (ln T + 1) √(ln(1/δ)
        ln(kT))/ε.
        """
        size = self.bound * self.dimension**1.5 * float(np.sqrt(_log(1 / delta))) / epsilon
        return np.asarray(self.learning(horizon) + size * (_log(horizon) + 1) * self.root(horizon))

    def theorem_c_4(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """LDP-PE: √(dT ln(kT)) + B (d^1.5 √T + d²) √(ln(1/δ) ln(kT))/ε."""
        size = self.bound * float(np.sqrt(_log(1 / delta))) / epsilon
        d, rounds = self.dimension, np.asarray(horizon, dtype=float)
        grown = d**1.5 * np.sqrt(rounds) + d**2
        return np.asarray(self.learning(horizon) + size * grown * self.root(horizon))


@dataclass(frozen=True)
class SilosSetting:
    """Parameters of silos in ZC24's theorems: M, d, B and the failure probability α."""

    silos: int
    dimension: int
    sync: int
    failure_probability: float = 0.01

    def free(self, horizon: npt.ArrayLike) -> Floats:
        """dMB ln T + d √(MT) ln(MT/α): the terms without privacy (Lemma C.4)."""
        participants = self.silos * np.asarray(horizon, dtype=float)
        late = self.dimension * self.silos * self.sync * _log(horizon)
        return np.asarray(
            late
            + self.dimension * np.sqrt(participants) * _log(participants / self.failure_probability)
        )

    def _tail(self, horizon: npt.ArrayLike) -> Floats:
        """ln^¼(T/(Bα))."""
        chance = self.sync * self.failure_probability
        return np.asarray(_log(np.asarray(horizon, dtype=float) / chance) ** 0.25)

    def nodes(self, horizon: npt.ArrayLike) -> Floats:
        """κ = 1 + log₂(T/B)."""
        return np.asarray(1 + _log(np.asarray(horizon, dtype=float) / self.sync) / np.log(2))

    def theorem_5_1(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """Silo-level LDP: `free` plus √T (Md)^¾ ln^¼(1/δ)/√ε ln^¼(T/(Bα))."""
        size = (self.silos * self.dimension) ** 0.75 * float(_log(1 / delta)) ** 0.25
        rounds = np.sqrt(np.asarray(horizon, dtype=float) / epsilon)
        return np.asarray(self.free(horizon) + size * rounds * self._tail(horizon))

    def _shuffled(self, horizon: npt.ArrayLike, epsilon: float, logs: Floats) -> Floats:
        participants = self.silos * np.asarray(horizon, dtype=float)
        size = self.dimension**0.75 * np.sqrt(participants / epsilon) * logs**0.75
        return np.asarray(self.free(horizon) + size * self._tail(horizon))

    def theorem_5_3(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """Shuffled silos, by amplification: `free` plus d^¾ √(MT) ln^¾(Mκ/δ)/√ε ln^¼(T/(Bα))."""
        return self._shuffled(horizon, epsilon, _log(self.silos * self.nodes(horizon) / delta))

    def theorem_5_5(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """Shuffled bits of vector sums: `free` plus d^¾ √(MT) ln^¾(κd²/δ)/√ε ln^¼(T/(Bα))."""
        logs = _log(self.nodes(horizon) * self.dimension**2 / delta)
        return self._shuffled(horizon, epsilon, logs)

    def super_agent(self, horizon: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
        """SS18 as stated by ZC24 (Section 5.1): d √(MT) + √(MT) d^¾ ln^¼(1/δ)/√ε."""
        participants = self.silos * np.asarray(horizon, dtype=float)
        size = self.dimension**0.75 * float(_log(1 / delta)) ** 0.25 / epsilon**0.5
        return np.asarray((self.dimension + size) * np.sqrt(participants))


Line = Callable[[npt.ArrayLike, Mapping[str, Any], Any], Floats]
ARMS: dict[str, tuple[str, Line]] = {
    "dist-dp-se": ("CZ23 Thm 1", lambda t, c, g: cz23_theorem_1(t, g, c["epsilon"])),
    "shuffle-dp-se": ("CZ23 Thm 3", lambda t, c, g: cz23_theorem_1(t, g, c["epsilon"])),
    "cdp-se": ("CZ23 Thm 5", lambda t, c, g: cz23_theorem_1(t, g, c["epsilon"])),
    "dp-se": ("CZ23 Table 1, central", lambda t, c, g: cz23_theorem_1(t, g, c["epsilon"])),
    "dist-rdp-se": ("CZ23 Thm 2", lambda t, c, g: cz23_theorem_2(t, g, c["epsilon"], c["scale"])),
    "dist-cdp-se": ("CZ23 Thm 4", lambda t, c, g: cz23_theorem_4(t, g, c["epsilon"])),
    "ldp-se": ("CZ23 Thm 6", lambda t, c, g: cz23_theorem_6(t, g, c["epsilon"])),
    "sdp-ae": (
        "TKMS21 Cor. 3.2",
        lambda t, c, g: tkms21_corollary_3_2(t, g, c["epsilon"], _delta(c)),
    ),
    "vb-sdp-ae": (
        "TKMS21 Cor. 3.4",
        lambda t, c, g: tkms21_corollary_3_4(t, g, c["epsilon"], _delta(c)),
    ),
}
LINEAR: dict[str, tuple[str, Line]] = {
    "dpe": ("LZJ22 Thm 5.1", lambda t, c, p: p.theorem_5_1(t)),  # noqa: ARG005
    "cdp-dpe": ("LZJ22 Thm 5.3", lambda t, c, p: p.theorem_5_3(t, c["epsilon"], c["delta"])),
    "ldp-dpe": ("LZJ22 Thm 5.4", lambda t, c, p: p.theorem_5_4(t, c["epsilon"], c["delta"])),
    "sdp-dpe": ("LZJ22 Thm 5.5", lambda t, c, p: p.theorem_5_5(t, c["epsilon"], c["delta"])),
    "pe": ("LZJ22 Remark C.8", lambda t, c, p: p.learning(t)),  # noqa: ARG005
    "cdp-pe": ("LZJ22 Thm C.2", lambda t, c, p: p.theorem_c_2(t, c["epsilon"], c["delta"])),
    "ldp-pe": ("LZJ22 Thm C.4", lambda t, c, p: p.theorem_c_4(t, c["epsilon"], c["delta"])),
    "sdp-pe": ("LZJ22 Thm C.7", lambda t, c, p: p.theorem_c_2(t, c["epsilon"], c["delta"])),
}
FEDERATED: dict[str, tuple[str, Line]] = {
    "fedlinucb": ("ZC24 Lemma C.4", lambda t, c, p: p.free(t)),  # noqa: ARG005
    "ldp-fedlinucb": ("ZC24 Thm 5.1", lambda t, c, p: p.theorem_5_1(t, c["epsilon"], c["delta"])),
    "sdp-fedlinucb": ("ZC24 Thm 5.3", lambda t, c, p: p.theorem_5_3(t, c["epsilon"], c["delta"])),
    "sdp-fedlinucb-vec": (
        "ZC24 Thm 5.5",
        lambda t, c, p: p.theorem_5_5(t, c["epsilon"], c["delta"]),
    ),
    "jdp-linucb": ("SS18", lambda t, c, p: p.super_agent(t, c["epsilon"], c["delta"])),
}


INDEPENDENT: dict[str, tuple[str, Line]] = {
    "sdp-ae": (
        "TKMS21 Thm 3.1, any gaps",
        lambda t, c, k: tkms21_theorem_3_1_independent(t, k, _variance(c), _variance(c)),
    ),
    "vb-sdp-ae": (
        "TKMS21 Thm 3.3, any gaps",
        lambda t, c, k: tkms21_theorem_3_3_independent(t, k, _variance(c) ** 0.5),
    ),
}


def with_bounds(result: Result) -> Result:
    """The result with the theorems about its algorithm, if there are any."""
    found = (of(result), independent_of_gaps(result))
    return replace(result, bounds=tuple(bound for bound in found if bound is not None))


def independent_of_gaps(result: Result) -> RegretBound | None:
    """The bound at any gaps that a paper states beside the one by gaps; None without one."""
    known = result.configuration
    if result.algorithm not in INDEPENDENT or known.get("delta") == 0:
        return None
    theorem, line = INDEPENDENT[result.algorithm]
    means = known.get("means")
    arms = known["arms"] if means is None else len(means)
    return RegretBound(theorem, lambda t: line(t, known, arms))


def of(result: Result) -> RegretBound | None:
    """The theorem about a result's algorithm, at its options; None without one.

    None if no paper has a theorem, if silos have budgets of their own, if δ is 0, or if the
    instances are unknown.
    """
    name, known = result.algorithm, result.configuration
    if known.get("budgets") is not None or ("delta" in known and known["delta"] == 0):
        return None
    if name in ARMS:
        return _of_arms(result)
    if "environment" in known or known.get("data") is not None:
        return None
    if name in LINEAR:
        return _known(LINEAR[name], known, Linear)
    if name in FEDERATED:
        return _known(FEDERATED[name], known, SilosSetting)
    return None


def _known(
    about: tuple[str, Line], options: Mapping[str, Any], kind: type[Linear] | type[SilosSetting]
) -> RegretBound:
    """The theorem at the options in force."""
    theorem, line = about
    problem = kind(**{one.name: options[one.name] for one in fields(kind) if one.name in options})
    return RegretBound(theorem, lambda t: line(t, options, problem))


def _of_arms(result: Result) -> RegretBound | None:
    """The mean bound over the instances of all runs; None where the instances are unknown."""
    theorem, line = ARMS[result.algorithm]
    known = result.configuration
    if "environment" in known:
        return None
    every = _gaps(result)
    return RegretBound(
        theorem, lambda t: np.asarray(np.mean([line(t, known, gaps) for gaps in every], axis=0))
    )


def _gaps(result: Result) -> list[list[float]]:
    """The gaps of every run's instance."""
    known = result.configuration
    if known.get("means") is not None:
        instances = [np.array(known["means"])]
    else:
        about = (known["instance"], known["arms"])
        instances = [instance_means(*about, int(run["seed"])) for run in result.runs]
    return [(means.max() - means).tolist() for means in instances]


def _variance(options: Mapping[str, Any]) -> float:
    """σ² = ln(1/δ)/ε²: the order of the variance of TKMS21's noise, also its batch size."""
    return float(_log(1 / _delta(options))) / float(options["epsilon"]) ** 2


def _delta(options: Mapping[str, Any]) -> float:
    """The δ in force, or 1e-6 by default, for theorems that need one."""
    return 1e-6 if options.get("delta") is None else float(options["delta"])
