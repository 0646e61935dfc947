"""Silos with contexts of their own: features and rewards come from your functions."""

import tacit

world = tacit.OwnSilos(
    features=lambda rng: rng.random((4, 5, 3)) / 2,  # 4 silos, 5 actions, 3 features
    reward=lambda silo, x, rng: float(rng.random() < x[0]),
)
result = tacit.simulate("secagg-fedlinucb", world, horizon=200, runs=1)
print(result.guarantee)
