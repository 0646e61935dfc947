"""Studies built on simulations: plans, corrections, audits, schedules and attacks, the
demonstration.
"""
