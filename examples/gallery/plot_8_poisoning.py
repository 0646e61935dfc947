"""
Poisoning with and without proofs
=================================

Some participants report against the best option. Without proofs one report can count as any
number, so a hundredth of the participants turns the result. With Prio3 proofs the two servers
drop every report that is out of range, and the same participants count one answer each.
"""

import matplotlib.pyplot as plt

import tacit

parts = [0.0, 0.01, 0.02, 0.05]
figure, axes = plt.subplots(layout="constrained")
for label, through in [("with proofs", "verified"), ("without proofs", "two-servers")]:
    right = []
    for part in parts:
        result = tacit.simulate(
            "private-med",
            means=(0.2, 0.3),
            horizon=10_000,
            runs=20,
            workers=1,
            trust="two-servers",
            through=through,
            poisoned=part,
        )
        right.append(sum(run["winner"] == "option 2" for run in result.runs) / len(result.runs))
    axes.plot(parts, right, marker="o", label=label)
axes.set(xlabel="malicious participants", ylabel="experiments that find the best option")
axes.xaxis.set_major_formatter("{x:.0%}")
axes.yaxis.set_major_formatter("{x:.0%}")
axes.legend(frameon=False)
figure.show()
