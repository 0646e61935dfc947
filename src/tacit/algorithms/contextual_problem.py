"""Contextual bandit problems: which option is best for whom, without seeing who."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from tacit.algorithms.problems import DEFAULT_DELTA, Checked, Problem, Start, group, option
from tacit.contextual.corners import MOST_CORNERS, corner_count, squared_lengths
from tacit.contextual.feature_maps import FeatureMap
from tacit.errors import TacitError, one_of, positive, probability, require
from tacit.trust import TrustModel

if TYPE_CHECKING:
    import numpy as np

    from tacit.algorithms.run_outcome import RunOutcome
    from tacit.environments.contract import World
    from tacit.privacy import ApproximateDP, PureDP

StatisticKind = Literal["tables", "corners", "moments"]
Contexts = Literal["random", "interactions", "segments"]
CONTEXTUAL_TRUSTS = (
    TrustModel.TWO_SERVERS,
    TrustModel.SECURE_AGGREGATION,
    TrustModel.CENTRAL,
    TrustModel.SHUFFLER,
    TrustModel.LOCAL,
)
MOST_CELLS = 80  # of context and option, up to which tables are the default
COMPARABLE = 1.25  # times the noise of moments, up to which corners are the default
REAL_LEVELS = 16  # of rewards that are not bits


@dataclass(frozen=True)
class ContextualPrivacy(Checked):
    """The requested guarantee of a contextual experiment; each participant comes once.

    Examples
    --------
    >>> ContextualPrivacy(epsilon=0.5).target("tables").short
    '(0.5, 0)-DP'
    """

    epsilon: float = option(1.0, "Epsilon of the guarantee.")
    delta: float | None = option(
        None, f"Delta of the guarantee; by default {DEFAULT_DELTA:g} for moments, else 0."
    )
    trust: str = option(CONTEXTUAL_TRUSTS[0].value, f"Trust model: {', '.join(CONTEXTUAL_TRUSTS)}.")

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, "for no privacy use contextual-thompson")
        if self.delta is not None:
            probability("delta", self.delta, "leave delta out for tables", zero=True)
        one_of("trust", self.trust, CONTEXTUAL_TRUSTS)

    def target(self, statistic: StatisticKind) -> PureDP | ApproximateDP:
        """The guarantee to meet with this statistic."""
        from tacit.privacy import ApproximateDP, PureDP

        if statistic == "corners":
            return PureDP(self.epsilon)  # implies every delta
        if statistic == "tables":
            if self.delta and self.trust == TrustModel.SHUFFLER:
                return ApproximateDP(float(self.epsilon), self.delta)
            if self.delta:
                raise TacitError(
                    f"delta is {self.delta:g}: must be left out for tables, whose guarantee is "
                    "pure. For a delta use --statistic moments."
                )
            return PureDP(self.epsilon)
        if self.delta == 0:
            raise TacitError(
                "delta is 0: must be above 0 for moments, whose noise is Gaussian. Leave delta out "
                "for 1e-6, or use --statistic tables."
            )
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        return ApproximateDP(float(self.epsilon), delta)


@dataclass(frozen=True)
class ContextualEnvironment(Checked):
    """The simulated contexts and rewards."""

    contexts: Contexts = option(
        "random", "Simulated contexts: random features, dummies with interactions, or segments."
    )
    dimension: int = option(8, "Number of features.")
    segments: int = option(20, "Number of segments, with segments.")

    def __post_init__(self) -> None:
        self._check_words()
        self._check_counts(dimension=2, segments=2)

    def world(self, options: int, rng: np.random.Generator) -> World:
        """A random instance."""
        from tacit.environments.contextual import random_linear, random_segments

        if self.contexts == "segments":
            return random_segments(self.segments, options, rng)
        return random_linear(self.contexts, options, self.dimension, rng)


@dataclass(frozen=True)
class ContextualProblem(Problem):
    """A contextual problem: each participant has a context, and devices choose the option.

    Parameters
    ----------
    arms, horizon : int
        Number of options and of participants.
    statistic : {"tables", "corners", "moments"}, optional
        What devices report; by default tables for categories with up to 80 cells of context and
        option, else corners if they have at most 1.25 times the noise of moments.
    first_round, growth
        Participants of the first round, and the factor between rounds.
    evaluation : float
        Share of participants who get one option for everybody, by which the gain is measured.
    privacy : ContextualPrivacy
        The requested guarantee.
    environment : ContextualEnvironment
        The simulated contexts and rewards.
    features : FeatureMap, optional
        The public feature map of contexts and options.
    binary : bool
        Whether all rewards are 0 or 1.
    levels : int, optional
        Levels of a reward, the same in every round, where terms fix them.
    metrics : int
        Numbers of an answer: 2 with a guardrail.
    missing, dishonest : float
        Shares of a round that may drop out, or omit their noise.
    scaled : bool
        Whether the feature map is scaled already to features of length at most 1.
    smallest : int
        Participants of the smallest round.
    exploration : float
        Share of every segment that gets an option at random.
    labels : tuple of str
        Names of the options.

    Examples
    --------
    >>> problem = ContextualProblem(arms=3, horizon=10_000)
    >>> problem.arms, problem.metrics
    (3, 1)
    """

    family: ClassVar[str] = "contextual"
    extras: ClassVar[tuple[str, ...]] = (
        "bits_per_user",
        "batches",
        "reward_mean",
        "single_regret",
        "uniform_regret",
        "wrapped",
    )

    arms: int = option(5, "Number of options.")
    statistic: StatisticKind | None = option(
        None,
        "What devices report: tables, corners or moments; by default tables up to "
        f"{MOST_CELLS} cells of context and option, else the less noisy.",
    )
    first_round: int | None = option(
        None, "Participants of the first round; by default enough to see through the noise."
    )
    growth: float | None = option(
        None, "Factor between the sizes of rounds; 1.4 for tables, 1.5 for corners, 2 for moments."
    )
    evaluation: float = option(
        0.0, "Share of participants who get one option for everybody, to measure the gain."
    )
    privacy: ContextualPrivacy = group(ContextualPrivacy)
    environment: ContextualEnvironment = group(ContextualEnvironment)
    features: FeatureMap | None = None
    binary: bool = True
    levels: int | None = None
    metrics: int = 1
    missing: float = 0.0
    dishonest: float = 0.0
    scaled: bool = False
    smallest: int = 1
    exploration: float = 0.0
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_counts(arms=2, horizon=1, smallest=1, first_round=1)
        self._check_words()
        if self.growth is not None:
            growing = 1 < self.growth < float("inf")
            require(growing, "growth", f"{self.growth:g}", "above 1, such as 1.5")
        remedy = "the share of participants who get one option for everybody, such as 0.05"
        probability("evaluation", self.evaluation, remedy, zero=True)

    @property
    def precision(self) -> int:
        """Levels above 0 of a reported reward."""
        return self.levels or (1 if self.binary else REAL_LEVELS)

    @property
    def names(self) -> tuple[str, ...]:
        """The options' names."""
        return () if self.features is None else self.features.options

    def chosen(self) -> tuple[StatisticKind, str]:
        """The statistic that devices report, and the reason for the choice.

        Raises
        ------
        TacitError
            If there is no feature map, or tables are requested for contexts with numbers.
        """
        features = self.features
        if features is None:
            raise TacitError("features are missing: a contextual experiment needs a feature map")
        cells = features.segments * len(features.options)
        if self.statistic == "tables" and not cells:
            raise TacitError(
                "statistic is tables, but the context has numbers: must be categories only. Use "
                "--statistic moments."
            )
        if self.statistic is not None:
            return self.statistic, "requested"
        if 0 < cells <= MOST_CELLS:
            return "tables", f"{cells} cells of context and option, at most {MOST_CELLS}"
        many = f"{cells} cells of context and option, more than {MOST_CELLS}"
        return self._less_noisy(features, many if cells else "the context has numbers")

    def _less_noisy(self, features: FeatureMap, reason: str) -> tuple[StatisticKind, str]:
        """Corners or moments, by the variance of the noise in x (y - ½), which needs no data.

        Noise in corners that a policy hardly plays is weighted down, that in moments is not. So
        corners may have a little more.
        """
        if corner_count(features) > MOST_CORNERS:
            return "moments", reason
        if self.privacy.delta == 0:
            return "corners", f"{reason}; moments need a delta"
        from tacit.protocols.statistics import CornerStatistic, MomentStatistic

        corners = CornerStatistic.of(features)
        moments = MomentStatistic(features.dimension, features.resolution, self.precision)
        cell = corners.noise(self.privacy.target("corners"))[0].variance
        entry = moments.noise(self.privacy.target("moments"))[0].variance * moments.units[0] ** 2
        part = float(cell / 2 * squared_lengths(features) / features.dimension / entry)
        kind: StatisticKind = "corners" if part <= COMPARABLE else "moments"
        return kind, f"{reason}; corners have {part:.2g} times the noise of moments"

    def start(self, seed: int, world: World | None) -> Start:
        """One generator for the instance, one for participants, one for noise.

        Raises
        ------
        TacitError
            If the environment has no contexts.
        """
        import numpy as np

        from tacit.bandits.contextual.ellipsoid import scaled_map
        from tacit.environments.contextual import ContextualWorld

        first, rng, noise = (
            np.random.default_rng(s) for s in np.random.SeedSequence([seed, 0xC7]).spawn(3)
        )
        found = self.environment.world(self.arms, first) if world is None else world.fresh(rng)
        if not isinstance(found, ContextualWorld):
            raise TacitError(
                f"environment is {type(found).__name__}: must be an environment of contexts, such "
                "as ContextFunction"
            )
        if found.features is None:
            found = found.mapped(scaled_map(found.fields, found.names, found.matrices))
        return Start(found, rng, noise)

    def for_environment(self, world: World, seed: int) -> Self:  # noqa: ARG002
        """Take over the environment's public feature map.

        Raises
        ------
        TacitError
            If the environment has no contexts.
        """
        from tacit.environments.contextual import ContextualWorld

        if not isinstance(world, ContextualWorld) or world.features is None:
            raise TacitError(
                f"environment is {type(world).__name__}: must be an environment of contexts"
            )
        arms = len(world.features.options)
        return replace(self, features=world.features, arms=arms, binary=world.binary)

    def record(self, outcome: RunOutcome) -> dict[str, Any]:
        """The metrics of a contextual run."""
        notes = outcome.notes
        reports = max(1.0, float(notes.get("reports", 0.0)))
        single = outcome.single
        statistic, reason = self.chosen()
        return {
            "batches": outcome.released,
            "users": outcome.played,
            "bits_per_user": outcome.bits / max(1, outcome.played),
            "wrapped": outcome.wrapped,
            "reward_mean": float(notes.get("reward", 0.0)) / reports,
            "single_regret": None if single is None else single[0] * outcome.played,
            "uniform_regret": None if single is None else single[1] * outcome.played,
            "statistic": f"{statistic} ({reason})",
            # instances of other seeds may have another statistic
            "guarantee": outcome.guarantee.to_data() if outcome.guarantee else None,
        }
