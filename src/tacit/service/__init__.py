"""Live experiments: definition, coordinator, helper, storage, HTTP interface and operations.

Two organisations run one aggregator each: the coordinator and the helper. Each is a process with
its own signing key and database. They drive the same `Experiment` class as a simulation.
"""
