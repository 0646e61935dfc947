"""
An ad test at 2%
================

Four ads; one is clicked by 2.6% instead of 2%. How many participants get a worse ad, with and
without privacy?
"""

import matplotlib.pyplot as plt

import tacit

means = (0.02, 0.026, 0.02, 0.02)
figure, axes = plt.subplots(layout="constrained")
for label, name, more in [
    ("Thompson sampling, no privacy", "thompson", {}),
    ("two servers, ε = 1", "private-med", {"trust": "two-servers", "epsilon": 1.0}),
    ("two servers, ε = 0.1", "private-med", {"trust": "two-servers", "epsilon": 0.1}),
    ("local, ε = 1", "private-med", {"trust": "local", "epsilon": 1.0}),
]:
    result = tacit.simulate(name, means=means, horizon=200_000, runs=10, workers=1, **more)
    mean, _ = result.curve()
    axes.plot(result.checkpoints, mean, label=label)
axes.set(xlabel="participants", ylabel="clicks lost", title="2.6% against 2%, 10 runs")
axes.set_xticks(range(0, 200_001, 50_000))
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.legend(frameon=False)
figure.show()
