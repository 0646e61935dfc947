"""Learners of multi-armed bandits: one option, one mean."""
