"""A loop by hand: devices randomize, an intermediary combines, the learner observes."""

import tacit

experiment = tacit.begin("private-klucb", ["blue", "green"], binary=True, horizon=2000)
for round_ in experiment.propose():
    protocol = experiment.open(round_)
    messages = [protocol.randomize(float(n % 3 > round_.arm)) for n in range(round_.participants)]
    experiment.observe(round_, protocol.analyze(protocol.combine(messages)))
    tacit.save(experiment, "experiment.json")
    experiment = tacit.load("experiment.json")
print(experiment.estimates())
