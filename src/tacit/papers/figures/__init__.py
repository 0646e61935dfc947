"""The papers' figures, reproduced from simulations, in one registry."""

from tacit.papers.figures.registry import Axis, Figure, FigureCurve, Options, figures, lookup

__all__ = ["Axis", "Figure", "FigureCurve", "Options", "figures", "lookup"]
