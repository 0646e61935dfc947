"""Things that are stored by name: a class or a function as `module:qualname`, and back.

A file may name anything of tacit's own, which is imported for it, and whatever this process has
already loaded; nothing else is ever imported because a file says so.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from tacit.errors import TacitError


def name_of(thing: Any) -> str:
    """`module:qualname` of a class or function that stands at the top of its module.

    >>> name_of(TacitError)
    'tacit.errors:TacitError'
    """
    name: str = thing.__qualname__
    if "<" in name:
        raise TacitError(
            f"{name} is defined inside a function and cannot be stored by name: move it to the "
            "top of its module"
        )
    return f"{thing.__module__}:{name}"


def named(name: object, kind: type) -> Any:
    """What `name_of` named, if it is a `kind` (a class that derives from it, or an instance).

    >>> named("tacit.errors:TacitError", Exception)
    <class 'tacit.errors.TacitError'>
    """
    module, _, path = str(name).partition(":")
    if module not in sys.modules and module.split(".")[0] == "tacit" and "__" not in module:
        try:
            import_module(module)
        except ImportError as error:
            raise TacitError(f"there is no {name!r} in this version of tacit") from error
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    fits = isinstance(found, kind) or (isinstance(found, type) and issubclass(found, kind))
    own = (getattr(found, "__module__", None), getattr(found, "__qualname__", None))
    if not fits or own != (module, path):  # what a module only imported is not its own
        raise TacitError(
            f"{name!r} is not known here as {kind.__name__}: import the module that defines it "
            "before reading what was stored"
        )
    return found


class Lazy:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
