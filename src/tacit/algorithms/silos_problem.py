"""Federated contextual bandit problems: the problem, its privacy and its simulated environment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from tacit.algorithms.problems import (
    DEFAULT_DELTA,
    Checked,
    Constants,
    Noise,
    Problem,
    Start,
    group,
    option,
)
from tacit.errors import TacitError, integer, positive, probability, require

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import numpy as np

    from tacit.algorithms.run_outcome import RunOutcome
    from tacit.environments.contract import World
    from tacit.privacy import ApproximateDP

Budget = tuple[float, float]  # (ε, δ)
Mode = Literal["rigorous", "calibrated"]
Schedule = Literal["geometric", "fixed"]
Field = Literal["title", "body"]
Sent = Literal["rows", "prefix-sums"]
PrintedBits = Literal["proof", "printed"]
LARGEST_BUDGET = 10_000  # largest epsilon of a silo


@dataclass(frozen=True)
class SilosPrivacy(Checked):
    """The requested guarantee of participants in silos.

    Parameters
    ----------
    epsilon, delta, budgets
        The guarantee, or one (ε, δ) for each silo.
    participations, visits, visits_per_batch
        The guarantee covers a participant who comes `participations` times, to any silos in any
        batches; or in at most `visits` batches, at most `visits_per_batch` times in each (ZC24
        App. G.4).
    noise : str
        The kind of shared noise.
    missing : int
        Silos that may be missing from a synchronisation.

    Examples
    --------
    >>> SilosPrivacy(budgets=((0.5, 1e-6), (1.0, 1e-5))).target.short
    '(1, 1e-05)-DP'
    """

    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float = option(DEFAULT_DELTA, "Delta of the guarantee.")
    budgets: tuple[float | Budget, ...] | None = option(
        None,
        "Privacy budgets of the silos, comma-separated: 0.5,1,1 or with a delta "
        "0.5:1e-6,1:1e-5,1:1e-5; 2*1:1e-5 is two silos. Each participant has their silo's "
        "guarantee.",
    )
    participations: int = option(
        1, "How often one participant may take part; epsilon covers all participations."
    )
    visits: int = option(1, "Batches in which one participant may be.")
    visits_per_batch: int = option(1, "How often one participant may be in each batch.")
    noise: Noise = option("discrete-gaussian", f"Noise to share: {', '.join(get_args(Noise))}.")
    missing: int = option(
        0, "Silos that may be missing from a synchronisation; the noise is shared among the others."
    )

    def __post_init__(self) -> None:
        self._check_counts(participations=1, visits=1, visits_per_batch=1, missing=0)
        if self.participations > 1 and self.visits * self.visits_per_batch > 1:
            raise TacitError(
                f"participations is {self.participations}, but visits limit them, too: give one "
                "or the other"
            )
        if self.budgets is not None:
            self._settle_budgets()
        positive("epsilon", self.epsilon, "for no privacy use fedlinucb")
        probability("delta", self.delta, "federated algorithms need delta > 0")
        self._check_words()

    def _settle_budgets(self) -> None:
        """Check all budgets, make each a pair, and set epsilon and delta to the weakest."""
        pairs = self.pairs
        if self.visits_repeatedly:
            raise TacitError(
                "budgets cover one participation in one silo: leave them out, or leave "
                "participations and visits out"
            )
        self._set_field("budgets", pairs)
        if pairs:
            self._set_field("epsilon", max(epsilon for epsilon, _ in pairs))
            self._set_field("delta", max(delta for _, delta in pairs))

    @property
    def pairs(self) -> tuple[Budget, ...]:
        """(ε, δ) of every silo, where they have budgets of their own."""
        return tuple(
            _budget(place, one, self.delta) for place, one in enumerate(self.budgets or ())
        )

    @property
    def visits_repeatedly(self) -> bool:
        """Whether a participant may come more than once."""
        return self.participations * self.visits * self.visits_per_batch > 1

    @property
    def target(self) -> ApproximateDP:
        """The requested guarantee."""
        from tacit.privacy import ApproximateDP

        return ApproximateDP(self.epsilon, self.delta)


@dataclass(frozen=True)
class SilosEnvironment(Checked):
    """The simulated silos: ZC24's synthetic instance, or a MSLR-WEB10K file."""

    actions: int = option(100, "Actions to choose among.")
    deviation: float = option(0.25, "Standard deviation of a reward's noise.")
    data: str | None = option(None, "MSLR-WEB10K fold file instead of the synthetic instance.")
    field: Field = option("title", "Features of recorded data: title or body.")

    def __post_init__(self) -> None:
        self._check_counts(actions=1)
        require(self.deviation >= 0, "deviation", self.deviation, "at least 0")
        self._check_words()

    def world(self, silos: int, dimension: int, rng: np.random.Generator) -> World:
        """The synthetic instance, or the recorded one."""
        from tacit.environments.silos import Synthetic, remembered_ranking

        if self.data is not None:
            return remembered_ranking(Path(self.data), field=self.field, silos=silos)
        return Synthetic.draw(silos, dimension, self.actions, rng, self.deviation)


@dataclass(frozen=True)
class SilosProblem(Problem):
    """A federated contextual bandit problem: silos that learn together.

    Parameters
    ----------
    silos, dimension, horizon, sync
        Size of the problem, and the rounds between synchronisations.
    lazy, mode, schedule, norm, failure_probability, constants
        How silos act and synchronise, and their confidence sets.
    sent, bits
        What silos send: rows or prefix sums; bits as in a proof or as printed.
    privacy : SilosPrivacy
        The requested guarantee.
    environment : SilosEnvironment
        The simulated silos.
    constant : float, optional
        Value of the last feature, where an environment declares one.

    Examples
    --------
    >>> SilosProblem.of(budgets=((0.5, 1e-6), (1.0, 1e-5))).silos
    2
    """

    family: ClassVar[str] = "federated"
    per: ClassVar[str] = "round"
    extras: ClassVar[tuple[str, ...]] = (
        "group_regret_per_round",
        "repairs",
        "communication",
        "bits_per_user",
        "clipped",
        "reward_mean",
    )

    silos: int = option(None, "Number of silos; 100, or 10 on recorded data.")
    dimension: int = option(10, "Number of features.")
    sync: int = option(25, "Rounds between synchronisations.")
    horizon: int = option(10_000, "Number of rounds.")
    constants: Constants = option("tight", "Exact constants (tight), or those of the paper.")
    lazy: bool = option(True, "Silos decide from private sums only, or also from raw data.")
    failure_probability: float = option(
        None, "Probability that a confidence set fails; 0.01, or 0.05 where calibrated."
    )
    mode: Mode = option(
        "rigorous",
        "Confidence of lazy silos: rigorous (proved, for all rounds and actions at once), or "
        "calibrated (not proved: measured, for one action at a time).",
    )
    schedule: Schedule | None = option(
        None,
        "When to synchronise: geometric (by default where silos are lazy), or fixed, every sync "
        "rounds.",
    )
    sent: Sent = option(
        "rows",
        "What a silo sends at a synchronisation: rows of the factorization (nodes of the tree with "
        "constants of the paper), or prefix-sums that it adds up itself (ZC24 Algorithm 4).",
    )
    bits: PrintedBits = option(
        "proof",
        "Noise bits with constants of the paper: of the variance in the proof of ZC24 Theorem 5.5, "
        "or printed (Appendix F.2: g levels and b bits of bias 1/4 for every data point).",
    )
    norm: float = option(
        1.0, "Largest length of the parameter; of rewards less 1/2 where one feature is constant."
    )
    privacy: SilosPrivacy = group(SilosPrivacy)
    environment: SilosEnvironment = group(SilosEnvironment)
    constant: float | None = None  # value of the last feature, where an environment declares one

    def __post_init__(self) -> None:
        budgets = self.privacy.budgets
        if self.silos is None:
            usual = 100 if self.environment.data is None else 10
            self._set_field("silos", usual if budgets is None else len(budgets))
        if budgets is not None and (len(budgets) != self.silos or not budgets):
            raise TacitError(
                f"budgets has {len(budgets)} entries: must have one for each of {self.silos} "
                f"silos, such as --budgets {self.silos}*1:1e-6"
            )
        if self.failure_probability is None:
            usual_chance = 0.05 if self.mode == "calibrated" else 0.01
            self._set_field("failure_probability", usual_chance)
        self._check_counts(silos=1, dimension=2, sync=1)
        remedy = f"silos synchronise every {self.sync} rounds; use a longer horizon or less sync"
        integer("horizon", self.horizon, at_least=self.sync, remedy=remedy)
        self._check_counts(horizon=1)
        probability("failure_probability", self.failure_probability)
        self._check_words()
        positive("norm", self.norm, "the parameter's largest length, such as 1")

    @property
    def steps(self) -> int:
        """The number of synchronisations: whole batches."""
        return self.horizon // self.sync

    @property
    def batches(self) -> tuple[int, ...]:
        """Rounds before each synchronisation of lazy silos, the same in every silo."""
        from tacit.bandits.contextual.schedules import even, geometric

        if self.schedule == "fixed":
            return even(self.horizon, self.sync)
        return geometric(self.horizon)

    @property
    def shared_draws(self) -> Hashable:
        """The size of synthetic silos that synchronise every `sync` rounds."""
        if self.lazy or self.environment.data is not None:
            return None
        return (self.silos, self.dimension, self.horizon, self.sync, self.environment)

    def start(self, seed: int, world: World | None) -> Start:
        """Separate generators for participants and noise, so all algorithms meet the same ones."""
        import numpy as np

        rng, noise = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        if world is None:
            return Start(self.environment.world(self.silos, self.dimension, rng), rng, noise)
        return Start(world.fresh(rng), rng, noise)

    def for_environment(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """A recorded environment sets the number of silos and the dimension.

        Raises
        ------
        TacitError
            If the environment is not one of silos.
        """
        from tacit.environments.silos import Silos

        if not isinstance(world, Silos):
            raise TacitError(
                f"environment is {type(world).__name__}: must be an environment of silos"
            )
        size: dict[str, Any] = {"silos": world.silos, "dimension": world.dimension}
        return replace(self, **size, constant=world.intercept)

    def record(self, outcome: RunOutcome) -> dict[str, Any]:
        """The metrics of a federated run."""
        participants = self.silos * self.horizon
        notes: Mapping[str, float] = outcome.notes
        return {
            "group_regret_per_round": None
            if outcome.regret is None
            else outcome.regret[-1] / self.horizon,
            "repairs": outcome.experiment.learner.repairs,  # type: ignore[attr-defined]
            "communication": outcome.bits,
            "bits_per_user": outcome.bits / participants,
            "clipped": notes.get("clipped_rewards", 0) / participants,
            **self._replayed(outcome),
        }

    @staticmethod
    def _replayed(outcome: RunOutcome) -> dict[str, Any]:
        """Mean reward of recorded participants, and the learned parameter."""
        notes: Mapping[str, float] = outcome.notes
        if "accepted" not in notes:
            return {}
        learner = outcome.experiment.learner
        policy = learner.policy(1)  # type: ignore[attr-defined]
        return {
            "users": outcome.played,
            "reward_mean": notes["earned"] / notes["accepted"],
            "learned": {
                "parameter": policy.parameter.tolist(),
                "centre": policy.centre,
                "released": outcome.released,
            },
        }


def _budget(silo: int, budget: float | Budget, delta: float) -> Budget:
    """(ε, δ) of one silo; where only ε is given, with the common δ."""
    pair = tuple(budget) if isinstance(budget, (tuple, list)) else (budget, delta)
    if len(pair) != 2:
        raise TacitError(f"the budget of silo {silo} is {budget}: must be epsilon and delta")
    positive(f"epsilon of silo {silo}", pair[0], "give every silo a privacy budget")
    if pair[0] > LARGEST_BUDGET:
        raise TacitError(
            f"epsilon of silo {silo} is {float(pair[0]):g}: must be at most "
            f"{LARGEST_BUDGET:,}. A larger one gives no meaningful privacy"
        )
    probability(f"delta of silo {silo}", pair[1], "federated algorithms need delta > 0")
    return float(pair[0]), float(pair[1])
