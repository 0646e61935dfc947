"""State of learners and of their parts as plain data, by the names of the attributes that hold it.

JSON has no arrays, sets, tuples or infinity: `like` restores them from the value that the same
attribute of a fresh object has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from tacit.noise.serialize import distribution_from_dict, distribution_to_dict

Noisy = TypeVar("Noisy")


def plain(value: Any) -> Any:
    """A value as plain data; infinity as null, a table as a list of pairs.

    >>> plain((np.array([1.0, np.inf]), {3, 1}, {2: "b"}))
    [[1.0, None], [1, 3], [[2, 'b']]]
    """
    match value:
        case float():
            return value if math.isfinite(value) else None
        case np.ndarray():
            return plain(value.tolist())
        case list() | tuple():
            return [plain(one) for one in value]
        case set():
            return sorted(value)
        case dict():
            return [[key, one] for key, one in value.items()]
        case np.random.Generator():
            return dict(value.bit_generator.state)
        case Kept():
            return value.to_dict()
    return value


def like(template: Any, stored: Any) -> Any:
    """The value that `plain` stored, of the type of an earlier one.

    >>> like(np.zeros(2), [1.0, None]), like(set(), [1, 3]), like([(0.0, 0)], [[0.5, 1]])
    (array([ 1., inf]), {1, 3}, [(0.5, 1)])
    """
    match template:
        case np.ndarray():
            found = np.array(stored, dtype=template.dtype)
            if found.dtype == float:
                found[np.isnan(found)] = math.inf
            return found if found.size else found.reshape(template.shape)
        case [Kept() | tuple(), *_]:
            return [like(one, other) for one, other in zip(template, stored, strict=True)]
        case list() | set() | dict():
            return type(template)(stored)
        case tuple():
            return type(template)._make(stored) if hasattr(template, "_make") else tuple(stored)
        case np.random.Generator():
            template.bit_generator.state = stored
            return template
        case Kept():
            template.restore(stored)
            return template
    return stored


class Kept:
    """Base of objects whose state is the attributes that `kept` names."""

    kept: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        return kept_state(self, self.kept)

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Restore what `to_dict` returned."""
        restore_kept(self, self.kept, stored)


def kept_state(owner: object, names: Iterable[str]) -> dict[str, Any]:
    """Attributes of an object as plain data, under their names without underscores."""
    return {name.strip("_"): plain(getattr(owner, name)) for name in names}


def restore_kept(owner: object, names: Iterable[str], stored: Mapping[str, Any]) -> None:
    """Restore attributes of a fresh object from what `kept_state` returned."""
    for name in names:
        setattr(owner, name, like(getattr(owner, name), stored[name.strip("_")]))


def noisy_to_dict(value: Any) -> dict[str, Any]:
    """A dataclass of numbers with a noise distribution, or None for no noise."""
    noise = None if value.noise is None else distribution_to_dict(value.noise)
    return {one.name: getattr(value, one.name) for one in fields(value)} | {"noise": noise}


def noisy_from_dict(kind: type[Noisy], stored: Mapping[str, Any]) -> Noisy:
    """The dataclass that `noisy_to_dict` stored."""
    noise = None if stored["noise"] is None else distribution_from_dict(stored["noise"])
    return kind(**{**stored, "noise": noise})
