"""Learners of contextual bandits: what is best depends on who comes."""
