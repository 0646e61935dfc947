"""Protocols P = (R, S, A): randomizer on the device, ideal aggregator, analyzer, per trust model."""
