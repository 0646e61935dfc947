"""Parameters of tests: whole tables in one test, and the part of a sweep that `make test` runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but one test for the table; it reports every row that fails.

    Fixtures are made once for all rows.
    """
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    table = list(rows)

    def decorate(test: Test) -> Test:
        @wraps(test)
        def every(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for row in table:
                values = row if len(fields) > 1 else (row,)
                try:
                    test(**dict(zip(fields, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"in the row {row!r}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows fail", failed)

        own = inspect.signature(test)
        others = [one for name, one in own.parameters.items() if name not in fields]
        every.__signature__ = own.replace(parameters=others)  # type: ignore[attr-defined]
        return every

    return decorate


def extended_after(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the first `count` for `make test`, the others in the extended run."""
    listed = list(values)
    later = [pytest.param(value, marks=pytest.mark.extended) for value in listed[count:]]
    return [*listed[:count], *later]


def extended_but_every(step: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Parameters of a test: every `step`-th case for `make test`, the others in the extended run.

    For a product of paths and n faults, a step of n + 1 gives neighbouring paths other faults.
    """
    return [
        pytest.param(*case, marks=[pytest.mark.extended] if number % step else [])
        for number, case in enumerate(cases)
    ]
