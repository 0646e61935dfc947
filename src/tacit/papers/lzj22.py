"""LZJ22, differentially private linear bandits with partial distributed feedback: its algorithms as
compositions.

DP-DPE and DP-PE over the trust models none, central, local, shuffle and (not in the paper) secure
aggregation. `tight` is the default: exact calibration at every ε, directional widths. `paper` has
the printed noise and widths, and says what they truly guarantee. Instances are random: seed r gives
every algorithm the same actions and the same θ*. The figure is in `tacit.papers.lzj22_figure`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.bandits.phased import (
    SETTINGS,
    DistributedElimination,
    Phase,
    PhasedElimination,
    SingleElimination,
)
from tacit.checks import TacitError, integer, positive, probability
from tacit.environments.population import (
    Population,
    SharedParameter,
    check_schedule,
    random_population,
    random_shared,
)
from tacit.papers.catalogue import Entry, register
from tacit.privacy import ApproximateDP, Guarantee, PureDP
from tacit.protocols.joint import gaussian_ratio
from tacit.protocols.levels import LevelProtocol, SecureVector, ShuffledVector
from tacit.protocols.vectors import (
    Central,
    Local,
    Plain,
    RealProtocol,
    VectorEstimate,
    VectorProtocol,
)
from tacit.simulation import Result, checkpoints_for, sweep

Trust = Literal["none", "central", "local", "shuffle", "secagg"]
Floats = npt.NDArray[np.float64]

ROUNDING = 0.03  # variance that rounding to levels may add, as a part of what is there anyway
MOST_PILOTS = 20  # runs on which the communication of dpe-fixed is matched to that of dpe
EXTRAS = ("bits_per_user", "communication", "reals", "clients", "phases", "active", "best_kept")


@dataclass(frozen=True)
class Named:
    """A named algorithm: which learner, which trust model."""

    trust: Trust
    distributed: bool
    fixed: bool = False


ALGORITHMS: dict[str, Named] = {
    "dpe": Named("none", True),
    "cdp-dpe": Named("central", True),
    "ldp-dpe": Named("local", True),
    "sdp-dpe": Named("shuffle", True),
    "secagg-dpe": Named("secagg", True),
    "dpe-fixed": Named("none", True, fixed=True),
    "pe": Named("none", False),
    "cdp-pe": Named("central", False),
    "ldp-pe": Named("local", False),
    "sdp-pe": Named("shuffle", False),
    "secagg-pe": Named("secagg", False),
}
TRUSTED = {
    "none": ("everyone with everything", "nothing"),
    "central": ("the server, to add noise", "(ε, δ) or pure DP of what the server publishes"),
    "local": ("nobody", "(ε, δ) or pure DP of each client's message"),
    "shuffle": (
        "the shuffler, to permute",
        "(ε, δ)-DP of the shuffled bits, jointly over coordinates",
    ),
    "secagg": (
        "secure aggregation, to open sums only",
        "(ε, δ) or pure DP of the opened sums, jointly over coordinates",
    ),
}
register(
    *(Entry(name, "linear", "LZJ22", *TRUSTED[named.trust]) for name, named in ALGORITHMS.items())
)


@dataclass(frozen=True)
class Configuration:
    """Everything that a run depends on besides its seed."""

    algorithm: str
    dimension: int = 20
    actions: int = 1000
    alpha: float = 0.8
    client_std: float = 0.1
    bound: float = 1.0
    epsilon: float = 10.0
    delta: float = 0.25
    horizon: int = 1_000_000
    setting: str = "tight"
    confidence: float = 0.05
    population: int | None = None
    fixed_clients: int | None = None
    noise: str = "skellam"

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise TacitError(
                f"algorithm is {self.algorithm!r}; known linear ones are {', '.join(ALGORITHMS)}"
            )
        if self.setting not in SETTINGS:
            raise TacitError(
                f"setting is {self.setting!r}; it must be one of {', '.join(SETTINGS)}"
            )
        if self.named.trust != "none":
            positive(
                "epsilon",
                self.epsilon,
                "a guarantee needs epsilon > 0; for no privacy use dpe or pe",
            )
            probability(
                "delta", self.delta, "use delta = 0 for a guarantee without exceptions", zero=True
            )
        if self.setting == "paper" and self.named.trust == "secagg":
            raise TacitError(
                "secure aggregation is not in the paper: use the tight setting for secagg-dpe and "
                "secagg-pe"
            )
        if self.population is not None and self.named.distributed:
            check_schedule(self._schedule(), integer("population", self.population, at_least=1))

    @property
    def named(self) -> Named:
        """The algorithm's composition."""
        return ALGORITHMS[self.algorithm]

    @property
    def target(self) -> PureDP | ApproximateDP:
        """What is asked for."""
        return PureDP(self.epsilon) if self.delta == 0 else ApproximateDP(self.epsilon, self.delta)

    def learner(self, actions: npt.ArrayLike) -> PhasedElimination:
        """A fresh learner."""
        common: dict[str, Any] = {
            "bound": self.bound,
            "confidence": self.confidence,
            "setting": self.setting,
        }
        if not self.named.distributed:
            return SingleElimination(actions, self.horizon, **common)
        return DistributedElimination(
            actions,
            self.horizon,
            alpha=self.alpha,
            client_std=self.client_std,
            fixed_clients=self.fixed_clients,
            **common,
        )

    def _schedule(self) -> int:
        learner = self.learner(np.eye(2))
        return learner.scheduled_clients() if isinstance(learner, DistributedElimination) else 0

    def protocol(self, clients: int, coordinates: int) -> VectorProtocol:
        """The protocol of a phase of DP-DPE, or of one action of DP-PE (a single coordinate)."""
        size = (clients, coordinates, self.bound)
        match self.named.trust:
            case "none":
                return Plain(*size)
            case "central":
                return Central(*size, self.target, setting=self.setting)
            case "local":
                return Local(*size, self.target, setting=self.setting)
            case "shuffle":
                return ShuffledVector(
                    *size,
                    self.target,
                    precision=self.precision(clients, coordinates),
                    setting=self.setting,
                )
            case "secagg":
                return SecureVector(
                    *size,
                    self.target,
                    precision=4 * self.precision(clients, coordinates),
                    noise_kind=self.noise,
                )

    def precision(self, clients: int, coordinates: int) -> int:
        """Levels such that rounding adds a few percent to the variance of a client's report,
        sampling and privacy noise included.

        In DP-PE rewards are ±B, the two ends of the levels, and nothing is rounded; sixteen levels
        let noise of less than a bit's worth be added.
        """
        if not self.named.distributed:
            return 16
        privacy = (
            1.0
            if isinstance(self.target, PureDP)
            else 4 * gaussian_ratio(self.target) ** 2 * coordinates / clients
        )
        return math.ceil(
            math.sqrt(1 / (ROUNDING * (privacy + (self.client_std / self.bound) ** 2)))
        )


@dataclass(frozen=True)
class Task:
    """One run, from its seed."""

    configuration: Configuration
    checkpoints: tuple[int, ...]

    def __call__(self, seed: int) -> dict[str, Any]:
        """Plays a random instance to the horizon."""
        settings = self.configuration
        world, play = (
            np.random.default_rng(sequence) for sequence in np.random.SeedSequence(seed).spawn(2)
        )
        environment: Population | SharedParameter
        if settings.named.distributed:
            environment = random_population(
                settings.dimension,
                settings.actions,
                client_std=settings.client_std,
                bound=settings.bound,
                rng=world,
                size=settings.population,
            )
        else:
            environment = random_shared(
                settings.dimension, settings.actions, bound=settings.bound, rng=world
            )
        return {"seed": seed, **play_out(settings, environment, play, self.checkpoints)}


def play_out(
    settings: Configuration,
    environment: Population | SharedParameter,
    rng: np.random.Generator,
    checkpoints: tuple[int, ...],
) -> dict[str, Any]:
    """Drives a learner through an environment; the flat record of the run."""
    learner = settings.learner(environment.actions)
    rounds, regret = [np.zeros(1)], [np.zeros(1)]
    bits = reals = clients = opened = 0.0
    weakest: Guarantee | None = None
    while (phase := learner.propose()) is not None:
        rounds.append(rounds[-1][-1] + np.cumsum(phase.plays))
        regret.append(regret[-1][-1] + np.cumsum(phase.plays * environment.gaps[phase.support]))
        if not phase.opened:
            learner.skip(phase)
            continue
        estimate, protocols = collect(settings, environment, phase, rng)
        learner.observe(phase, estimate)
        opened += 1
        for protocol in protocols:
            clients += protocol.clients
            reals += protocol.clients * protocol.coordinates
            bits += protocol.clients * protocol.bits_per_client
            weakest = _weaker(weakest, protocol.guarantee)
    curve = np.interp(checkpoints, np.concatenate(rounds), np.concatenate(regret))
    best = int(environment.means.argmax())
    return {
        "checkpoints": list(checkpoints),
        "regret": curve.tolist(),
        "final_regret": float(curve[-1]),
        "phases": opened,
        "clients": clients,
        "reals": reals,
        "communication": bits,
        "bits_per_user": bits / clients if clients else 0.0,
        "active": len(learner.active),
        "best": learner.best(),
        "best_kept": float(best in learner.active),
        "guarantee": promise(weakest, settings),
        "true_guarantee": _numbers(weakest),
    }


def collect(
    settings: Configuration,
    environment: Population | SharedParameter,
    phase: Phase,
    rng: np.random.Generator,
) -> tuple[VectorEstimate, list[VectorProtocol]]:
    """What the protocol makes of a phase's rewards."""
    if isinstance(environment, SharedParameter):
        return _collect_sums(settings, environment, phase, rng)
    protocol = settings.protocol(phase.clients, len(phase.support))
    if isinstance(protocol, LevelProtocol):
        totals = np.zeros(len(phase.support), dtype=np.int64)
        for vectors in environment.reports(phase.support, phase.plays, phase.clients, rng):
            totals += protocol.levels(vectors, rng).sum(axis=0)
        return protocol.simulate(totals, rng), [protocol]
    assert isinstance(protocol, RealProtocol)
    return protocol.simulate(
        environment.total(phase.support, phase.plays, phase.clients, rng), rng
    ), [protocol]


def _collect_sums(
    settings: Configuration, environment: SharedParameter, phase: Phase, rng: np.random.Generator
) -> tuple[VectorEstimate, list[VectorProtocol]]:
    """One private sum per action; whoever plays reports a reward of ±B.

    Widths of the paper are about sums, not means.
    """
    parts, stated = [], 0.0
    protocols: list[VectorProtocol] = []
    for plays, ups in zip(
        phase.plays.tolist(),
        environment.successes(phase.support, phase.plays, rng).tolist(),
        strict=True,
    ):
        protocol = settings.protocol(plays, 1)
        if isinstance(protocol, LevelProtocol):
            estimate = protocol.simulate(np.array([ups * protocol.precision]), rng)
        else:
            assert isinstance(protocol, RealProtocol)
            estimate = protocol.simulate(np.array([(2 * ups - plays) * environment.bound]), rng)
        widest = (
            math.sqrt(2 * phase.length * plays) if settings.named.trust == "local" else float(plays)
        )
        stated = max(stated, estimate.stated * widest)
        parts.append(estimate)
        protocols.append(protocol)
    return replace(VectorEstimate.join(parts), stated=stated), protocols


def _weaker(one: Guarantee | None, other: Guarantee | None) -> Guarantee | None:
    """The guarantee that holds for everyone: clients are in one phase each, so the weakest phase
    counts.
    """
    return max(one, other, key=_numbers) if one and other else one or other


def _numbers(guarantee: Guarantee | None) -> list[float]:
    """[ε, δ] in truth; empty without any."""
    match guarantee:
        case ApproximateDP():
            return [guarantee.epsilon, guarantee.delta]
        case PureDP():
            return [guarantee.epsilon, 0.0]
    return []


def promise(guarantee: Guarantee | None, settings: Configuration) -> str:
    """The guarantee in a sentence, with the secret; in the paper's setting also what was
    asked for.
    """
    if guarantee is None:
        return "none: the server sees every report"
    asked = "" if settings.setting == "tight" else f" Asked for: {settings.target.short}."
    secret = VectorProtocol.secret if settings.named.distributed else "a person's one reward"
    return f"{guarantee} Secret: {secret}.{asked}"


def simulate(
    name: str,
    *,
    dimension: int = 20,
    actions: int = 1000,
    alpha: float = 0.8,
    client_std: float = 0.1,
    bound: float = 1.0,
    epsilon: float = 10.0,
    delta: float = 0.25,
    horizon: int = 1_000_000,
    runs: int = 20,
    seed: int = 0,
    setting: str = "tight",
    progress: bool = False,
    confidence: float = 0.05,
    population: int | None = None,
    fixed_clients: int | None = None,
    noise: str = "skellam",
    workers: int | None = None,
) -> Result:
    """Runs a named algorithm on random instances, seeds `seed`, `seed` + 1, and so on.

    `delta` = 0 asks for pure DP (Laplace noise). `population` refuses schedules that sample more
    clients than there are; without it the population has no limit. `fixed_clients` is for
    dpe-fixed; without it the number is found at which its communication matches dpe's.

    >>> result = simulate("cdp-dpe", dimension=5, actions=50, horizon=10_000, runs=2)
    >>> result.summary()["guarantee"][:13], result.runs[0]["best_kept"]
    ('(10, 0.25)-DP', 1.0)
    """
    configuration = Configuration(
        name,
        integer("dimension", dimension, at_least=2),
        integer("actions", actions, at_least=2),
        alpha,
        client_std,
        bound,
        epsilon,
        delta,
        integer("horizon", horizon, at_least=1),
        setting,
        confidence,
        population,
        fixed_clients,
        noise,
    )
    count, first = integer("runs", runs, at_least=1), integer("seed", seed, at_least=0)
    checkpoints = checkpoints_for(configuration.horizon)
    if configuration.named.fixed and fixed_clients is None:
        configuration = replace(
            configuration,
            fixed_clients=matching_clients(configuration, first, min(count, MOST_PILOTS), workers),
        )
    done = sweep(
        Task(configuration, checkpoints),
        range(first, first + count),
        label=name,
        progress=progress,
        workers=workers,
    )
    weakest = max(
        done.records, key=lambda record: record["true_guarantee"], default={"guarantee": ""}
    )
    return Result(
        name, configuration.horizon, asdict(configuration), weakest["guarantee"], done, EXTRAS
    )


def matching_clients(
    configuration: Configuration, seed: int, pilots: int, workers: int | None = None
) -> int:
    """The largest fixed number of clients per phase at which dpe-fixed sends no more numbers than
    dpe, on these seeds; to a twentieth.
    """

    def sent(settings: Configuration) -> float:
        done = sweep(
            Task(settings, (configuration.horizon,)), range(seed, seed + pilots), workers=workers
        )
        return float(np.mean([record["reals"] for record in done.records]))

    wanted = sent(replace(configuration, algorithm="dpe", fixed_clients=None))
    low, high = 1, 64
    while sent(replace(configuration, fixed_clients=high)) <= wanted and high < 1 << 40:
        low, high = high, 4 * high
    while high - low > max(1, low // 20):
        middle = round(math.sqrt(low * high))
        if middle in (low, high):
            break
        low, high = (
            (middle, high)
            if sent(replace(configuration, fixed_clients=middle)) <= wanted
            else (low, middle)
        )
    return low


def figure2(out: Path, runs: int = 20, **options: Any) -> list[Path]:
    """Figure 2 (a, b, c) as PNG and CSV; see `tacit.papers.lzj22_figure`."""
    from tacit.papers.lzj22_figure import figure2 as draw

    return draw(out, runs, **options)
