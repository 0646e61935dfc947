"""Conversion of classes and functions to stored names `module:qualname` and back.

A stored name may refer to anything in tacit, which is imported on demand, or to anything this
process has already loaded. No other module is ever imported because of a file's content.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from tacit.errors import TacitError

PACKAGE = __name__.partition(".")[0]


def name_of(thing: Any) -> str:
    """Return `module:qualname` of a class or function defined at the top level of its module.

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


def resolve_name(name: object, kind: type) -> Any:
    """Return the object that `name_of` named, if it is an instance or subclass of `kind`.

    >>> resolve_name("tacit.errors:TacitError", Exception)
    <class 'tacit.errors.TacitError'>
    """
    module, _, path = str(name).partition(":")
    if module not in sys.modules and module.split(".")[0] == PACKAGE and "__" not in module:
        try:
            import_module(module)
        except ImportError as error:
            raise TacitError(
                f"this version of tacit has no {name!r}: use the version that wrote it"
            ) from error
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    fits = isinstance(found, kind) or (isinstance(found, type) and issubclass(found, kind))
    own = (getattr(found, "__module__", None), getattr(found, "__qualname__", None))
    if not fits or own != (module, path):  # reject re-exports: the name must be the defining one
        raise TacitError(
            f"{name!r} is not known here as {kind.__name__}: import the module that defines it "
            "before reading the file"
        )
    return found


class Lazy:
    """A proxy that imports its module when an attribute is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def is_own(thing: Any) -> bool:
    """Whether a function or class is defined by tacit, by identity: its attributes can be copied.

    >>> is_own(TacitError), is_own(dict)
    (True, False)
    """
    module = sys.modules.get(str(thing.__module__))
    ours = str(thing.__module__).partition(".")[0] == PACKAGE
    return ours and vars(module).get(thing.__name__) is thing
