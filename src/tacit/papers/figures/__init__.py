"""The papers' figures, reproduced from simulations, in one registry."""

from tacit.papers.figures.registry import Axis, Figure, Options, figures, lookup

__all__ = ["Axis", "Figure", "Options", "figures", "lookup"]
