"""A package that is not tacit's: a law, a protocol, a learner and an algorithm of its own."""
