"""Protocols P = (R, S, A), per trust model: randomizer on the device, ideal aggregator, analyzer.

The cryptography of the aggregator is in `tacit.aggregation`; learners are in `tacit.bandits`.
"""
