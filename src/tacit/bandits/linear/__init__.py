"""Learners of linear bandits: options are actions, means are linear in them."""
