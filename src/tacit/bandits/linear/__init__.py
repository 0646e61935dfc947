"""Learners of linear bandits: options are actions, and means are linear in their features."""
