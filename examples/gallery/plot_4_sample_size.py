"""
ε against sample size
=====================

A stronger guarantee needs more participants. ``tacit.plan`` simulates experiments until nine of
ten are decided, here for options at 20% of which the best is 50% better.
"""

import matplotlib.pyplot as plt

import tacit

epsilons = [0.25, 0.5, 1.0, 2.0]
figure, axes = plt.subplots(layout="constrained")
for trust in ("secure-aggregation", "two-servers", "local"):
    needed = []
    for epsilon in epsilons:
        plan = tacit.plan(baseline=0.2, lift=0.5, epsilon=epsilon, trusts=(trust,))
        needed.append(plan.costs[0].participants)
    axes.plot(epsilons, needed, marker="o", label=trust)
axes.set(xscale="log", yscale="log", xlabel="ε", ylabel="participants until a decision")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.minorticks_off()
axes.legend(frameon=False)
figure.show()
