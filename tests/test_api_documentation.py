"""The public API documents every parameter of functions and classes that have three or more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any

PUBLIC = (
    "tacit",
    "tacit.algorithms",
    "tacit.bandits",
    "tacit.client",
    "tacit.environments",
    "tacit.noise",
    "tacit.privacy",
    "tacit.simulation",
    "tacit.testing",
)
CONTRACTS = (
    "tacit.bandits.contract",
    "tacit.environments.contract",
    "tacit.experiment",
    "tacit.noise.distribution",
    "tacit.protocols.contract",
    "tacit.types",
)
FEW = 2  # up to this number of parameters a sentence suffices
LISTS = ("Parameters", "Other Parameters", "Attributes")


def listed(docstring: str | None) -> set[str]:
    """The names in the numpydoc sections that list parameters."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    found, inside = set[str](), False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line and after and set(after) == {"-"}:
            inside = line in LISTS
        elif inside and line and not line.startswith((" ", "-")):
            found.update(name.strip().lstrip("*") for name in line.split(" : ")[0].split(","))
    return found


def exported() -> Iterator[Any]:
    for name in PUBLIC:
        module = import_module(name)
        yield from (getattr(module, each) for each in module.__all__)
    for name in CONTRACTS:
        things = vars(import_module(name)).items()
        yield from (
            thing
            for each, thing in things
            if not each.startswith("_") and getattr(thing, "__module__", "") == name
        )


def documented(kind: type, method: str = "") -> set[str]:
    """The parameters that a class or its method lists, or those that it inherits from."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("tacit")]
    found = [vars(base).get(method) if method else base for base in ours]
    return set().union(*(listed(one.__doc__) for one in found if one is not None))


def callables() -> Iterator[tuple[str, Callable[..., Any], set[str]]]:
    """Every public function, class and method, with the parameters that it documents."""
    for thing in dict.fromkeys(exported()):
        if inspect.isfunction(thing):
            yield thing.__qualname__, thing, listed(thing.__doc__)
        if not inspect.isclass(thing) or issubclass(thing, (Enum, BaseException)):
            continue
        yield thing.__qualname__, thing, documented(thing)
        for name, method in inspect.getmembers(thing, callable):
            if not name.startswith("_") and getattr(method, "__module__", "").startswith("tacit"):
                yield f"{thing.__qualname__}.{name}", method, documented(thing, name)


def test_every_parameter_of_the_public_api_is_documented() -> None:
    missing = dict[str, list[str]]()
    for name, thing, known in callables():
        names = [each for each in inspect.signature(thing).parameters if not each.startswith("_")]
        names = [each for each in names if each not in ("self", "cls")]
        if len(names) > FEW and not known.issuperset(names):
            missing[name] = [each for each in names if each not in known]
    assert not missing


def test_numpydoc_sections_are_parsed() -> None:
    def example(first: int, second: int, *rest: int) -> int:
        """Add.

        Parameters
        ----------
        first, second : int
            The numbers.
        *rest : int
            Further ones.

        Returns
        -------
        int
            The sum.
        """
        return first + second + sum(rest)

    assert listed(example.__doc__) == {"first", "second", "rest"}
    assert listed("Add: without sections.") == set()
