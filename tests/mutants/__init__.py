"""Mutation tests: broken copies of tacit, each of which a test must detect (`make mutants`)."""
