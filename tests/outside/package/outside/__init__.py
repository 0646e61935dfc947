"""A package that is not tacit's: a distribution, a protocol, a learner and an algorithm of its
own."""
