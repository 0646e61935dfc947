"""ZC24 Figure 2(a) as the authors' public code computes it, re-derived in NumPy for all silos.

That code differs from the paper. Noise has variance κ(ln(1/δ) + ε)/ε² per silo and node, and κ
ln(1/δ) ln(1 + κ/(Tδ)) ln(Mκ/δ)/(ε²M) behind a shuffler: without the factors 8 (and ln 2) and 2 of
the theorems. The regularizer is λ = √(Mκ) σ (√(κ + ln(1/α)) + √d) and the width (√(λd) + R √(d
ln(1 + tM/(dλ)) + ln(1/α))) ‖x‖ in the norm of V⁻¹. Rewards have standard deviation 0.5 and are not
clipped. Of 100 actions, 10 are the same for everybody. It is for comparison only: no guarantee is
stated. `python -m tacit.papers.public_code --runs 5` prints regret per round.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.types import Floats

Kind = Literal["ldp", "sdp"]
ALPHA, SPREAD = 0.01, 0.5  # failure probability, and standard deviation of rewards


@dataclass(frozen=True)
class PublicSetting:
    """The size of the figure: M, T, B, d, actions, ε and δ."""

    silos: int = 100
    horizon: int = 10_000
    sync: int = 25
    dimension: int = 10
    actions: int = 100
    epsilon: float = 1e-3
    delta: float = 1e-4

    @property
    def depth(self) -> int:
        """κ = ⌊log₂(T/B)⌋ + 1."""
        return math.floor(math.log2(self.horizon // self.sync)) + 1

    def sigma(self, kind: Kind) -> float:
        """The standard deviation of one silo's noise in a node.

        >>> PublicSetting().sigma("ldp") / PublicSetting().sigma("sdp") > 1.6
        True
        """
        failing, nodes = math.log(1 / self.delta), self.depth
        if kind == "ldp":
            return math.sqrt(nodes * (failing + self.epsilon)) / self.epsilon
        logs = math.log1p(nodes / (self.horizon * self.delta))
        logs *= failing * math.log(self.silos * nodes / self.delta)
        return math.sqrt(nodes * logs / self.silos) / self.epsilon

    def regularizer(self, kind: Kind) -> float:
        """λ."""
        spread = math.sqrt(self.silos * self.depth) * self.sigma(kind)
        return spread * (math.sqrt(self.depth + math.log(1 / ALPHA)) + math.sqrt(self.dimension))


def regret_per_round(kind: Kind, setting: PublicSetting, seed: int) -> float:
    """Group regret per round of one run; participants and noise follow the seed for both kinds."""
    participants, rng = np.random.default_rng([2, seed]), np.random.default_rng([seed, 7])
    d, silos = setting.dimension, setting.silos
    parameter = participants.standard_normal(d - 1)
    parameter = np.append(0.5 * parameter / np.linalg.norm(parameter), 0.5)
    shown = np.column_stack([np.eye(d)[:, :-1], np.ones(d)])[: setting.actions]
    lam, sigma = setting.regularizer(kind), setting.sigma(kind) * math.sqrt(silos)
    nodes: list[tuple[Floats, Floats]] = [(np.zeros((d, d)), np.zeros(d))] * setting.depth
    sums = list(nodes)
    gram, bias, lost = np.zeros((d, d)), np.zeros(d), 0.0
    everyone = np.arange(silos)
    for batch in range(1, setting.horizon // setting.sync + 1):
        inverses = np.repeat(np.linalg.inv(gram + lam * np.eye(d))[None], silos, axis=0)
        biases = np.repeat(bias[None], silos, axis=0)
        own_gram, own_bias = np.zeros((d, d)), np.zeros(d)
        for step in range((batch - 1) * setting.sync + 1, batch * setting.sync + 1):
            x = participants.standard_normal((silos, setting.actions, d - 1))
            x /= np.linalg.norm(x, axis=2, keepdims=True)
            x = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
            x[:, : len(shown)] = shown
            means = x @ parameter
            x /= np.linalg.norm(x, axis=2, keepdims=True)
            seen = d * math.log1p(step * silos / (d * lam)) + math.log(1 / ALPHA)
            radius = math.sqrt(lam * d) + SPREAD * math.sqrt(seen)
            norms = np.einsum("sad,sad->sa", x @ inverses, x)
            values = np.einsum("sad,sd->sa", x, np.einsum("sde,se->sd", inverses, biases))
            chosen = np.argmax(values + radius * np.sqrt(np.maximum(norms, 0.0)), axis=1)
            features, got = x[everyone, chosen], means[everyone, chosen]
            lost += float((means.max(axis=1) - got).sum())
            rewards = got + SPREAD * rng.standard_normal(silos)
            own_gram += features.T @ features
            own_bias += features.T @ rewards
            biases += features * rewards[:, None]
            along = np.einsum("sde,se->sd", inverses, features)
            scaled = along / (1 + np.einsum("sd,sd->s", features, along))[:, None]
            inverses -= scaled[:, :, None] * along[:, None, :]
        level = (batch & -batch).bit_length() - 1
        total = [own_gram, own_bias]
        for below in sums[:level]:
            total = [total[0] + below[0], total[1] + below[1]]
        sums[level] = (total[0], total[1])
        noise = sigma * rng.standard_normal((d, d))
        nodes[level] = (total[0] + (noise + noise.T) / 2, total[1] + sigma * rng.standard_normal(d))
        counted = [nodes[bit] for bit in range(setting.depth) if batch >> bit & 1]
        gram = np.sum([one for one, _ in counted], axis=0)
        bias = np.sum([one for _, one in counted], axis=0)
    return lost / (setting.horizon // setting.sync * setting.sync)


def compared(setting: PublicSetting, runs: int) -> list[dict[str, float]]:
    """Regret per round of both kinds, run by run."""
    return [
        {
            "seed": seed,
            "ldp": regret_per_round("ldp", setting, seed),
            "sdp": regret_per_round("sdp", setting, seed),
        }
        for seed in range(runs)
    ]


def main() -> None:
    """Print the regret of every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--horizon", type=int, default=PublicSetting.horizon)
    parser.add_argument("--silos", type=int, default=PublicSetting.silos)
    given = parser.parse_args()
    setting = PublicSetting(silos=given.silos, horizon=given.horizon)
    for row in compared(setting, given.runs):
        print(f"seed {row['seed']:.0f}: ldp {row['ldp']:.2f}, sdp {row['sdp']:.2f}", flush=True)


if __name__ == "__main__":
    main()
