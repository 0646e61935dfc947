"""Learners of contextual bandits: the best option depends on the participant's features."""
