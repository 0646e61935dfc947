"""
A live winner
=============

What the page of a live experiment shows: the interval of every option after every round. The
loop below is the one that the coordinator runs. Intervals are anytime-valid: you may look after
every round, and the first verdict is wrong in at most 5% of experiments.
"""

import matplotlib.pyplot as plt
import numpy as np

import tacit
from tacit.environments import Bernoulli

options = ["no reminder", "a quiet line", "a friendly question"]
world, rng = Bernoulli((0.2, 0.4, 0.6)), np.random.default_rng(1)
experiment = tacit.begin(
    "private-med",
    options,
    binary=True,
    horizon=6000,
    epsilon=1.0,
    trust="two-servers",
    control_share=0.25,
)
rows = []
while rounds := experiment.propose():
    for round_ in rounds:
        if not round_.released:
            experiment.skip(round_)
            continue
        protocol = experiment.open(round_)
        answers = world.play(round_, protocol, rng).load
        experiment.observe(round_, protocol.simulate(answers, rng))
    rows.append(experiment.estimates())
print(experiment.decided(), experiment.guarantee, sep="\n")

figure, axes = plt.subplots(layout="constrained")
for arm, name in enumerate(options):
    low, high = ([getattr(row[arm], end) for row in rows] for end in ("low", "high"))
    axes.fill_between(range(1, len(rows) + 1), low, high, alpha=0.4, label=name)
axes.set(xlabel="round", ylabel="success rate, 95% interval", ylim=(0, 1))
axes.yaxis.set_major_formatter("{x:.0%}")
axes.legend(frameon=False, loc="upper right")
figure.show()
