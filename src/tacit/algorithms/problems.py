"""Problems that named algorithms solve; their fields are the options of API and command line.

A problem also provides the default simulated environment and the metrics of a run of its family.
The module imports NumPy only when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from tacit.algorithms.registry import option
from tacit.errors import TacitError, integer, positive, probability
from tacit.trust import TrustModel

if TYPE_CHECKING:
    import numpy as np

    from tacit.algorithms.run_totals import RunTotals
    from tacit.environments.contract import Environment, World
    from tacit.privacy import ApproximateDP, PureDP

Constants = Literal["paper", "tight"]
Budget = tuple[float, float]  # (ε, δ)
DEFAULT_DELTA = 1e-6
MOST = 10**15  # most participants that 64-bit generators can draw
LARGEST_BUDGET = 10_000  # largest epsilon of a silo
CONSTANTS = ("tight", "paper")
TRUSTS = (
    TrustModel.SECURE_AGGREGATION,
    TrustModel.SHUFFLER,
    TrustModel.CENTRAL,
    TrustModel.LOCAL,
    TrustModel.TWO_SERVERS,
)
THROUGH = ("two-servers", "verified")
REWARDS = ("bernoulli", "gaussian", "beta")
INDICES = ("chernoff", "variance")
BETTER = ("lower", "higher")
NOISES = ("discrete-gaussian", "skellam")
MODES = ("rigorous", "calibrated")
SCHEDULES = ("geometric", "fixed")
REPORTS = ("parameters", "actions")
ARMS, LINEAR, SILOS = "Arms", "Linear bandits", "Federated bandits"


@dataclass(frozen=True)
class Start:
    """A run before its first round: its environment and its random generators."""

    world: World
    rng: np.random.Generator
    noise: np.random.Generator


@dataclass(frozen=True)
class Problem:
    """Base class of problems. A run sets `learner_seed` for learners that draw random numbers."""

    family: ClassVar[str]
    per: ClassVar[str] = "participant"
    extras: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The fields that are options, by name."""
        return {entry.name: entry for entry in fields(cls) if "help" in entry.metadata}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the options, if given."""
        return ()

    def start(self, seed: int, world: World | None) -> Start:  # noqa: ARG002
        """The environment and the generators of one run."""
        raise TacitError(f"{type(self).__name__} says nowhere where rewards come from ({seed})")

    def fitted(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """This problem with what the learner must know of the environment, and with its seed."""
        return self

    def record(self, outcome: RunTotals) -> dict[str, Any]:  # noqa: ARG002
        """The columns of a run's record beyond those of all families."""
        return {}


def check_counts(problem: Problem, **least: int) -> None:
    """Check integers (1e6 is one) against their least values and an upper limit."""
    for name, at_least in least.items():
        remedy = "a bandit chooses among two or more" if name == "arms" else ""
        value = integer(name, getattr(problem, name), at_least=at_least, remedy=remedy)
        if value > MOST:
            raise TacitError(f"{name} is {value:.4g}; use at most {MOST:.0e}, which can be drawn")
        object.__setattr__(problem, name, value)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Reject a value that is not in a list."""
    if value not in allowed:
        raise TacitError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


@dataclass(frozen=True)
class ArmsProblem(Problem):
    """A multi-armed bandit problem.

    An algorithm ignores the fields that are not among its options.

    Parameters
    ----------
    arms, horizon : int
        Number of options and of participants.
    epsilon, delta, participations
        The guarantee; without δ it is pure. ε covers all participations of one participant.
    trust, through : str
        Trust model, and how reports reach two servers.
    constants : {"tight", "paper"}
        Exact constants, or those of the paper.
    dropout, corrupt, min_batch_size
        Tolerated fractions of missing and of corrupted participants, and the minimum batch size,
        where participants add shares of noise.
    control_share, guardrail, guardrail_better, guardrail_margin
        The control's least share of participants, and a second metric that pauses worse options.
    rewards, instance, means, guardrail_means
        The simulated environment.
    **others
        Every option has a help text: see `ArmsProblem.options()`.

    Raises
    ------
    TacitError
        If a value is out of range or contradicts another.

    Examples
    --------
    >>> problem = ArmsProblem(arms=3, horizon=1e4, epsilon=0.5)
    >>> problem.horizon, problem.pure.short, problem.target.short
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

    arms: int = option(10, "Number of options.", panel=ARMS)
    horizon: int = option(1_000_000, "Number of participants.")
    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float | None = option(None, "Delta of the guarantee; leave it out for a pure one.")
    trust: str = option(TRUSTS[0].value, f"Whom to trust: {', '.join(TRUSTS)}.", panel=ARMS)
    through: str | None = option(
        None,
        "How reports reach two servers: two-servers, or verified, where those that are not in "
        "range are dropped.",
        panel=ARMS,
    )
    constants: str = option("tight", "Exact constants (tight), or those of the paper.")
    index: str = option("chernoff", "Rigorous index, or a normal approximation.", panel=ARMS)
    growth: float = option(4.0, "Factor between the sizes of rounds.", panel=ARMS)
    rounds: int | None = option(
        None, "Largest number of rounds, where the horizon is known.", panel=ARMS
    )
    failure_probability: float = option(
        0.1, "Probability with which the best option may be dropped."
    )
    scale: int = option(10, "Scale s of the paper's Skellam and Gaussian noise.", panel=ARMS)
    participations: int = option(1, "How often one person may take part; epsilon is for all.")
    dropout: float = option(
        0.0, "Part of a round that may fail to report; shares are made so that the promise holds."
    )
    corrupt: float = option(
        0.0, "Part of a round that may add no noise; shares are made so that the promise holds."
    )
    min_batch_size: int = option(
        64, "Minimum batch size: participants of the smallest round, where all share the noise."
    )
    control_share: float = option(
        0.0,
        "Least share of participants of the first option, the control, and of every other one "
        "until it is shown to be worse.",
        panel=ARMS,
    )
    guardrail: str | None = option(
        None,
        "Name of a second metric; an option whose mean is clearly worse than the control's is "
        "paused. Needs a control share.",
        panel=ARMS,
    )
    guardrail_better: str = option("lower", "What is better: lower or higher.", panel=ARMS)
    guardrail_margin: float = option(
        0.0, "How much worse than the control the guardrail may be.", panel=ARMS
    )
    guardrail_means: tuple[float, ...] | None = option(
        None, "Means of the guardrail, comma-separated, one per option.", panel=ARMS, world=True
    )
    anytime: bool = option(False, "Do not tell the learner the horizon.", panel=ARMS)
    rewards: str = option("bernoulli", f"Rewards: {', '.join(REWARDS)}.", panel=ARMS, world=True)
    instance: str = option("easy", "Random means: easy, hard or rare.", panel=ARMS, world=True)
    means: tuple[float, ...] | None = option(
        None, "Mean rewards, comma-separated, instead of random ones.", panel=ARMS, world=True
    )
    binary: bool = False
    levels: int | None = None  # the same in every round, where terms fix them
    smallest: int = 1  # minimum batch size with two servers
    control: int = 0  # index of the control
    learner_seed: int = 0
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.means is not None:
            object.__setattr__(self, "means", tuple(self.means))
            object.__setattr__(self, "arms", len(self.means or ()))
            if self.arms < 2 or not all(0 <= mean <= 1 for mean in self.means or ()):
                shown = ",".join(f"{mean:g}" for mean in self.means or ())
                raise TacitError(
                    f"means is {shown or 'empty'}; give two or more numbers in [0, 1]: 0.31,0.47"
                )
        check_counts(self, arms=2, horizon=1, scale=1, participations=1, min_batch_size=2)
        if self.horizon < self.arms:
            raise TacitError(
                f"horizon is {self.horizon}, fewer participants than the {self.arms} arms: drop "
                "arms or recruit more participants"
            )
        positive(
            "epsilon",
            self.epsilon,
            "a guarantee needs epsilon > 0; for no privacy use ucb1, klucb, thompson or "
            "successive-elimination",
        )
        if self.delta is not None:
            probability("delta", self.delta, "leave delta out for a pure guarantee", zero=True)
        if not 1 < self.growth < float("inf"):
            raise TacitError(
                f"growth is {self.growth:g}; rounds must grow: use more than 1, such as 4"
            )
        if self.rounds is not None:
            check_counts(self, rounds=1)
        remedy = "the probability with which the best option may be dropped, such as 0.1"
        probability("failure_probability", self.failure_probability, remedy)
        remedy = "the part of a round that may fail to report, such as 0.1"
        probability("dropout", self.dropout, remedy, zero=True)
        probability("corrupt", self.corrupt, "the part that may lie, such as 0.1", zero=True)
        remedy = "the part of all participants that get the control, such as 0.2"
        probability("control_share", self.control_share, remedy, zero=True)
        one_of("constants", self.constants, CONSTANTS)
        one_of("trust", self.trust, TRUSTS)
        if self.through is not None:
            one_of("through", self.through, THROUGH)
            if self.trust != TrustModel.TWO_SERVERS:
                raise TacitError(
                    f"through is {self.through!r}, which takes two servers, and trust is "
                    f"{self.trust!r}: use trust two-servers, or leave through out"
                )
        one_of("rewards", self.rewards, REWARDS)
        one_of("index", self.index, INDICES)
        self._check_guardrail()

    def _check_guardrail(self) -> None:
        one_of("guardrail_better", self.guardrail_better, BETTER)
        remedy = "how much worse than the control is tolerated, such as 0.01"
        probability("guardrail_margin", self.guardrail_margin, remedy, zero=True)
        if self.guardrail_means is not None:
            object.__setattr__(self, "guardrail_means", tuple(self.guardrail_means))
        if self.guardrail is None:
            if self.guardrail_means is not None or self.guardrail_margin:
                raise TacitError(
                    "guardrail has no name, but means or a margin: name it, such as errors"
                )
            return
        if not self.control_share:
            raise TacitError(
                f"guardrail is {self.guardrail!r}, which compares options with the control, and "
                "control_share is 0: give the control a share, such as 0.2"
            )
        means = self.guardrail_means
        if means is not None and (
            len(means) != self.arms or not all(0 <= mean <= 1 for mean in means)
        ):
            raise TacitError(
                f"guardrail_means is {','.join(f'{mean:g}' for mean in means)}; give "
                f"{self.arms} numbers in [0, 1], one for each option"
            )

    @property
    def metrics(self) -> int:
        """How many numbers each participant reports."""
        return 1 if self.guardrail is None else 2

    @property
    def names(self) -> tuple[str, ...]:
        """The names from the environment, if it has any."""
        return self.labels

    @property
    def target(self) -> ApproximateDP:
        """(ε, δ), for algorithms that need a δ."""
        from tacit.privacy import ApproximateDP

        if self.delta == 0:
            raise TacitError(
                "delta is 0; this algorithm has no guarantee without exceptions: leave delta out "
                f"for {DEFAULT_DELTA:g}, or use dist-dp-se, shuffle-dp-se or private-klucb, which "
                "are pure"
            )
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        return ApproximateDP(self.epsilon, delta, participations=self.participations)

    @property
    def pure(self) -> PureDP:
        """(ε, 0), for algorithms that need no δ."""
        from tacit.privacy import PureDP

        return PureDP(self.epsilon, participations=self.participations)

    @property
    def each(self) -> float:
        """ε of one number of one participation, under basic composition."""
        return self.epsilon / (self.participations * self.metrics)

    @property
    def people(self) -> dict[str, float]:
        """The tolerated dropout and corruption, as arguments of protocol factories."""
        return {"dropout": self.dropout, "corrupt": self.corrupt}

    @property
    def printed(self) -> float | None:
        """The failure probability that sets the papers' moduli; None in tight constants."""
        return self.failure_probability if self.constants == "paper" else None

    def refuse_losses(self, reason: str, *names: str) -> None:
        """Reject dropout or corruption that an algorithm does not tolerate.

        Its noise is not shared, or its rounds need every report.
        """
        for name, value in self.people.items():
            if value and name in (names or self.people):
                raise TacitError(
                    f"{name} is {value:g}; {reason}: leave it out, or use dist-dp-se, vb-sdp-ae or "
                    "private-klucb in tight constants"
                )

    def start(self, seed: int, world: World | None) -> Start:
        """One generator for participants and noise; a fresh instance unless means are given."""
        import numpy as np

        rng = np.random.default_rng([seed, 0x7AC17])
        return Start(self.world(seed) if world is None else world.fresh(rng), rng, rng)

    def world(self, seed: int) -> World:
        """The instance of a seed."""
        from tacit.environments import Bernoulli, Beta, ClippedGaussian, Guarded, instance_means

        kinds = {"bernoulli": Bernoulli, "gaussian": ClippedGaussian, "beta": Beta}
        means = self.means or tuple(instance_means(self.instance, self.arms, seed).tolist())
        world: Environment = kinds[self.rewards](means)
        if self.guardrail is None:
            return world
        if self.guardrail_means is None:
            raise TacitError(
                f"guardrail is {self.guardrail!r}, but nobody says what it is: give "
                "guardrail_means, one for each option"
            )
        return Guarded(world, Bernoulli(self.guardrail_means))

    def fitted(self, world: World, seed: int) -> Self:
        """Check the environment against the problem, and take over whether rewards are bits."""
        from tacit.environments.contract import Environment
        from tacit.environments.recorded import RecordedRun, check_horizon

        if isinstance(world, RecordedRun):
            check_horizon(self.horizon, world.world)
        if not isinstance(world, Environment):
            raise TacitError(f"{type(world).__name__} is no environment of arms")
        if world.arms != self.arms:
            raise TacitError(
                f"arms is {self.arms}, but the environment has {world.arms}: leave arms out, or "
                "bring an environment of that many"
            )
        if world.metrics != self.metrics:
            raise TacitError(
                f"the environment has {world.metrics} metrics, but {self.metrics} are asked for: "
                "give guardrail a name and the environment a second metric "
                "(environments.Guarded), or neither"
            )
        return replace(self, binary=world.binary, learner_seed=seed, labels=world.names)

    def record(self, outcome: RunTotals) -> dict[str, Any]:
        """The metrics of a multi-armed run."""
        best, gaps = outcome.experiment.learner.best(), outcome.gaps
        return {
            "realised": outcome.realised,
            "batches": outcome.opened,
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

    def lower_bound(self, outcome: RunTotals) -> float | None:
        """The nearly inevitable regret on bits at this horizon; None with a guardrail.

        For a guarantee that is not pure, it is the bound without privacy.
        """
        from tacit.bandits.arms.divergence import least_regret
        from tacit.privacy import PureDP

        if outcome.means is None or not self.binary or self.guardrail is not None:
            return None
        promised = outcome.experiment.guarantee
        epsilon = promised.epsilon if isinstance(promised, PureDP) else float("inf")
        return least_regret(outcome.means.tolist(), self.horizon, epsilon)


@dataclass(frozen=True)
class LinearProblem(Problem):
    """A linear bandit problem: options are actions in the unit ball, rewards in [-bound, bound].

    Parameters
    ----------
    dimension, actions, covering
        The action set: random actions, or a covering of the ball.
    horizon : int
        Number of rounds.
    epsilon, delta, participations
        The guarantee; δ = 0 for a pure one. ε covers all participations of one participant.
    alpha, client_std, population, fixed_clients
        Clients: growth of their number per phase, how much they differ, and their number.
    reports, norm, noise
        What clients report, the largest length of the parameter, and the kind of shared noise.
    bound, failure_probability, constants
        Largest absolute reward, error probability, and exact or printed constants.
    distributed : bool
        Whether participants are clients who observe a whole phase, or try one option once each; an
        algorithm sets it.

    Examples
    --------
    >>> LinearProblem(dimension=5, epsilon=0.5, delta=0).target.short
    '(0.5, 0)-DP'
    """

    family: ClassVar[str] = "linear"
    per: ClassVar[str] = "round"
    extras: ClassVar[tuple[str, ...]] = (
        "bits_per_user",
        "communication",
        "reals",
        "clients",
        "phases",
        "active",
        "best_kept",
    )

    dimension: int = option(20, "Dimension of actions.", panel=LINEAR, world=True)
    actions: int = option(1000, "Number of actions.", panel=LINEAR, world=True)
    covering: float | None = option(
        None,
        "Actions that cover the ball at this distance, instead of random ones.",
        panel=LINEAR,
        world=True,
    )
    horizon: int = option(1_000_000, "Number of rounds.")
    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float = option(DEFAULT_DELTA, "Delta of the guarantee; 0 for a pure one.")
    participations: int = option(1, "How often one person may take part; epsilon is for all.")
    alpha: float = option(0.8, "How fast the number of clients per phase grows.", panel=LINEAR)
    client_std: float = option(0.1, "How much clients differ.", panel=LINEAR)
    bound: float = option(1.0, "Largest absolute reward.", panel=LINEAR)
    constants: str = option("tight", "Exact constants (tight), or those of the paper.")
    failure_probability: float = option(
        0.05, "Probability with which the best action may be dropped."
    )
    population: int | None = option(
        None, "How many clients there are; no limit by default.", panel=LINEAR
    )
    fixed_clients: int | None = option(
        None, "Clients of every phase; by default as many as dpe's sums cost.", panel=LINEAR
    )
    noise: str = option("skellam", f"Noise to share: {', '.join(NOISES)}.")
    reports: str | None = option(
        None,
        "What a client reports: its fitted parameters, or its average for each of the actions; by "
        "default parameters where delta > 0.",
        panel=LINEAR,
    )
    norm: float = option(1.0, "Largest length of the parameter.", panel=LINEAR)
    distributed: bool = True
    table: Any = None

    def __post_init__(self) -> None:
        check_counts(self, dimension=2, actions=2, horizon=1, participations=1)
        one_of("constants", self.constants, CONSTANTS)
        one_of("noise", self.noise, NOISES)
        positive(
            "epsilon", self.epsilon, "a guarantee needs epsilon > 0; for no privacy use dpe or pe"
        )
        remedy = "use delta = 0 for a guarantee without exceptions"
        probability("delta", self.delta, remedy, zero=True)
        positive("norm", self.norm, "the parameter's largest length, such as 1")
        if self.population is not None:
            integer("population", self.population, at_least=1)
        if self.reports is not None:
            one_of("reports", self.reports, REPORTS)
        if self.reports == "parameters" and (self.delta == 0 or self.constants == "paper"):
            raise TacitError(
                "parameters are hidden by nearly Gaussian noise, which needs a delta, and are not "
                "in the paper: give delta > 0 in tight constants, or let clients report actions"
            )

    @property
    def fits(self) -> bool:
        """Whether clients report fitted parameters."""
        return self.reports != "actions" and self.delta > 0 and self.constants == "tight"

    @property
    def target(self) -> PureDP | ApproximateDP:
        """The requested guarantee."""
        from tacit.privacy import ApproximateDP, PureDP

        often = self.participations
        if self.delta == 0:
            return PureDP(self.epsilon, participations=often)
        return ApproximateDP(self.epsilon, self.delta, participations=often)

    def start(self, seed: int, world: World | None) -> Start:
        """One generator for the instance, another for participants and noise."""
        import numpy as np

        first, rng = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        return Start(self.world(first) if world is None else world.fresh(rng), rng, rng)

    def world(self, rng: np.random.Generator) -> World:
        """A random instance."""
        from tacit.environments.population import random_population, random_shared

        how: dict[str, Any] = {"bound": self.bound, "rng": rng, "cover": self.covering}
        if not self.distributed:
            return random_shared(self.dimension, self.actions, **how)
        clients: dict[str, Any] = {"client_std": self.client_std, "size": self.population}
        return random_population(self.dimension, self.actions, **clients, **how)

    def fitted(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """Give the learner the actions."""
        from tacit.environments.population import LinearWorld

        if not isinstance(world, LinearWorld):
            raise TacitError(f"{type(world).__name__} is no environment of linear bandits")
        return replace(self, table=world.actions)

    def record(self, outcome: RunTotals) -> dict[str, Any]:
        """The metrics of a linear run."""
        learner, gaps = outcome.experiment.learner, outcome.gaps
        kept = gaps is not None and int(gaps.argmin()) in learner.active
        return {
            "phases": outcome.opened,
            "clients": outcome.participants,
            "reals": outcome.reals,
            "communication": outcome.bits,
            "bits_per_user": outcome.bits / outcome.participants if outcome.participants else 0.0,
            "active": len(learner.active),
            "best": learner.best(),
            "best_kept": float(kept),
            "guarantee": outcome.guarantee.to_data() if outcome.guarantee else None,
        }


@dataclass(frozen=True)
class SilosProblem(Problem):
    """A federated contextual bandit problem: silos that learn together.

    Parameters
    ----------
    silos, dimension, actions, horizon, sync
        Size of the problem, and the rounds between synchronisations.
    epsilon, delta, budgets
        The guarantee, or one (ε, δ) for each silo.
    participations, visits, visits_per_batch
        The guarantee covers a participant who comes `participations` times, to any silos in any
        batches; or in at most `visits` batches, at most `visits_per_batch` times in each (ZC24
        App. G.4).
    lazy, mode, schedule, norm, failure_probability, noise, constants
        How silos act and synchronise, their confidence sets, and the noise.
    deviation, data, field
        The simulated environment: synthetic, or a MSLR-WEB10K file.

    Examples
    --------
    >>> SilosProblem(silos=2, budgets=((0.5, 1e-6), (1.0, 1e-5))).target.short
    '(1, 1e-05)-DP'
    """

    family: ClassVar[str] = "federated"
    per: ClassVar[str] = "round"
    extras: ClassVar[tuple[str, ...]] = (
        "group_regret_per_round",
        "repairs",
        "communication",
        "bits_per_user",
        "clipped",
    )

    silos: int = option(None, "Number of silos; 100, or 10 on recorded data.", panel=SILOS)
    dimension: int = option(10, "Number of features.", panel=SILOS)
    actions: int = option(100, "Actions to choose among.", panel=SILOS, world=True)
    sync: int = option(25, "Rounds between synchronisations.", panel=SILOS)
    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float = option(DEFAULT_DELTA, "Delta of the guarantee.")
    horizon: int = option(10_000, "Number of rounds.")
    constants: str = option("tight", "Exact constants (tight), or those of the paper.")
    lazy: bool = option(
        True, "Silos decide from private sums only, or also from raw data.", panel=SILOS
    )
    failure_probability: float = option(
        None, "Probability with which a confidence set may fail; 0.01, or 0.05 where calibrated."
    )
    participations: int = option(1, "How often one person may take part; epsilon is for all.")
    visits: int = option(1, "Batches that one person may be in.", panel=SILOS)
    visits_per_batch: int = option(1, "How often in each of them.", panel=SILOS)
    noise: str = option("discrete-gaussian", f"Noise to share: {', '.join(NOISES)}.")
    mode: str = option(
        "rigorous",
        "Confidence of lazy silos: rigorous (proved, for all rounds and actions at once), or "
        "calibrated (not proved: measured, for one action at a time).",
        panel=SILOS,
    )
    schedule: str | None = option(
        None,
        "When to synchronise: geometric (by default where silos are lazy), or fixed, every sync "
        "rounds.",
        panel=SILOS,
    )
    norm: float = option(
        1.0,
        "Largest length of the parameter; of rewards less 1/2 where one feature is constant.",
        panel=SILOS,
    )
    deviation: float = option(
        0.25, "Standard deviation of a reward's noise.", panel=SILOS, world=True
    )
    data: str | None = option(
        None, "MSLR-WEB10K fold file instead of the synthetic instance.", panel=SILOS, world=True
    )
    budgets: tuple[float | Budget, ...] | None = option(
        None,
        "Budgets of the silos, comma-separated: 0.5,1,1 or with a delta 0.5:1e-6,1:1e-5,1:1e-5; "
        "2*1:1e-5 is two silos. Each silo's people are promised their silo's.",
        panel=SILOS,
    )
    field: str = option(
        "title", "Features of recorded data: title or body.", panel=SILOS, world=True
    )
    constant: float | None = None  # value of the last feature, where an environment declares one

    def __post_init__(self) -> None:
        self._settle_budgets()
        if self.silos is None:
            object.__setattr__(self, "silos", 100 if self.data is None else 10)
        if self.failure_probability is None:
            usual = 0.05 if self.mode == "calibrated" else 0.01
            object.__setattr__(self, "failure_probability", usual)
        check_counts(self, silos=1, dimension=2, actions=1, sync=1, visits=1, visits_per_batch=1)
        check_counts(self, participations=1)
        if self.participations > 1 and self.visits * self.visits_per_batch > 1:
            raise TacitError(
                f"participations is {self.participations}, and visits say how often in which "
                "batches: give one or the other"
            )
        remedy = (
            f"silos synchronise every {self.sync} rounds, so there must be that many; or choose a "
            "smaller sync"
        )
        integer("horizon", self.horizon, at_least=self.sync, remedy=remedy)
        check_counts(self, horizon=1)
        positive(
            "epsilon", self.epsilon, "a guarantee needs epsilon > 0; for no privacy use fedlinucb"
        )
        probability("delta", self.delta, "federated algorithms promise (epsilon, delta)-DP")
        probability("failure_probability", self.failure_probability)
        if not self.deviation >= 0:
            raise TacitError(f"deviation is {self.deviation}; a standard deviation is at least 0")
        one_of("noise", self.noise, NOISES)
        one_of("constants", self.constants, CONSTANTS)
        one_of("field", self.field, ("title", "body"))
        one_of("mode", self.mode, MODES)
        positive("norm", self.norm, "the parameter's largest length, such as 1")
        if self.schedule is not None:
            one_of("schedule", self.schedule, SCHEDULES)

    def _settle_budgets(self) -> None:
        """Check all budgets, make each a pair, and set epsilon and delta to the weakest."""
        if self.budgets is None:
            return
        pairs = tuple(_budget(place, one, self.delta) for place, one in enumerate(self.budgets))
        silos = len(pairs) if self.silos is None else self.silos
        if len(pairs) != silos or not pairs:
            raise TacitError(
                f"budgets has {len(pairs)} entries for {silos} silos: give one for each, such as "
                f"--budgets {silos}*1:1e-6"
            )
        if self.returning:
            raise TacitError(
                "budgets are for people who come once, to one silo: leave them out where people "
                "return, or leave participations and visits out"
            )
        object.__setattr__(self, "budgets", pairs)
        object.__setattr__(self, "silos", silos)
        object.__setattr__(self, "epsilon", max(epsilon for epsilon, _ in pairs))
        object.__setattr__(self, "delta", max(delta for _, delta in pairs))

    @property
    def returning(self) -> bool:
        """Whether a participant may come more than once."""
        return self.participations * self.visits * self.visits_per_batch > 1

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
    def target(self) -> ApproximateDP:
        """The requested guarantee."""
        from tacit.privacy import ApproximateDP

        return ApproximateDP(self.epsilon, self.delta)

    def start(self, seed: int, world: World | None) -> Start:
        """Separate generators for participants and noise, so all algorithms meet the same ones."""
        import numpy as np

        rng, noise = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        return Start(self.world(rng) if world is None else world.fresh(rng), rng, noise)

    def world(self, rng: np.random.Generator) -> World:
        """ZC24's synthetic instance, or a recorded one."""
        from tacit.environments.silos import Synthetic, remembered_ranking

        if self.data is not None:
            return remembered_ranking(Path(self.data), field=self.field, silos=self.silos)
        size = (self.silos, self.dimension, self.actions)
        return Synthetic.draw(*size, rng, self.deviation)

    def fitted(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """A recorded environment sets the number of silos and the dimension."""
        from tacit.environments.silos import Silos

        if not isinstance(world, Silos):
            raise TacitError(f"{type(world).__name__} is no environment of silos")
        size: dict[str, Any] = {"silos": world.silos, "dimension": world.dimension}
        return replace(self, **size, constant=world.intercept)

    def record(self, outcome: RunTotals) -> dict[str, Any]:
        """The metrics of a federated run."""
        people = self.silos * self.horizon
        notes: Mapping[str, float] = outcome.notes
        return {
            "group_regret_per_round": None
            if outcome.regret is None
            else outcome.regret[-1] / self.horizon,
            "repairs": outcome.experiment.learner.repairs,  # type: ignore[attr-defined]
            "communication": outcome.bits,
            "bits_per_user": outcome.bits / people,
            "clipped": notes.get("clipped_rewards", 0) / people,
        }


def _budget(place: int, given: float | Budget, delta: float) -> Budget:
    """(ε, δ) of one silo; where only ε is given, with the common δ."""
    pair = tuple(given) if isinstance(given, (tuple, list)) else (given, delta)
    if len(pair) != 2:
        raise TacitError(f"the budget of silo {place} is {given}; give epsilon and delta")
    positive(
        f"epsilon of silo {place}", pair[0], "its people are promised privacy: use more than 0"
    )
    if pair[0] > LARGEST_BUDGET:
        raise TacitError(
            f"epsilon of silo {place} is {float(pair[0]):g}; above {LARGEST_BUDGET:,} it hides "
            "nothing: use a smaller one"
        )
    probability(f"delta of silo {place}", pair[1], "silos promise (epsilon, delta)-DP")
    return float(pair[0]), float(pair[1])
