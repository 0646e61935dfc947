"""Studies on top of simulations: plans, corrections, the refuted predecessor, the demonstration."""
