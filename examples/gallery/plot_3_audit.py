"""
An audit catches halved noise
=============================

An audit draws the noise that devices draw and attacks it. With the right noise the refuted ε
stays below the claim of 1. With half of the noise it exceeds the claim. An audit refutes
guarantees; it cannot prove them.
"""

import matplotlib.pyplot as plt
import numpy as np

from tacit import DiscreteLaplace
from tacit.privacy import audit

rng, claimed = np.random.default_rng(0), 1.0
factors = [0.25, 0.5, 0.75, 1.0, 1.5]
refuted = []
for factor in factors:
    noise = DiscreteLaplace(factor / claimed)
    found = audit(
        lambda answer, count, noise=noise: answer + noise.sample(rng, count),
        0,
        1,
        samples=200_000,
    )
    refuted.append(found.epsilon)

figure, axes = plt.subplots(layout="constrained")
axes.bar([f"{factor:g} ×" for factor in factors], refuted)
axes.axhline(claimed, color="black", linestyle="--", label="claimed ε")
axes.set(xlabel="noise drawn, relative to the noise stated", ylabel="ε is at least (99.9%)")
axes.legend(frameon=False)
figure.show()
