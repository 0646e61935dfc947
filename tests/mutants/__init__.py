"""Broken copies of tacit, each of which a test must notice: `make mutants`."""
