"""Guarantees recomputed by slow arithmetic that shares nothing with the package: `make verify`."""
