"""Rewards from a user's own function: a simulator, a model, a generator of test cases.

The function returns many rewards per call, or one; every returned value is checked. Without true
means the regret is unknown and not reported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.environments.contract import Environment, check_means
from tacit.environments.replay import option_names
from tacit.errors import TacitError, integer
from tacit.types import Floats


@dataclass(frozen=True, eq=False)
class FromFunction(Environment):
    """An environment whose rewards come from a function.

    Parameters
    ----------
    function
        `function(arm, users, rng)`, which returns an array of `users` rewards in [0, 1], or
        `function(arm, rng)`, which returns one reward.
    options
        The options' names, or how many there are.
    true_means
        The true mean reward of each option; without them regret is unknown.
    binary
        Whether all rewards are 0 or 1.

    Raises
    ------
    TacitError
        If names, means or the function's signature do not fit; in `rewards`, if a returned reward
        is not in the declared range.

    Examples
    --------
    >>> world = FromFunction(lambda arm, rng: float(rng.random() < 0.5 + arm / 4), ["old", "new"])
    >>> world.rewards(1, 4, np.random.default_rng(0)), world.means
    (array([1., 1., 1., 1.]), None)
    """

    function: Callable[..., Any]
    options: int | Sequence[str]
    true_means: npt.ArrayLike | None = None
    binary: bool = False

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) < 2:
            raise TacitError(
                f"options are {', '.join(self.names)}: must be two or more different names, or "
                "their number."
            )
        if self.true_means is not None and len(check_means(self.true_means)) != self.arms:
            raise TacitError(
                f"true_means has {np.size(self.true_means)} values: must have {self.arms}, one per "
                "option."
            )
        if self._parameters not in (2, 3):
            raise TacitError(
                f"function takes {self._parameters} arguments: must take (arm, users, rng) and "
                "return an array, or (arm, rng) and return one reward."
            )

    @cached_property
    def _parameters(self) -> int:
        """The number of required positional arguments of the function."""
        given = inspect.signature(self.function).parameters.values()
        named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(p.default is p.empty and p.kind in named for p in given)

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The options' names."""
        if isinstance(self.options, Sequence) and not isinstance(self.options, str):
            return tuple(str(name) for name in self.options)
        return option_names(integer("options", self.options, at_least=2))

    @property
    def arms(self) -> int:
        """The number of options."""
        return len(self.names)

    @cached_property
    def means(self) -> Floats | None:
        """The true means; None if not given, which leaves regret unknown."""
        return None if self.true_means is None else check_means(self.true_means)

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """The function's rewards, checked."""
        if self._parameters == 3:
            found = self.function(arm, users, rng)
        else:
            found = [self.function(arm, rng) for _ in range(users)]
        return self._checked(arm, users, found)

    def _checked(self, arm: int, users: int, result: Any) -> Floats:
        def called(what: str) -> str:
            return f"the function returned {what} for {self.names[arm]!r}"

        try:
            values = np.asarray(result, dtype=float)
        except (TypeError, ValueError) as error:
            raise TacitError(f"{called(repr(result)[:60])}: must be numbers.") from error
        if values.shape != (users,):
            raise TacitError(f"{called(f'shape {values.shape}')}: must be {users:,} rewards.")
        check_rewards(values, self.binary, called)
        return values


def check_rewards(values: Floats, binary: bool, called: Callable[[str], str]) -> None:
    """Reject rewards out of range; `called` names the function call in the error."""
    wrong = ~((values >= 0) & (values <= 1))
    if binary:
        wrong |= (values != 0) & (values != 1)
    if wrong.any():
        rule = "0 or 1, as it is binary." if binary else "in [0, 1]. Rescale or clip it."
        raise TacitError(f"{called(f'{values[wrong][0]:g}')}: must be {rule}")
