"""Code about the papers alone: figures, corrections, theorems, refuted schedules, certificates.

Only the commands that need it import this package.
"""
