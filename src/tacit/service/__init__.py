"""Experiments on real people: definition, parties, storage, service and device.

A coordinator and a helper, run by two organisations, each a process with its own key and database.
What they drive is the same `Experiment` as a simulation's.
"""
