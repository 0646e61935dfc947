"""The contract of a learner: a state machine without I/O that decides which users try which arm.

`propose` says which batches of fresh users to send where; `observe` takes the private estimate of
one of them, `skip` says that a batch was played but never opened. The simulator and the live
service drive the same objects. A learner knows nothing of protocols: only the estimate and the law
of its error.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError, integer


class ErrorLike(Protocol):
    """The law of an estimate's error, as learners use it (see
    `tacit.protocols.contract.ErrorLaw`).
    """

    @property
    def users(self) -> int:
        """How many users' rewards the estimated sum holds."""

    @property
    def precision(self) -> int:
        """The error of the sum is (noise - its mean) / precision."""

    @property
    def noise(self) -> Any:
        """A law of `tacit.noise`, or None for an exact sum."""

    @property
    def variance(self) -> float:
        """The variance of the noise in the estimated sum."""

    def log_mgf(self, s: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """ln E[e^{s · error of the sum}]."""

    def radius(self, p: float) -> float:
        """The least r with P[|error of the sum| > r] <= p."""


class EstimateLike(Protocol):
    """A batch's estimated sum of rewards and the law of its error."""

    @property
    def total(self) -> float:
        """The estimated sum."""

    @property
    def error(self) -> ErrorLike:
        """The law of its error."""


@dataclass(frozen=True)
class Batch:
    """`users` fresh users try `arm`; one that is not `opened` (the horizon cut it) is played but
    never reported.
    """

    number: int
    arm: int
    users: int
    opened: bool = True


class Learner(ABC):
    """Decides which arm the next users try, from private estimates of batch sums.

    Drive it like this; every batch that was proposed must be observed or skipped before new ones
    are decided on:

        while batches := learner.propose():
            for batch in batches:
                if batch.opened:
                    learner.observe(batch, estimate_of(batch))
                else:
                    learner.skip(batch)

    A subclass stores its constructor's arguments under their own names, and writes `_plan` (which
    batches next) and `_learn` (what an estimate changes), `best`, and `_state`/`_restore` for
    whatever it remembers.
    """

    learners: ClassVar[dict[str, type[Learner]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Learner.learners[cls.__name__] = cls

    def __init__(self, arms: int, horizon: int) -> None:
        self.arms = integer("arms", arms, at_least=2, remedy="a bandit chooses among two or more")
        self.horizon = integer("horizon", horizon, at_least=1)
        if self.horizon < self.arms:
            raise TacitError(
                f"horizon is {self.horizon}, fewer users than the {self.arms} arms: drop arms or "
                "recruit more users"
            )
        self.played = 0
        self._number = 0
        self._pending: dict[int, Batch] = {}

    @property
    def active(self) -> list[int]:
        """The arms that may still be tried."""
        return list(range(self.arms))

    @abstractmethod
    def best(self) -> int:
        """The arm to recommend, given all that was seen."""

    @abstractmethod
    def _plan(self) -> Iterable[tuple[int, int]]:
        """The next independent batches as (arm, users), as if the horizon were far; asked when
        nothing is pending.
        """

    @abstractmethod
    def _learn(self, batch: Batch, estimate: EstimateLike) -> None:
        """Take in the estimate of a batch."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What the subclass remembers, as plain numbers, strings and lists."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """The reverse of `_state`."""

    def propose(self) -> list[Batch]:
        """The batches that wait for users; new ones are decided on when none waits. Empty once the
        horizon is used up.

        Asking again changes nothing. The batch that the horizon cuts short is the last; it is not
        to be opened.
        """
        if not self._pending:
            left = self.horizon - self.played
            for arm, users in self._plan() if left else ():
                batch = Batch(self._number, arm, min(users, left), opened=users <= left)
                self._pending[batch.number] = batch
                self._number += 1
                left -= batch.users
                if not left:
                    break
        return list(self._pending.values())

    def observe(self, batch: Batch, estimate: EstimateLike) -> None:
        """Learn from the opened estimate of a proposed batch."""
        self._check(batch)
        if not batch.opened:
            raise TacitError(
                f"batch {batch.number} was cut short by the horizon and must not be opened: call "
                "skip(batch)"
            )
        reported = estimate.error.users
        if not 0 < reported <= batch.users:
            raise TacitError(
                f"the estimate of batch {batch.number} holds {reported} users; it must hold 1 to "
                f"{batch.users}"
            )
        if not -1e300 < estimate.total < 1e300:
            raise TacitError(
                f"the estimate of batch {batch.number} is {estimate.total}; it must be a finite "
                "number"
            )
        self._done(batch)
        self._learn(batch, estimate)

    def skip(self, batch: Batch) -> None:
        """Count a proposed batch as played but never opened: cut short by the horizon, or too few
        reports came back.

        In the second case the learner asks for new users where it still needs them.
        """
        self._check(batch)
        self._done(batch)

    def _check(self, batch: Batch) -> None:
        if self._pending.get(batch.number) == batch:
            return
        if 0 <= batch.number < self._number and batch.number not in self._pending:
            raise TacitError(
                f"batch {batch.number} was already observed or skipped; each counts once: call "
                "propose() for new ones"
            )
        raise TacitError(
            f"{batch} was not proposed by this learner: observe only what propose() returned"
        )

    def _done(self, batch: Batch) -> None:
        del self._pending[batch.number]
        self.played += batch.users

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def to_dict(self) -> dict[str, Any]:
        """The learner and its whole state as plain data: numbers, strings, lists.

        JSON keeps it exactly.
        """
        return {
            "learner": type(self).__name__,
            "arguments": self.arguments(),
            "played": self.played,
            "number": self._number,
            "pending": [asdict(batch) for batch in self._pending.values()],
            "state": self._state(),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Learner:
        """The learner that `to_dict` wrote down; it goes on exactly as the original would have."""
        name = data.get("learner")
        if name not in Learner.learners:
            raise TacitError(
                f"the learner {name!r} is unknown; known are {', '.join(sorted(Learner.learners))}"
            )
        learner = Learner.learners[name](**data["arguments"])
        learner.played, learner._number = data["played"], data["number"]
        learner._pending = {entry["number"]: Batch(**entry) for entry in data["pending"]}
        learner._restore(data["state"])
        return learner

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"{type(self).__name__}({given})"
