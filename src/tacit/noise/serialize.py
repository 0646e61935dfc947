"""Noise laws as plain data, so that a learner's state can be stored as JSON and read back without
losing a bit.

A law is a frozen dataclass; its dictionary holds its name and its fields. Fractions become strings
such as "1/3", floats stay floats (JSON keeps every digit of them). A law that lives elsewhere joins
in with `register`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from tacit.checks import TacitError
from tacit.noise.binomial import Binomial
from tacit.noise.coins import Chance
from tacit.noise.gaussian import DiscreteGaussian
from tacit.noise.laplace import DiscreteLaplace, Polya, PolyaDifference
from tacit.noise.skellam import Skellam
from tacit.noise.table import Table

Law = TypeVar("Law", bound=type)
_LAWS: dict[str, type] = {}


def register(law: Law) -> Law:
    """Let a frozen dataclass be stored and read back by its name; usable as a decorator."""
    _LAWS[law.__name__] = law
    return law


for _law in (Binomial, DiscreteGaussian, DiscreteLaplace, Polya, PolyaDifference, Skellam, Table):
    register(_law)


def law_to_dict(law: Any) -> dict[str, Any]:
    """A law as a dictionary of numbers, strings and lists.

    >>> law_to_dict(DiscreteLaplace(Fraction(7, 2)))
    {'law': 'DiscreteLaplace', 'scale': '7/2'}
    """
    name = type(law).__name__
    if _LAWS.get(name) is not type(law) or not dataclasses.is_dataclass(law):
        raise TacitError(
            f"{law!r} is not a law that can be stored; known are {', '.join(sorted(_LAWS))}: use "
            "`register` first"
        )
    return {"law": name} | {
        field.name: _plain(getattr(law, field.name)) for field in dataclasses.fields(law)
    }


def law_from_dict(data: Mapping[str, Any]) -> Any:
    """The law that `law_to_dict` wrote down.

    >>> law_from_dict({"law": "DiscreteLaplace", "scale": "7/2"})
    DiscreteLaplace(scale=Fraction(7, 2))
    """
    fields = dict(data)
    name = fields.pop("law", None)
    if name not in _LAWS:
        raise TacitError(f"the law {name!r} is unknown; known are {', '.join(sorted(_LAWS))}")
    return _LAWS[name](**{key: _rich(value) for key, value in fields.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Chance):
        return {"factor": _plain(value.factor), "rate": _plain(value.rate)}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value


def _rich(value: Any) -> Any:
    if isinstance(value, str):
        return Fraction(value)
    if isinstance(value, Mapping):
        return Chance(**{key: _rich(part) for key, part in value.items()})
    if isinstance(value, list):
        return np.asarray(value, dtype=float)
    return value
