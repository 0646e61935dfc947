"""Multi-armed bandit problems: the problem, its privacy and its simulated environment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from tacit.algorithms.problems import (
    DEFAULT_DELTA,
    Checked,
    Constants,
    Problem,
    Start,
    group,
    option,
)
from tacit.errors import TacitError, one_of, positive, probability, require
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tacit.algorithms.run_outcome import RunOutcome
    from tacit.environments.contract import Environment, World
    from tacit.privacy import ApproximateDP, PureDP

Through = Literal["two-servers", "verified"]
Index = Literal["chernoff", "variance"]
Better = Literal["lower", "higher"]
Rewards = Literal["bernoulli", "gaussian", "beta"]
TRUSTS = (
    TrustModel.SECURE_AGGREGATION,
    TrustModel.SHUFFLER,
    TrustModel.CENTRAL,
    TrustModel.LOCAL,
    TrustModel.TWO_SERVERS,
)


def _format_numbers(numbers: Iterable[float]) -> str:
    return ",".join(f"{number:g}" for number in numbers) or "empty"


@dataclass(frozen=True)
class ArmsPrivacy(Checked):
    """The requested guarantee of arms, its trust model and the losses that it tolerates.

    Parameters
    ----------
    epsilon, delta, participations
        The guarantee; without δ it is pure. ε covers all participations of one participant.
    trust, through
        Trust model, and how reports reach two servers.
    scale : int
        Scale of the papers' Skellam and Gaussian noise.
    dropout, corrupt, min_batch_size
        Tolerated fractions of missing and of corrupted participants, and the minimum batch size,
        where participants add shares of noise.

    Examples
    --------
    >>> ArmsPrivacy(epsilon=0.5).pure.short
    '(0.5, 0)-DP'
    """

    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float | None = option(None, "Delta of the guarantee; leave it out for a pure one.")
    trust: str = option(TRUSTS[0].value, f"Trust model: {', '.join(TRUSTS)}.")
    through: Through | None = option(
        None,
        "How reports reach two servers: two-servers, or verified, which drops reports out of "
        "range.",
    )
    scale: int = option(10, "Scale s of the paper's Skellam and Gaussian noise.")
    participations: int = option(
        1, "How often one participant may take part; epsilon covers all participations."
    )
    dropout: float = option(
        0.0, "Fraction of each batch that may fail to report; the guarantee holds without it."
    )
    corrupt: float = option(
        0.0, "Fraction of each batch that may add no noise; the guarantee holds without it."
    )
    min_batch_size: int = option(64, "Minimum batch size where participants share the noise.")
    levels: int | None = None  # the same in every round, where terms fix them
    smallest: int = 1  # minimum batch size with two servers
    added: bool = False  # each participation gets an equal part of ε and δ, as terms state it

    def __post_init__(self) -> None:
        positive(
            "epsilon",
            self.epsilon,
            "for no privacy use ucb1, klucb, thompson or successive-elimination",
        )
        if self.delta is not None:
            probability("delta", self.delta, "leave delta out for a pure guarantee", zero=True)
        self._check_counts(scale=1, participations=1, min_batch_size=2)
        probability("dropout", self.dropout, "a fraction of each batch, such as 0.1", zero=True)
        probability("corrupt", self.corrupt, "a fraction of each batch, such as 0.1", zero=True)
        one_of("trust", self.trust, TRUSTS)
        self._check_words()
        if self.through is not None and self.trust != TrustModel.TWO_SERVERS:
            raise TacitError(
                f"through is {self.through!r}, but trust is {self.trust!r}: use trust two-servers, "
                "or leave through out"
            )

    @property
    def target(self) -> ApproximateDP:
        """(ε, δ), for algorithms that need a δ."""
        from tacit.assumptions import Accounting, Method
        from tacit.privacy import ApproximateDP

        if self.delta == 0:
            raise TacitError(
                "delta is 0; this algorithm needs delta > 0: leave delta out for "
                f"{DEFAULT_DELTA:g}, or use dist-dp-se, shuffle-dp-se or private-klucb"
            )
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        made = ApproximateDP(self.epsilon, delta, participations=self.participations)
        ways = (Accounting(Method.ADDED, self.participations),) if self.added else ()
        return made.assuming(*ways)

    @property
    def pure(self) -> PureDP:
        """(ε, 0), for algorithms that need no δ."""
        from tacit.privacy import PureDP

        return PureDP(self.epsilon, participations=self.participations)

    @property
    def losses(self) -> dict[str, float]:
        """The tolerated dropout and corruption, as arguments of protocol factories."""
        return {"dropout": self.dropout, "corrupt": self.corrupt}

    @property
    def positive_losses(self) -> dict[str, float]:
        """The same, without those that are 0."""
        return {name: part for name, part in self.losses.items() if part}

    @property
    def fixed_levels(self) -> dict[str, int]:
        """The levels that terms fix, as an argument of protocol factories; empty without terms."""
        return {} if self.levels is None else {"levels": self.levels}

    def reject_losses(self, reason: str, *names: str) -> None:
        """Reject dropout or corruption that an algorithm does not tolerate.

        Its noise is not shared, or its rounds need every report.
        """
        for name, value in self.losses.items():
            if value and name in (names or self.losses):
                raise TacitError(
                    f"{name} is {value:g}, but {reason}: leave it out, or use dist-dp-se, "
                    "vb-sdp-ae or private-klucb with tight constants"
                )


@dataclass(frozen=True)
class ArmsEnvironment(Checked):
    """The simulated rewards of arms: their distribution and their means, random or given.

    Examples
    --------
    >>> ArmsEnvironment(means=[0.2, 0.7]).means
    (0.2, 0.7)
    """

    rewards: Rewards = option("bernoulli", f"Rewards: {', '.join(get_args(Rewards))}.")
    instance: str = option("easy", "Random means: easy, hard, rare or linear.")
    means: tuple[float, ...] | None = option(
        None, "Mean rewards, comma-separated, instead of random ones."
    )
    guardrail_means: tuple[float, ...] | None = option(
        None, "Means of the guardrail, comma-separated, one per option."
    )

    def __post_init__(self) -> None:
        self._check_words()
        for name, means in (("means", self.means), ("guardrail_means", self.guardrail_means)):
            if means is None:
                continue
            self._set_field(name, tuple(means))
            if len(means) < 2 or not all(0 <= mean <= 1 for mean in means):
                raise TacitError(
                    f"{name} is {_format_numbers(means)}: must be two or more numbers in [0, 1], "
                    "such as 0.31,0.47"
                )

    def world(self, arms: int, seed: int, guardrail: str | None) -> World:
        """The instance of a seed."""
        from tacit.environments import Bernoulli, Beta, ClippedGaussian, TwoMetrics, instance_means
        from tacit.environments.linear_options import LINEAR, linear_options

        if self.instance == LINEAR and self.means is None:
            if guardrail is not None or self.rewards != "bernoulli":
                raise TacitError(
                    f"instance is {LINEAR!r}: must have bernoulli rewards and no guardrail. "
                    "Leave these out."
                )
            return linear_options(arms, seed)
        kinds = {"bernoulli": Bernoulli, "gaussian": ClippedGaussian, "beta": Beta}
        means = self.means or tuple(instance_means(self.instance, arms, seed).tolist())
        world: Environment = kinds[self.rewards](means)
        if guardrail is None:
            return world
        if self.guardrail_means is None:
            raise TacitError(
                f"guardrail is {guardrail!r}, but it has no means: give guardrail_means, one for "
                "each option"
            )
        return TwoMetrics(world, Bernoulli(self.guardrail_means))


@dataclass(frozen=True)
class ArmsProblem(Problem):
    """A multi-armed bandit problem.

    An algorithm ignores the fields that are not among its options.

    Parameters
    ----------
    arms, horizon : int
        Number of options and of participants.
    constants : {"tight", "paper"}
        Exact constants, or those of the paper.
    index, growth, rounds, failure_probability, anytime
        The learner: its index, the sizes of its rounds, the probability that it drops the best
        option, and whether it ignores the horizon.
    plays : int, optional
        How many options each participant tries, where the algorithm has several tried.
    control_share, guardrail, guardrail_better, guardrail_margin
        The control's least share of participants, and a second metric that pauses worse options.
    privacy : ArmsPrivacy
        The requested guarantee.
    environment : ArmsEnvironment
        The simulated rewards.
    binary : bool
        Whether all rewards are 0 or 1.
    control : int
        Index of the control.
    learner_seed : int
        Seed of a randomised learner.
    labels : tuple of str
        Names of the options.
    table : array-like, optional
        Features of the options, one row each.

    Raises
    ------
    TacitError
        If a value is out of range or contradicts another.

    Examples
    --------
    >>> problem = ArmsProblem.of(arms=3, horizon=1e4, epsilon=0.5)
    >>> problem.horizon, problem.privacy.pure.short, problem.privacy.target.short
    (10000, '(0.5, 0)-DP', '(0.5, 1e-06)-DP')
    """

    family: ClassVar[str] = "arms"
    extras: ClassVar[tuple[str, ...]] = (
        "bits_per_user",
        "batches",
        "active",
        "wrapped",
        "final_realised_regret",
        "lower_bound",
    )

    arms: int = option(10, "Number of options.")
    constants: Constants = option("tight", "Exact constants (tight), or those of the paper.")
    index: Index = option("chernoff", "Rigorous index, or a normal approximation (variance).")
    growth: float = option(4.0, "Factor between the sizes of rounds.")
    rounds: int | None = option(None, "Largest number of rounds, where the horizon is known.")
    failure_probability: float = option(0.1, "Probability that the best option is dropped.")
    anytime: bool = option(False, "Do not tell the learner the horizon.")
    plays: int | None = option(
        None, "Options that each participant tries, repetitions included; default: two per feature."
    )
    control_share: float = option(
        0.0,
        "Least share of participants of the first option, the control, and of every other option "
        "until it is shown to be worse.",
    )
    guardrail: str | None = option(
        None,
        "Name of a second metric, which pauses options that are clearly worse than the control. "
        "Needs a control share.",
    )
    guardrail_better: Better = option("lower", "Better values of the guardrail: lower or higher.")
    guardrail_margin: float = option(0.0, "How much worse than the control the guardrail may be.")
    privacy: ArmsPrivacy = group(ArmsPrivacy)
    environment: ArmsEnvironment = group(ArmsEnvironment)
    binary: bool = False
    control: int = 0  # index of the control
    learner_seed: int = 0
    labels: tuple[str, ...] = ()
    table: Any = None  # features of the options, one row each

    def __post_init__(self) -> None:
        if self.environment.means is not None:
            self._set_field("arms", len(self.environment.means))
        self._check_counts(arms=2, horizon=1, rounds=1)
        rule = f"at least the {self.arms} arms. Use fewer arms or more participants"
        require(self.horizon >= self.arms, "horizon", self.horizon, rule)
        growing = 1 < self.growth < float("inf")
        require(growing, "growth", f"{self.growth:g}", "greater than 1, such as 4")
        remedy = "the probability that the best option is dropped, such as 0.1"
        probability("failure_probability", self.failure_probability, remedy)
        remedy = "the control's share of all participants, such as 0.2"
        probability("control_share", self.control_share, remedy, zero=True)
        self._check_words()
        self._check_guardrail()

    def _check_guardrail(self) -> None:
        remedy = "how much worse than the control is tolerated, such as 0.01"
        probability("guardrail_margin", self.guardrail_margin, remedy, zero=True)
        means = self.environment.guardrail_means
        if self.guardrail is None:
            if means is not None or self.guardrail_margin:
                raise TacitError("guardrail is missing, but its means or margin are given. Name it")
            return
        if not self.control_share:
            raise TacitError(
                f"guardrail is {self.guardrail!r}, which compares options with the control, but "
                "control_share is 0: give the control a share, such as 0.2"
            )
        if means is not None:
            rule = f"{self.arms} numbers, one for each option"
            require(len(means) == self.arms, "guardrail_means", _format_numbers(means), rule)

    @property
    def metrics(self) -> int:
        """Numbers that each participant reports."""
        return 1 if self.guardrail is None else 2

    @property
    def names(self) -> tuple[str, ...]:
        """The names from the environment, if it has any."""
        return self.labels

    @property
    def dropout(self) -> float:
        """Fraction of each round that does not report: all that the guarantee tolerates."""
        return self.privacy.dropout

    @property
    def epsilon_per_number(self) -> float:
        """ε of one number of one participation, under basic composition."""
        return self.privacy.epsilon / (self.privacy.participations * self.metrics)

    @property
    def paper_failure_probability(self) -> float | None:
        """The failure probability that sets the papers' moduli; None with tight constants."""
        return self.failure_probability if self.constants == "paper" else None

    def start(self, seed: int, world: World | None) -> Start:
        """One generator for participants and noise; a fresh instance unless means are given."""
        import numpy as np

        rng = np.random.default_rng([seed, 0x7AC17])
        if world is None:
            return Start(self.environment.world(self.arms, seed, self.guardrail), rng, rng)
        return Start(world.fresh(rng), rng, rng)

    def for_environment(self, world: World, seed: int) -> Self:
        """Check the environment against the problem, and take over whether rewards are bits.

        Raises
        ------
        TacitError
            If arms, metrics or horizon of the environment differ from the problem's.
        """
        from tacit.environments.contract import Environment
        from tacit.environments.recorded import RecordedRun, check_horizon

        if isinstance(world, RecordedRun):
            check_horizon(self.horizon, world.world)
        if not isinstance(world, Environment):
            raise TacitError(
                f"environment is {type(world).__name__}: must be an environment of arms"
            )
        if world.arms != self.arms:
            raise TacitError(
                f"arms is {self.arms}, but the environment has {world.arms}: leave arms out, or "
                "give an environment of that many"
            )
        if world.metrics != self.metrics:
            raise TacitError(
                f"the environment has {world.metrics} metrics: must have {self.metrics}. Give "
                "guardrail a name and the environment a second metric (environments.TwoMetrics), "
                "or neither"
            )
        return replace(
            self, binary=world.binary, learner_seed=seed, labels=world.names, table=world.features
        )

    def record(self, outcome: RunOutcome) -> dict[str, Any]:
        """The metrics of a multi-armed run."""
        best, gaps = outcome.experiment.learner.best(), outcome.gaps
        return {
            "realised": outcome.realised,
            "batches": outcome.released,
            "bits": outcome.bits,
            "users": outcome.played,
            "active": len(outcome.experiment.learner.active),
            "best": best,
            "wrapped": outcome.wrapped,
            "final_realised_regret": outcome.final_realised,
            "bits_per_user": outcome.bits / max(1, outcome.played),
            "best_mean_gap": None if gaps is None or best is None else float(gaps[best]),
            "lower_bound": self.lower_bound(outcome),
            **({} if self.guardrail is None else {"paused": outcome.experiment.paused}),
        }

    def lower_bound(self, outcome: RunOutcome) -> float | None:
        """The nearly inevitable regret on bits at this horizon; None with a guardrail.

        For a guarantee that is not pure, it is the bound without privacy.
        """
        from tacit.bandits.arms.divergence import least_regret
        from tacit.privacy import PureDP

        if outcome.means is None or not self.binary or self.guardrail is not None:
            return None
        guarantee = outcome.experiment.guarantee
        epsilon = guarantee.epsilon if isinstance(guarantee, PureDP) else float("inf")
        return least_regret(outcome.means.tolist(), self.horizon, epsilon)
