"""Linear bandit problems: the problem, its privacy and its simulated environment."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from tacit.errors import TacitError, positive, probability

if TYPE_CHECKING:
    import numpy as np

    from tacit.algorithms.run_outcome import RunOutcome
    from tacit.environments.contract import World
    from tacit.privacy import ApproximateDP, PureDP

Reports = Literal["parameters", "actions"]


@dataclass(frozen=True)
class LinearPrivacy(Checked):
    """The requested guarantee of a linear bandit, and the reports that it protects.

    Parameters
    ----------
    epsilon, delta, participations
        The guarantee; δ = 0 for a pure one. ε covers all participations of one participant.
    reports, norm, noise
        What clients report, the largest length of the parameter, and the kind of shared noise.

    Examples
    --------
    >>> LinearPrivacy(epsilon=0.5, delta=0).target.short
    '(0.5, 0)-DP'
    """

    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float = option(DEFAULT_DELTA, "Delta of the guarantee; 0 for a pure one.")
    participations: int = option(
        1, "How often one participant may take part; epsilon covers all participations."
    )
    noise: Noise = option("skellam", f"Noise to share: {', '.join(get_args(Noise))}.")
    reports: Reports | None = option(
        None,
        "Clients report fitted parameters, or their average for each of the actions; parameters "
        "by default where delta > 0.",
    )
    norm: float = option(1.0, "Largest length of the parameter.")

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, "for no privacy use dpe or pe")
        probability("delta", self.delta, "use delta 0 for a pure guarantee", zero=True)
        self._check_counts(participations=1)
        self._check_words()
        positive("norm", self.norm, "the parameter's largest length, such as 1")

    @property
    def target(self) -> PureDP | ApproximateDP:
        """The requested guarantee."""
        from tacit.privacy import ApproximateDP, PureDP

        often = self.participations
        if self.delta == 0:
            return PureDP(self.epsilon, participations=often)
        return ApproximateDP(self.epsilon, self.delta, participations=often)


@dataclass(frozen=True)
class LinearEnvironment(Checked):
    """The simulated action set: random actions, or a covering of the ball."""

    dimension: int = option(20, "Dimension of actions.")
    actions: int = option(1000, "Number of actions.")
    covering: float | None = option(
        None, "Actions that cover the ball at this distance, instead of random ones."
    )

    def __post_init__(self) -> None:
        self._check_counts(dimension=2, actions=2)


@dataclass(frozen=True)
class LinearProblem(Problem):
    """A linear bandit problem: options are actions in the unit ball, rewards in [-bound, bound].

    Parameters
    ----------
    horizon : int
        Number of rounds.
    alpha, client_std, population, fixed_clients
        Clients: growth of their number per phase, how much they differ, and their number.
    bound, failure_probability, constants
        Largest absolute reward, error probability, and exact or printed constants.
    privacy : LinearPrivacy
        The requested guarantee.
    environment : LinearEnvironment
        The simulated action set.
    distributed : bool
        Whether participants are clients who observe a whole phase, or try one option once each; an
        algorithm sets it.
    table : array-like, optional
        Features of the options, one row each.

    Examples
    --------
    >>> LinearProblem.of(dimension=5, epsilon=0.5, delta=0).privacy.target.short
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

    horizon: int = option(1_000_000, "Number of rounds.")
    alpha: float = option(0.8, "How fast the number of clients per phase grows.")
    client_std: float = option(0.1, "Standard deviation of parameters between clients.")
    bound: float = option(1.0, "Largest absolute reward.")
    constants: Constants = option("tight", "Exact constants (tight), or those of the paper.")
    failure_probability: float = option(0.05, "Probability that the best action is dropped.")
    population: int | None = option(None, "Number of all clients; no limit by default.")
    fixed_clients: int | None = option(
        None, "Clients of every phase; by default as many as send no more numbers than dpe."
    )
    privacy: LinearPrivacy = group(LinearPrivacy)
    environment: LinearEnvironment = group(LinearEnvironment)
    distributed: bool = True
    table: Any = None

    def __post_init__(self) -> None:
        self._check_counts(horizon=1, population=1)
        self._check_words()
        if self.privacy.reports == "parameters" and not self.fits:
            raise TacitError(
                "reports is parameters; they need delta > 0 and tight constants: change these, or "
                "let clients report actions"
            )

    @property
    def fits(self) -> bool:
        """Whether clients report fitted parameters."""
        tight = self.constants == "tight"
        return self.privacy.reports != "actions" and self.privacy.delta > 0 and tight

    def start(self, seed: int, world: World | None) -> Start:
        """One generator for the instance, another for participants and noise."""
        import numpy as np

        first, rng = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        return Start(self.world(first) if world is None else world.fresh(rng), rng, rng)

    def world(self, rng: np.random.Generator) -> World:
        """A random instance."""
        from tacit.environments.population import random_population, random_shared

        drawn = self.environment
        how: dict[str, Any] = {"bound": self.bound, "rng": rng, "cover": drawn.covering}
        if not self.distributed:
            return random_shared(drawn.dimension, drawn.actions, **how)
        clients: dict[str, Any] = {"client_std": self.client_std, "size": self.population}
        return random_population(drawn.dimension, drawn.actions, **clients, **how)

    def for_environment(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """Give the learner the actions.

        Raises
        ------
        TacitError
            If the environment is not one of linear bandits.
        """
        from tacit.environments.population import LinearWorld

        if not isinstance(world, LinearWorld):
            raise TacitError(
                f"environment is {type(world).__name__}: must be an environment of linear bandits"
            )
        return replace(self, table=world.actions)

    def record(self, outcome: RunOutcome) -> dict[str, Any]:
        """The metrics of a linear run."""
        learner, gaps = outcome.experiment.learner, outcome.gaps
        kept = gaps is not None and int(gaps.argmin()) in learner.active
        return {
            "phases": outcome.released,
            "clients": outcome.participants,
            "reals": outcome.reals,
            "communication": outcome.bits,
            "bits_per_user": outcome.bits / outcome.participants if outcome.participants else 0.0,
            "active": len(learner.active),
            "best": learner.best(),
            "best_kept": float(kept),
            "guarantee": outcome.guarantee.to_data() if outcome.guarantee else None,
        }
