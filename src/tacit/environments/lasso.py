"""Lasso by coordinate descent on the Gram matrix, for a few hundred features."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tacit.errors import as_fraction

Floats = npt.NDArray[np.float64]


SWEEPS = 1000  # over all coordinates, at most
TOLERANCE = 1e-10  # change of a coordinate in one sweep at which the descent ends


def lasso(features: Floats, labels: Floats, penalty: float) -> Floats:
    """The w that minimises ‖features · w - labels‖² / 2n + penalty · ‖w‖₁, without intercept.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> lasso(x, x @ np.array([1.0, 0.0]), penalty=0.1).round(3)
    array([0.85, 0.  ])
    """
    level = float(as_fraction("penalty", penalty))
    n, d = features.shape
    gram, target = features.T @ features / n, features.T @ labels / n
    w = np.zeros(d)
    for _ in range(SWEEPS):
        largest = 0.0
        for j in range(d):
            if gram[j, j] <= 0:
                continue
            rest = target[j] - gram[j] @ w + gram[j, j] * w[j]
            new = float(np.sign(rest) * max(abs(rest) - level, 0.0) / gram[j, j])
            largest = max(largest, abs(new - w[j]))
            w[j] = new
        if largest <= TOLERANCE:
            break
    return w
