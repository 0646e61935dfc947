"""Lossless conversion of noise distributions to and from JSON-compatible data.

A distribution is a frozen dataclass. Its dictionary holds the class name, `module:qualname`, and
the fields: numbers, arrays, tuples of them, and other distributions. Fractions become strings such
as "1/3"; floats stay floats, since JSON keeps all their digits. Every `NoiseDistribution` subclass
is known;
other frozen dataclasses need `register`. Reading never imports modules from outside tacit.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from tacit.errors import TacitError
from tacit.noise.distribution import STORABLE, stored_name
from tacit.sampling.coins import Chance

DistributionT = TypeVar("DistributionT", bound=type)


def register(distribution: DistributionT) -> DistributionT:
    """Class decorator: make a frozen dataclass that is no `NoiseDistribution` storable."""
    STORABLE[stored_name(distribution)] = distribution
    return distribution


def distribution_to_dict(distribution: Any) -> dict[str, Any]:
    """A distribution as a dictionary of numbers, strings and lists.

    >>> from tacit.noise import DiscreteLaplace
    >>> distribution_to_dict(DiscreteLaplace(Fraction(7, 2)))
    {'law': 'tacit.noise.laplace:DiscreteLaplace', 'scale': '7/2'}
    """
    name = stored_name(type(distribution))
    if STORABLE.get(name) is not type(distribution) or not dataclasses.is_dataclass(distribution):
        raise TacitError(
            f"{distribution!r} cannot be stored: make it a NoiseDistribution and a "
            "frozen dataclass, "
            "or use `register` first"
        )
    return {"law": name} | {
        field.name: _plain(getattr(distribution, field.name))
        for field in dataclasses.fields(distribution)
    }


def distribution_from_dict(data: Mapping[str, Any]) -> Any:
    """The distribution that `distribution_to_dict` wrote.

    >>> distribution_from_dict({"law": "tacit.noise.laplace:DiscreteLaplace", "scale": "7/2"})
    DiscreteLaplace(scale=Fraction(7, 2))
    """
    fields = dict(data)
    name = str(fields.pop("law", None))
    if name not in STORABLE and (ours := re.match(r"(tacit(?:\.[a-z]\w*)+):", name)):
        with suppress(ModuleNotFoundError):
            import_module(ours[1])
    if name not in STORABLE:
        raise TacitError(
            f"the distribution {name!r} is unknown; known are {', '.join(sorted(STORABLE))}: "
            "import the module that defines it first"
        )
    return STORABLE[name](**{key: _rich(value) for key, value in fields.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Chance):
        return {"factor": _plain(value.factor), "rate": _plain(value.rate)}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return distribution_to_dict(value) if stored_name(type(value)) in STORABLE else value


def _rich(value: Any) -> Any:
    if isinstance(value, str):
        return Fraction(value)
    if isinstance(value, Mapping) and "law" in value:
        return distribution_from_dict(value)
    if isinstance(value, Mapping):
        return Chance(**{key: _rich(part) for key, part in value.items()})
    if isinstance(value, list):
        return tuple(_rich(part) for part in value)
    return value
