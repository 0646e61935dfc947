"""Learners of multi-armed bandits."""
