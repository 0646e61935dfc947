"""A private bandit over your own simulator; regret is known only if you give the means."""

import tacit

world = tacit.FromFunction(lambda arm, rng: rng.beta(2 + arm, 5), ["old", "new"])
result = tacit.simulate("private-klucb", world, horizon=20_000, epsilon=1.0, runs=2)
print(result.summary()["winner"], result.summary()["regret_mean"])
