"""Audit of a deployment with an experiment of its own, in which every answer is zero.

The released sums are then noise alone, and are compared with the stated distribution. An audit
finds faults, not malice: a party that recognizes the experiment can behave differently in it.
"""
