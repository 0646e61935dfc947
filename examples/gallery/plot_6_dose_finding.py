"""
Dose finding over hospitals
===========================

Four hospitals choose one of six doses. The response of a patient depends on how far the dose is
from what the patient's weight and kidney function call for. The hospitals learn one linear model
together; secure aggregation releases only noisy sums over all of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import tacit

DOSES = np.linspace(0, 1, 6)


def features(rng: np.random.Generator) -> np.ndarray:
    """One patient per hospital: three features of each dose, with norms of at most 1."""
    weight, kidney = rng.random((2, 4, 1))
    miss = DOSES - (0.7 * weight + 0.3 * kidney)
    angle = np.pi * miss / 2
    return np.stack([np.cos(angle), np.sin(angle), np.ones_like(angle)], axis=2) / np.sqrt(2)


def mean(_silo: int, x: np.ndarray) -> float:
    return float(x @ [0.5, 0.1, 0.3])


def response(silo: int, x: np.ndarray, rng: np.random.Generator) -> float:
    return float(rng.random() < mean(silo, x))


world = tacit.OwnSilos(features=features, reward=response, mean=mean)
figure, axes = plt.subplots(layout="constrained")
for label, name, more in [
    ("no privacy", "fedlinucb", {}),
    ("secure aggregation, (1, 1e-6)-DP", "secagg-fedlinucb", {"mode": "calibrated"}),
    ("each hospital alone adds noise, (1, 1e-6)-DP", "ldp-fedlinucb", {}),
]:
    result = tacit.simulate(name, world, horizon=1500, runs=3, workers=1, **more)
    regret, _ = result.curve()
    axes.plot(result.checkpoints, regret, label=label)
axes.set(xlabel="patients per hospital", ylabel="regret of all hospitals (rewards lost)")
axes.legend(frameon=False)
figure.show()
