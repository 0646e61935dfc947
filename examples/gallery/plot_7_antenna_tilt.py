"""
Antenna tilt
============

A network operator tries 40 tilts and powers of an antenna. Each setting has features; throughput
is linear in them. Clients play settings of a design and report noisy sums (LZJ22).
"""

import matplotlib.pyplot as plt

import tacit

figure, axes = plt.subplots(layout="constrained")
for label, name in [
    ("no privacy", "dpe"),
    ("trusted server", "cdp-dpe"),
    ("shuffler", "sdp-dpe"),
    ("local", "ldp-dpe"),
]:
    result = tacit.simulate(name, dimension=4, actions=40, horizon=20_000, runs=3, workers=1)
    mean, _ = result.curve()
    axes.plot(result.checkpoints, mean, label=label)
axes.set(
    xlabel="decisions", ylabel="regret (rewards lost)", title="40 settings, 4 features, 3 runs"
)
axes.set_xticks(range(0, 20_001, 5_000))
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.legend(frameon=False)
figure.show()
