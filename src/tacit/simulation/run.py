"""One simulated run: a learner, an environment and a protocol for every batch, and what came of it.

The fast path draws how many of a batch's users hold each level and one value of the total noise, so
its cost does not grow with the number of users; it is exact in distribution. The slow path runs
every user through randomize, combine and analyze, with simulation noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit.bandits import Batch, Learner
from tacit.environments import Environment
from tacit.protocols.continuous import FINE
from tacit.protocols.contract import Estimate, SumProtocol, round_levels

Floats = npt.NDArray[np.float64]
ProtocolFactory = Callable[[int], SumProtocol]


@dataclass(frozen=True)
class Run:
    """What came of one run; `regret` and `realised` are at the `checkpoints`, cumulative;
    `final_regret` is pseudo-regret at the end.
    """

    checkpoints: tuple[int, ...]
    regret: tuple[float, ...]
    realised: tuple[float, ...]
    final_regret: float
    batches: int
    bits: float
    users: int
    active: int
    best: int
    wrapped: int


def checkpoints_for(horizon: int, count: int = 60) -> tuple[int, ...]:
    """Log-spaced rounds, the horizon last.

    >>> checkpoints_for(1000, 4)
    (1, 10, 100, 1000)
    """
    return tuple(
        sorted(
            {horizon}
            | {max(1, min(horizon, round(t))) for t in np.geomspace(1, horizon, count).tolist()}
        )
    )


@dataclass
class _Ledger:
    """Cumulative regret as a piecewise linear function of the round."""

    rounds: list[int] = field(default_factory=lambda: [0])
    regret: list[float] = field(default_factory=lambda: [0.0])
    realised: list[float] = field(default_factory=lambda: [0.0])

    def add(self, users: int, gap: float, lost: float) -> None:
        self.rounds.append(self.rounds[-1] + users)
        self.regret.append(self.regret[-1] + gap * users)
        self.realised.append(self.realised[-1] + lost)

    def at(self, checkpoints: tuple[int, ...], values: list[float]) -> tuple[float, ...]:
        return tuple(float(v) for v in np.interp(checkpoints, self.rounds, values))


def run(
    learner: Learner,
    environment: Environment,
    protocols: ProtocolFactory,
    rng: np.random.Generator,
    *,
    checkpoints: tuple[int, ...] | None = None,
    user_by_user: bool = False,
) -> Run:
    """Drives a learner through its horizon.

    `protocols(users)` builds the protocol of a batch. `user_by_user` takes the slow path.
    """
    ledger = _Ledger()
    gaps, best_mean = environment.gaps, float(environment.means.max())
    opened = wrapped = 0
    bits = 0.0
    while batches := learner.propose():
        for batch in batches:
            gap = float(gaps[batch.arm])
            if not batch.opened:
                ledger.add(
                    batch.users, gap, best_mean * batch.users - _unopened(environment, batch, rng)
                )
                learner.skip(batch)
                continue
            protocol = protocols(batch.users)
            before = protocol.wrapped
            estimate, earned = _estimate(environment, protocol, batch, rng, user_by_user)
            ledger.add(batch.users, gap, best_mean * batch.users - earned)
            learner.observe(batch, estimate)
            opened += 1
            bits += protocol.bits_per_user * batch.users
            wrapped += protocol.wrapped - before
    marks = checkpoints or checkpoints_for(learner.horizon)
    return Run(
        checkpoints=marks,
        regret=ledger.at(marks, ledger.regret),
        realised=ledger.at(marks, ledger.realised),
        final_regret=ledger.regret[-1],
        batches=opened,
        bits=bits,
        users=ledger.rounds[-1],
        active=len(learner.active),
        best=learner.best(),
        wrapped=wrapped,
    )


def _estimate(
    environment: Environment,
    protocol: SumProtocol,
    batch: Batch,
    rng: np.random.Generator,
    user_by_user: bool,
) -> tuple[Estimate, float]:
    """The estimate of a batch's sum, and the sum of its (rounded) rewards."""
    if not user_by_user:
        levels = environment.levels(batch.arm, batch.users, protocol.precision, rng)
        return protocol.simulate(levels, rng), levels.total / protocol.precision
    rewards = environment.rewards(batch.arm, batch.users, rng)
    rounded = round_levels(rewards, protocol.precision, rng)
    estimate = protocol.analyze(protocol.combine_batch(protocol.randomize_batch(rounded, rng), rng))
    return estimate, float(rounded.sum()) / protocol.precision


def _unopened(environment: Environment, batch: Batch, rng: np.random.Generator) -> float:
    """The sum of rewards of a batch that nobody will report, rounded finely."""
    return environment.levels(batch.arm, batch.users, FINE, rng).total / FINE
