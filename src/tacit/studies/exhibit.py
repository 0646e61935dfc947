"""An exhibit: how a schedule gives a user away, and how a fixed one does not.

Dubey & Pentland 2020 (ZC24 Algorithm 3) let all silos synchronise when the data of one of them has
grown enough: a rule on raw features. A silo that did not trigger the synchronisation learns that
another did, and so a bound on the norm of that silo's user's features, whatever noise is added to
the content (ZC24 Example 3.1 and Appendix B). `attack` plays that game against both schedules. It
also breaks the weaker notion that was claimed, federated DP, which is about the actions that other
silos choose (Appendix B.2): what silo 1 gives its next user is another action if there was a
synchronisation.

Run it with: python -m tacit.studies.exhibit
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from tacit.algorithms.problems import SilosProblem
from tacit.algorithms.zc24_noise import PrivateSums, ldp_fedlinucb
from tacit.bandits.contextual import moments
from tacit.bandits.contextual.federated import FederatedLinUCB, Silo
from tacit.checks import integer

Floats = npt.NDArray[np.float64]
ACTIONS = 100  # among which the attacker's silo chooses for its next user
THRESHOLD = 0.5  # a synchronisation after the first round means that some ‖x‖² exceeds this
LARGE, SMALL = (
    1.0,
    0.4,
)  # the two values that ‖x‖² may have, for the victim; the attacker's own user has the small one


class AdaptiveSilos:
    """ZC24 Algorithm 3, lines 9 to 17: what is sent is private, when it is sent is not.

    Not to be used for anything but this exhibit.
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
        """What a silo gives its next user, by deterministic LinUCB (line 6)."""
        inverse = np.linalg.inv(self._base + self._gram[silo])
        values = actions @ inverse @ (self._known + self._bias[silo])
        return int(np.argmax(values + np.sqrt(np.abs(np.sum(actions @ inverse * actions, axis=1)))))

    def step(self, features: Floats, rewards: Floats) -> bool:
        """One round of all silos; whether it ended in a synchronisation, which everyone sees."""
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
        opened = release.analyze(release.combine(sent)).total
        self._known, gram = moments.unpack(opened, features.shape[1])
        self._base = self._regularizer + gram
        self._clear()
        self._last = self.round
        return True


@dataclass(frozen=True)
class Outcome:
    """How often the attacker guessed the victim's norm right: from the schedule alone, from the
    action that its own next user is given, and from everything that was sent.

    `limit` is the most that the guarantee leaves any attacker: (e^ε + δ) / (1 + e^ε).
    """

    games: int
    adaptive_schedule: float
    adaptive_action: float
    fixed_schedule: float
    fixed_content: float
    limit: float


def attack(
    games: int = 1000,
    seed: int = 0,
    *,
    epsilon: float = 0.2,
    delta: float = 1e-5,
    dimension: int = 5,
) -> Outcome:
    """Plays the game: a fair coin decides whether the first user of silo 0 has large or small
    features; silo 1 guesses.

    Against the adaptive schedule it guesses "large" if and only if round 1 ended in a
    synchronisation. Against the fixed one (a synchronisation after every round, each silo's
    messages in the open, the noise of `ldp-fedlinucb`) it tries the same, and then, knowing both
    candidate messages but for the noise, takes the likelier one given what silo 0 sent: no attack
    on it is better.
    """
    count = integer("games", games, at_least=1)
    rng = np.random.default_rng(seed)
    problem = SilosProblem(2, dimension, sync=1, horizon=8, epsilon=epsilon, delta=delta, lazy=True)
    private = ldp_fedlinucb(problem)
    regularizer = 1.0
    growth = math.log1p(THRESHOLD / regularizer)  # ‖x‖² > λ(e^D - 1)
    right = {"adaptive": 0, "action": 0, "schedule": 0, "content": 0}
    choices = np.random.default_rng([seed, 1]).standard_normal((ACTIONS, dimension))
    choices /= np.linalg.norm(choices, axis=1)[:, None]
    for _ in range(count):
        large = bool(rng.integers(2))
        direction = rng.standard_normal(dimension)
        direction /= np.linalg.norm(direction)
        candidates = {True: math.sqrt(LARGE) * direction, False: math.sqrt(SMALL) * direction}
        own = math.sqrt(SMALL) * direction
        adaptive = AdaptiveSilos(private, regularizer, growth, dimension, rng)
        guess = adaptive.step(np.stack([candidates[large], own]), np.ones(2))
        right["adaptive"] += guess == large
        alone = AdaptiveSilos(private, regularizer, math.inf, dimension, rng)
        alone.step(np.stack([candidates[large], own]), np.ones(2))
        moved = adaptive.next_action(1, choices) != alone.next_action(1, choices)
        right["action"] += moved == large
        spoke, message = _fixed(private, candidates[large], rng)
        right["schedule"] += spoke == large
        expected = {key: moments.pack(x, np.outer(x, x)) for key, x in candidates.items()}
        likelier = np.sum((message - expected[True]) ** 2) < np.sum(
            (message - expected[False]) ** 2
        )
        right["content"] += bool(likelier) == large
    limit = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    by_schedule, by_action, schedule, content = (part / count for part in right.values())
    return Outcome(count, by_schedule, by_action, schedule, content, limit)


def _fixed(private: PrivateSums, x: Floats, rng: np.random.Generator) -> tuple[bool, Floats]:
    """Whether our silo reports after its first user, and what it sends."""
    silo = Silo(private.sums.encoder(rng))
    silo.start(FederatedLinUCB(2, len(x), 8, 1, lazy=True).propose()[0])
    silo.act(x[None])
    silo.learn(1.0)
    spoke, sums = silo.actor.finished, private.sums
    return spoke, sums.form(0).read(silo.report(), 1) / sums.scale


if __name__ == "__main__":
    print(json.dumps(asdict(attack()), indent=2))
