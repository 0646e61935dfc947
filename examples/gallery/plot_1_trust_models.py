"""
Regret by trust model
=====================

Trusting less costs noise. The same learner, ``private-med``, serves 100,000 participants under
the same guarantee of ε = 1. Only the trust model changes.
"""

import matplotlib.pyplot as plt

import tacit

figure, axes = plt.subplots(layout="constrained")
for trust in ("central", "secure-aggregation", "two-servers", "shuffler", "local"):
    result = tacit.simulate("private-med", arms=5, horizon=100_000, runs=10, workers=1, trust=trust)
    mean, error = result.curve()
    (line,) = axes.plot(result.checkpoints, mean, label=trust)
    axes.fill_between(
        result.checkpoints, mean - error, mean + error, color=line.get_color(), alpha=0.2
    )
axes.set(
    xlabel="participants", ylabel="regret (rewards lost)", title="five options, (1, 0)-DP, 10 runs"
)
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.legend(frameon=False)
figure.show()
