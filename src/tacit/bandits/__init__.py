"""Learners: which option to try next, given what private estimates have shown."""
