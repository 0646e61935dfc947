"""
Dose finding over hospitals
===========================

Four hospitals choose one of six doses for patients with different contexts. A patient's response
depends on how well the dose fits the patient's weight and kidney function. The hospitals learn
one model together; secure aggregation releases only noisy sums over all of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import tacit

DOSES = np.linspace(0, 1, 6)


def features(rng: np.random.Generator) -> np.ndarray:
    """One patient per hospital: features of each dose, with norms of at most 1."""
    weight, kidney = rng.random((2, 4, 1))
    fit = 1 - np.abs(DOSES - (0.7 * weight + 0.3 * kidney))
    return np.stack([fit, weight * DOSES, kidney * DOSES], axis=2) / np.sqrt(3)


def mean(_silo: int, x: np.ndarray) -> float:
    return float(x @ [1.2, 0.2, -0.1])


def response(silo: int, x: np.ndarray, rng: np.random.Generator) -> float:
    return float(rng.random() < mean(silo, x))


world = tacit.OwnSilos(features=features, reward=response, mean=mean)
figure, axes = plt.subplots(layout="constrained")
for label, name, more in [
    ("no privacy", "fedlinucb", {}),
    ("secure aggregation, (1, 1e-6)-DP", "secagg-fedlinucb", {"mode": "calibrated"}),
    ("each hospital alone adds noise", "ldp-fedlinucb", {}),
]:
    result = tacit.simulate(name, world, horizon=1000, runs=3, workers=1, **more)
    mean_regret, _ = result.curve()
    axes.plot(result.checkpoints, mean_regret, label=label)
axes.set(xlabel="patients per hospital", ylabel="regret of all hospitals")
axes.legend(frameon=False)
figure.show()
