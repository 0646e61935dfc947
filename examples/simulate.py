"""Simulate a named algorithm, read what came of it, and plot it."""

import tacit

result = tacit.simulate("private-klucb", arms=5, horizon=100_000, epsilon=1.0, runs=5)
print(result.guarantee)
print(f"regret {result.regret_mean:.0f} ± {result.regret_sem:.0f}")
result.plot("regret.png")
