"""Guarantees recomputed by slow arithmetic independent of the package: `make verify`."""
