"""tacit: learn which option works best from people whose answers you never see.

The package is one idea in three rooms: `bandits` decide, `protocols` hide, `privacy` promises;
`noise` is the ground they stand on. Importing `tacit` is cheap: a subpackage is loaded when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_SUBPACKAGES = (
    "bandits",
    "environments",
    "intermediaries",
    "noise",
    "papers",
    "privacy",
    "protocols",
    "simulation",
)

__all__ = ["__version__", *_SUBPACKAGES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
