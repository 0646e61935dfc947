"""Exact random draws for devices: coins, inversion and noise, from the operating system.

Nothing here imports NumPy or uses floating point.
"""
