"""Attacks on data-dependent schedules of silos, compared with a fixed schedule.

In Dubey & Pentland 2020 (ZC24 Algorithm 3) all silos synchronise when the data of one has grown
enough: a rule on raw features. A silo that did not trigger the synchronisation learns that another
did. It thus learns a bound on the norm of a user's features, whatever the noise in the messages
(ZC24 Example 3.1 and Appendix B). `attack` plays this game against that rule, against the same rule
on private statistics (Appendix D) and against a fixed schedule. It also breaks the weaker notion
that was claimed, federated DP, which concerns the actions that other silos choose (Appendix B.2):
silo 1 gives its next user another action if there was a synchronisation. For each attack it reports
a lower bound on ε at 99.9 % confidence.

Run it with: tacit attack (python -m tacit.papers.schedule_attack prints the attack alone)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit.algorithms.silos_problem import SilosProblem
from tacit.algorithms.zc24_noise import PrivateSums, ldp_fedlinucb
from tacit.bandits.contextual import moments
from tacit.bandits.contextual.federated import FederatedLinUCB, Silo, repair
from tacit.errors import integer, require
from tacit.privacy import ApproximateDP
from tacit.privacy.audit import lower_bound
from tacit.rounding import down
from tacit.simulation.pictures import axes, save
from tacit.simulation.study import MOST_RUNS

Floats = npt.NDArray[np.float64]
ACTIONS = 100  # from which the attacker's silo chooses for its next user
THRESHOLD = 0.5  # a synchronisation after round 1 means that some ‖x‖² exceeds this
LARGE, SMALL = 1.0, 0.4  # values of the victim's ‖x‖²; the attacker's own user has the small one


class AdaptiveSilos:
    """ZC24 Algorithm 3, lines 9 to 17: the messages are private, their times are not.

    Only for this attack; do not use it otherwise.
    """

    def __init__(
        self,
        private: PrivateSums,
        regularizer: float,
        growth: float,
        dimension: int,
        rng: np.random.Generator,
    ) -> None:
        self._private, self._released = private, dict[int, Floats]()
        self._encoders = [private.sums.encoder(rng) for _ in range(private.sums.silos)]
        self._growth = growth
        self._regularizer = regularizer * np.eye(dimension)
        self._base, self._known = self._regularizer, np.zeros(dimension)
        self.round = self._last = 0
        self._clear()

    def _clear(self) -> None:
        silos, d = len(self._encoders), len(self._base)
        self._gram, self._bias = np.zeros((silos, d, d)), np.zeros((silos, d))

    def next_action(self, silo: int, actions: Floats) -> int:
        """The action of a silo's next user, by deterministic LinUCB (line 6)."""
        inverse = np.linalg.inv(self._base + self._gram[silo])
        values = actions @ inverse @ (self._known + self._bias[silo])
        return int(np.argmax(values + np.sqrt(np.abs(np.sum(actions @ inverse * actions, axis=1)))))

    def step(self, features: Floats, rewards: Floats) -> bool:
        """Play one round of all silos; return whether they synchronised, which is public."""
        self.round += 1
        self._gram += features[:, :, None] * features[:, None, :]
        self._bias += features * rewards[:, None]
        grown = np.linalg.slogdet(self._base + self._gram)[1] - np.linalg.slogdet(self._base)[1]
        if not np.any(grown > self._growth / (self.round - self._last)):
            return False
        packed = moments.pack(self._bias, self._gram)
        sent = [e.randomize(row) for e, row in zip(self._encoders, packed, strict=True)]
        step = len(self._released)
        release = self._private.sums.open(step, self._released, {}, self._private.guarantee)
        released = release.analyze(release.combine(sent)).total
        self._known, gram = moments.unpack(released, features.shape[1])
        self._base = self._regularizer + gram
        self._clear()
        self._last = self.round
        return True


@dataclass(frozen=True)
class AttackResult:
    """The attacker's success rates: from the schedule, from its next user's action, from all
    messages.

    `limit` is the largest success rate under the guarantee: (e^ε + δ) / (1 + e^ε).
    `epsilon_at_least` is each attack's lower bound on ε at this δ.
    """

    games: int
    adaptive_schedule: float
    adaptive_action: float
    private_schedule: float
    fixed_schedule: float
    fixed_action: float
    fixed_content: float
    limit: float
    epsilon: float
    delta: float
    epsilon_at_least: dict[str, float]


ATTACKS = (
    "adaptive_schedule",
    "adaptive_action",
    "private_schedule",
    "fixed_schedule",
    "fixed_action",
    "fixed_content",
)


def attack(
    games: int = 1000,
    seed: int = 0,
    *,
    epsilon: float = 0.2,
    delta: float = 1e-5,
    dimension: int = 5,
) -> AttackResult:
    """Play the game: a fair coin decides if silo 0's first user has large features; silo 1 guesses.

    Against the adaptive schedule, silo 1 guesses "large" if and only if round 1 ended in a
    synchronisation. Alternatively, it does so if and only if its own next user gets another action
    than without one. The fixed schedule synchronises after every round, reveals each silo's
    messages, and uses the noise of `ldp-fedlinucb`. Against it, silo 1 tries the same and checks if
    that action leans towards the victim more than the median does. It finally picks the likelier of
    both candidate messages, given silo 0's message. No attack on the fixed schedule is better than
    this likelihood test.
    """
    count = integer("games", games, at_least=1)
    require(count <= MOST_RUNS, "games", f"{count:.4g}", f"at most {MOST_RUNS:,}.")
    rng = np.random.default_rng(seed)
    problem = SilosProblem.of(
        silos=2, dimension=dimension, sync=1, horizon=8, epsilon=epsilon, delta=delta, lazy=True
    )
    private = ldp_fedlinucb(problem)
    regularizer = 1.0
    growth = math.log1p(THRESHOLD / regularizer)  # ‖x‖² > λ(e^D - 1)
    apart = np.random.default_rng([seed, 2])
    truth: list[bool] = []
    seen: dict[str, list[float]] = {name: [] for name in ATTACKS}
    choices = np.random.default_rng([seed, 1]).standard_normal((ACTIONS, dimension))
    choices /= np.linalg.norm(choices, axis=1)[:, None]
    for _ in range(count):
        large = bool(rng.integers(2))
        direction = rng.standard_normal(dimension)
        direction /= np.linalg.norm(direction)
        candidates = {True: math.sqrt(LARGE) * direction, False: math.sqrt(SMALL) * direction}
        own = math.sqrt(SMALL) * direction
        adaptive = AdaptiveSilos(private, regularizer, growth, dimension, rng)
        both = np.stack([candidates[large], own])
        truth.append(large)
        seen["adaptive_schedule"].append(adaptive.step(both, np.ones(2)))
        alone = AdaptiveSilos(private, regularizer, math.inf, dimension, rng)
        alone.step(both, np.ones(2))
        moved = adaptive.next_action(1, choices) != alone.next_action(1, choices)
        seen["adaptive_action"].append(moved)
        always = AdaptiveSilos(private, regularizer, -math.inf, dimension, apart)
        always.step(both, np.ones(2))
        leans = choices[always.next_action(1, choices)] @ direction
        seen["fixed_action"].append(float(leans))
        spoke, message = _fixed(private, candidates[large], rng)
        seen["fixed_schedule"].append(spoke)
        seen["private_schedule"].append(_fires(message, regularizer, growth, dimension))
        expected = {key: moments.pack(x, np.outer(x, x)) for key, x in candidates.items()}
        likelier = np.sum((message - expected[True]) ** 2) < np.sum(
            (message - expected[False]) ** 2
        )
        seen["fixed_content"].append(bool(likelier))
    limit = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    right = {name: _rate(truth, values) for name, values in seen.items()}
    proved = {name: _at_least(truth, values, delta) for name, values in seen.items()}
    about = {"games": count, "limit": limit, "epsilon": epsilon, "delta": delta}
    return AttackResult(**right, **about, epsilon_at_least=proved)  # type: ignore[arg-type]


def _rate(truth: Sequence[bool], statistics: Sequence[float]) -> float:
    """Success rate of guessing "large" when the statistic exceeds its median (0.5 for a yes
    or no).
    """
    usual = 0.5 if set(statistics) <= {0, 1} else float(np.median(statistics))
    return float(np.mean((np.array(statistics) > usual) == np.array(truth)))


def _at_least(truth: Sequence[bool], statistics: Sequence[float], delta: float) -> float:
    """Lower bound on ε from the statistics under large and under small features."""
    values, large = np.array(statistics, dtype=float), np.array(truth)
    few = min(int(large.sum()), int((~large).sum()))
    return lower_bound(values[large][:few], values[~large][:few], delta=delta).epsilon


def _fires(message: Floats, regularizer: float, growth: float, dimension: int) -> bool:
    """Whether the refuted rule fires on the private sums of the first round."""
    _, gram = moments.unpack(message, dimension)
    known = repair(gram, regularizer, floor=1e-9)[0]
    return float(np.linalg.slogdet(known)[1]) - dimension * math.log(regularizer) > growth


def _fixed(private: PrivateSums, x: Floats, rng: np.random.Generator) -> tuple[bool, Floats]:
    """Whether a silo on the fixed schedule reports after its first user, and its message."""
    silo = Silo(private.sums.encoder(rng))
    silo.start(FederatedLinUCB(2, len(x), 8, 1).propose()[0])
    silo.act(x[None])
    silo.learn(1.0)
    spoke, sums = silo.actor.finished, private.sums
    return spoke, sums.form(0).read(silo.report(), 1) / sums.scale


SHOWN = {
    "adaptive_schedule": "silo-level LDP: synchronisation times\n(raw data decides)",
    "adaptive_action": "federated DP: the action of another silo's\nnext user (raw data decides)",
    "private_schedule": "silo-level LDP: synchronisation times\n(private statistics decide)",
    "fixed_schedule": "silo-level LDP: synchronisation times\n(fixed schedule)",
    "fixed_action": "federated DP: the action of another silo's\nnext user (fixed schedule)",
    "fixed_content": "silo-level LDP: all messages of a silo\n(fixed schedule, best attack)",
}


def draw(outcome: AttackResult, path: Path) -> Path:
    """Plot each attack's success rate, with chance and the limit of the guarantee."""
    figure, one = axes()
    for place, name in enumerate(SHOWN):
        rate, proved = getattr(outcome, name), outcome.epsilon_at_least[name]
        broken = proved > outcome.epsilon
        one.barh(place, rate, color="#d55e00" if broken else "#0072b2", height=0.6)
        said = f" {rate:.1%}" + (f", so ε is at least {down(proved, 2)}" if broken else "")
        inside, beside = rate > 0.8, max(rate, outcome.limit) + 0.01
        look = {"ha": "right", "color": "white"} if inside else {"ha": "left"}
        one.text(rate - 0.01 if inside else beside, place, said, va="center", **look)
    one.axvline(0.5, color="#888888", linestyle=":")
    one.axvline(outcome.limit, color="black", linestyle="--")
    allowed = f"the most that {ApproximateDP(outcome.epsilon, outcome.delta).short} allows"
    one.text(outcome.limit + 0.01, len(SHOWN) - 0.45, allowed, va="center")
    one.text(0.49, len(SHOWN) - 0.45, "chance", va="center", ha="right")
    one.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
    one.set(xlim=(0, 1.02), ylim=(len(SHOWN) - 0.2, -0.6))
    one.set_xlabel(f"success rate of the adversary, {outcome.games:,} games")
    one.set_title("Were the features of one user of another silo large?")
    return save(figure, path)


if __name__ == "__main__":
    print(json.dumps(asdict(attack()), indent=2))
