"""Differentially private federated linear contextual bandits (Zhou & Chowdhury, ICLR 2024): silos
that learn together.

Five named algorithms that differ only in how sums over silos are made private, each with a lazy
form. λ and β_t are those of Lemma C.4; the `tight` setting takes λ from the spectral quantile of
the noise that is really there. `secagg-fedlinucb` is ours. Figures 2 and 3 are drawn with the
paper's settings: M = 100, d = 10, 100 actions, B = 25, α = 0.01, 25 runs, the printed noise; the
paper does not give T, 10^4 is ours. Panels on MSLR-WEB10K need the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.bandits import statistics
from tacit.bandits.federated import Coordinator, Settings
from tacit.checks import TacitError, integer
from tacit.environments.silos import Field, Silos, Synthetic, read_ranking
from tacit.papers import zc24_noise
from tacit.papers.catalogue import Entry, register
from tacit.papers.zc24_noise import Mechanism, Problem, Setting
from tacit.simulation.federated import run_federation
from tacit.simulation.pictures import Panel, draw_panels, write_panels
from tacit.simulation.results import Result
from tacit.simulation.run import checkpoints_for
from tacit.simulation.sweep import Record, sweep

PAPER = "ZC24"
Builder = Callable[[Problem], Mechanism]
ALGORITHMS: dict[str, Builder] = {
    "fedlinucb": zc24_noise.fedlinucb,
    "ldp-fedlinucb": zc24_noise.ldp_fedlinucb,
    "sdp-fedlinucb": zc24_noise.sdp_fedlinucb,
    "sdp-fedlinucb-vec": zc24_noise.sdp_fedlinucb_vec,
    "secagg-fedlinucb": zc24_noise.secagg_fedlinucb,
}
LABELS = {
    "fedlinucb": "FedLinUCB",
    "ldp-fedlinucb": "LDP-FedLinUCB",
    "sdp-fedlinucb": "SDP-FedLinUCB",
    "sdp-fedlinucb-vec": "SDP-FedLinUCB (vec)",
    "secagg-fedlinucb": "SecAgg-FedLinUCB",
}
EXTRAS = ("group_regret_per_round", "repairs", "communication", "bits_per_user", "clipped")


def regularizer(mechanism: Mechanism, problem: Problem) -> float:
    """λ: 1 without noise; the printed max{1, σ(√d + √ln(T/(Bα)))} with the printed noise; else the
    noise's spectral quantile.

    The quantile is that of the largest eigenvalue of the noise in the last, noisiest, released Gram
    matrix, at level 1 - α: λI plus the noise is then positive definite but for a chance of α, and
    the rest is repaired and counted.
    """
    if mechanism.guarantee is None:
        return 1.0
    if mechanism.sigma is not None:
        d, chance = problem.dimension, problem.horizon / (problem.sync * problem.confidence)
        return max(1.0, mechanism.sigma * (math.sqrt(d) + math.sqrt(math.log(chance))))
    spread = math.sqrt(mechanism.protocol.variances.max())
    return max(
        1.0, spread * statistics.spectral_quantile(problem.dimension, 1 - problem.confidence)
    )


@dataclass(frozen=True, eq=False)
class Task:
    """One algorithm on one instance, ready to run for any seed."""

    name: str
    problem: Problem
    mechanism: Mechanism
    settings: Settings
    recorded: Silos | None
    deviation: float

    @classmethod
    def of(
        cls, name: str, problem: Problem, recorded: Silos | None = None, deviation: float = 0.25
    ) -> Task:
        """Calibrates the noise and sets the regularizer, once for all runs."""
        if name not in ALGORITHMS:
            raise TacitError(f"algorithm is {name!r}; federated ones are {', '.join(ALGORITHMS)}")
        mechanism = ALGORITHMS[name](problem)
        settings = Settings(
            problem.silos,
            problem.dimension,
            problem.horizon,
            problem.sync,
            regularizer(mechanism, problem),
            problem.confidence,
            lazy=problem.lazy,
            clip=True,
            scaled=mechanism.sigma is None,
        )
        return cls(name, problem, mechanism, settings, recorded, deviation)

    def __call__(self, seed: int) -> Record:
        """One run.

        Users and noise have generators of their own, so all algorithms meet the same users.
        """
        users, noise = (
            np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)
        )
        problem, protocol = self.problem, self.mechanism.protocol
        environment = self.recorded
        if environment is None:
            environment = Synthetic.draw(
                problem.silos, problem.dimension, problem.actions, users, self.deviation
            )
        simulator = protocol.simulator(noise)
        run = run_federation(
            self.settings,
            environment,
            lambda batches: simulator.step(batches.sum(axis=0)),
            Coordinator(self.settings, protocol.decoder()),
            users,
            checkpoints=checkpoints_for(problem.horizon),
        )
        sent = protocol.bits_per_silo * problem.silos
        return {
            "seed": seed,
            "checkpoints": list(run.checkpoints),
            "regret": list(run.regret),
            "final_regret": run.regret[-1],
            "group_regret_per_round": run.regret[-1] / problem.horizon,
            "repairs": run.repairs,
            "communication": sent,
            "bits_per_user": sent / (problem.silos * problem.horizon),
            "clipped": run.clipped_rewards / (problem.silos * problem.horizon),
        }

    def promise(self) -> str:
        """The guarantee in a sentence, and between whom it holds.

        When actions react to raw data within a batch (not lazy), replacing a user changes what
        later users of the same silo and batch are given, so up to `sync` pairs (x, y) move at once.
        ZC24 counts one. Both are stated.
        """
        guarantee = self.mechanism.guarantee
        if guarantee is None:
            return "none: silos send sums as they are"
        releases = f"In all {self.problem.steps} releases together"
        every = f"{guarantee} {releases}; {self.mechanism.derivation}."
        if self.problem.visits * self.problem.visits_per_batch > 1:
            often = f"{self.problem.visits_per_batch} time(s) in each"
            every += f" For a user in up to {self.problem.visits} batches, {often}."
        if self.problem.lazy:
            return every
        loss = self.mechanism.protocol.loss(self.problem.visits, self.problem.sync)
        users = loss.epsilon(self.problem.delta)
        return (
            f"{every} Between streams that differ in one recorded (x, y); a user whose silo acts "
            "on raw data within a batch may move up "
            f"to {self.problem.sync} of them: ({users:.3g}, {self.problem.delta:g})-DP. The lazy "
            "form has no such gap."
        )


def simulate(
    name: str,
    *,
    silos: int | None = None,
    dimension: int = 10,
    actions: int = 100,
    sync: int = 25,
    epsilon: float = 0.2,
    delta: float = 0.1,
    horizon: int = 10_000,
    runs: int = 25,
    seed: int = 0,
    setting: Setting = "tight",
    lazy: bool = False,
    progress: bool = False,
    confidence: float = 0.01,
    visits: int = 1,
    visits_per_batch: int = 1,
    noise: Literal["discrete-gaussian", "skellam"] = "discrete-gaussian",
    deviation: float = 0.25,
    data: Path | Silos | None = None,
    field: Field = "title",
    workers: int | None = None,
    log: Path | None = None,
) -> Result:
    """Runs a federated algorithm over seeds, on ZC24's synthetic instance or on an MSLR-WEB10K file
    (`data`: sets the dimension).

    `silos` are 100 by default, 10 on recorded data. `communication` is the number of bits that all
    silos send up in a run, `bits_per_user` the same per user, `clipped` the part of rewards that
    had to be cut to [0, 1], `repairs` how many released Gram matrices were not positive definite.
    """
    recorded = (
        read_ranking(data, field=field, silos=silos or 10) if isinstance(data, Path) else data
    )
    if recorded is not None:
        silos, dimension = recorded.silos, recorded.dimension
    count = 100 if silos is None else integer("silos", silos, at_least=1)
    rounds = integer("horizon", horizon, at_least=1)
    returning = (visits, visits_per_batch)
    problem = Problem(
        count,
        dimension,
        actions,
        sync,
        epsilon,
        delta,
        rounds,
        setting,
        lazy,
        confidence,
        *returning,
        noise,
    )
    task = Task.of(name, problem, recorded, deviation)
    first = integer("seed", seed, at_least=0)
    done = sweep(
        task,
        range(first, first + integer("runs", runs, at_least=1)),
        label=name,
        progress=progress,
        workers=workers,
        path=log,
    )
    configuration: dict[str, Any] = {
        **asdict(problem),
        "regularizer": task.settings.regularizer,
        "deviation": deviation,
    }
    if recorded is not None:
        configuration["instance"] = "recorded"
    return Result(name, rounds, configuration, task.promise(), done, EXTRAS)


@dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    name: str
    epsilon: float = 0.2
    delta: float = 0.1
    setting: Setting = "paper"

    def label(self, varying: tuple[str, ...]) -> str:
        """The algorithm, and what varies in its panel."""
        if self.name == "fedlinucb":
            return LABELS[self.name]
        marks = {"epsilon": f"ε = {self.epsilon:g}", "delta": f"δ = {self.delta:g}"}
        return ", ".join([LABELS[self.name], *(marks[key] for key in varying)])


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    runs: int = 25
    horizon: int = 10_000
    silos: int = 100
    dimension: int = 10
    actions: int = 100
    sync: int = 25
    seed: int = 0
    progress: bool = False
    data: Silos | None = None


def figure2(
    out: Path,
    *,
    runs: int = 25,
    horizon: int = 10_000,
    silos: int = 100,
    data: Path | None = None,
    seed: int = 0,
    progress: bool = False,
) -> list[Path]:
    """Trust models compared: (a) tiny budgets, (b) moderate ones, (c) the price of privacy on
    MSLR-WEB10K with title features.
    """
    scale = Scale(runs, horizon, silos, seed=seed, progress=progress)
    tiny = [
        Curve(name, e, 1e-4) for e in (1e-3, 1e-4) for name in ("ldp-fedlinucb", "sdp-fedlinucb")
    ]
    moderate = [
        Curve("ldp-fedlinucb"),
        Curve("sdp-fedlinucb-vec"),
        Curve("secagg-fedlinucb", setting="tight"),
        Curve("fedlinucb"),
    ]
    panels = [
        _panel("(a) synthetic, δ = 0.0001", tiny, ("epsilon",), scale),
        _panel("(b) synthetic, ε = 0.2, δ = 0.1", moderate, (), scale),
    ]
    if data is not None:
        panels.append(
            _panel(
                "(c) MSLR-WEB10K, title, δ = 0.1",
                _budgets(),
                ("epsilon",),
                _recorded(scale, data, "title"),
            )
        )
    return _write("zc24-fig2", panels, out, runs)


def figure3(
    out: Path,
    *,
    runs: int = 25,
    horizon: int = 10_000,
    silos: int = 100,
    data: Path | None = None,
    seed: int = 0,
    progress: bool = False,
) -> list[Path]:
    """LDP-FedLinUCB against no privacy: (a) over ε, (b) over δ, (c) MSLR-WEB10K with body features;
    (d) tiny budgets.

    Without the data (c) is left out and (d) is drawn on the synthetic instance.
    """
    scale = Scale(runs, horizon, silos, seed=seed, progress=progress)
    failures = [*(Curve("ldp-fedlinucb", 5.0, d) for d in (0.1, 0.01, 0.001)), Curve("fedlinucb")]
    tiny = [Curve(name, 1e-4, 1e-4) for name in ("ldp-fedlinucb", "sdp-fedlinucb")]
    panels = [
        _panel("(a) synthetic, δ = 0.1", _budgets(), ("epsilon",), scale),
        _panel("(b) synthetic, ε = 5", failures, ("delta",), scale),
    ]
    if data is not None:
        body = _recorded(scale, data, "body")
        panels.append(_panel("(c) MSLR-WEB10K, body, δ = 0.1", _budgets(), ("epsilon",), body))
        panels.append(_panel("(d) MSLR-WEB10K, body, ε = δ = 0.0001", tiny, (), body))
    else:
        panels.append(_panel("(d) synthetic, ε = δ = 0.0001", tiny, (), scale))
    return _write("zc24-fig3", panels, out, runs)


def _budgets() -> list[Curve]:
    return [*(Curve("ldp-fedlinucb", e) for e in (0.2, 1.0, 5.0)), Curve("fedlinucb")]


def _recorded(scale: Scale, data: Path, field: Field) -> Scale:
    return replace(scale, data=read_ranking(data, field=field))


def _panel(title: str, curves: list[Curve], varying: tuple[str, ...], scale: Scale) -> Panel:
    return Panel(title, {curve.label(varying): _run(curve, scale) for curve in curves})


def _run(curve: Curve, scale: Scale) -> Result:
    return simulate(
        curve.name,
        silos=scale.silos,
        dimension=scale.dimension,
        actions=scale.actions,
        sync=scale.sync,
        epsilon=curve.epsilon,
        delta=curve.delta,
        horizon=scale.horizon,
        runs=scale.runs,
        seed=scale.seed,
        setting=curve.setting,
        progress=scale.progress,
        data=scale.data,
    )


def _write(name: str, panels: list[Panel], out: Path, runs: int) -> list[Path]:
    picture = out / f"{name}.png"
    tables = write_panels(panels, out, name)
    draw_panels(panels, picture, title=f"{name} ({runs} runs)", per="round", regret="group regret")
    return [picture, *tables]


register(
    Entry("fedlinucb", "federated", PAPER, "server sees sums of silos", "none"),
    Entry(
        "ldp-fedlinucb",
        "federated",
        PAPER,
        "nobody outside the silo",
        "(ε, δ)-DP of all that a silo sends",
    ),
    Entry(
        "sdp-fedlinucb",
        "federated",
        PAPER,
        "a shuffler of silos' messages",
        "(ε, δ)-DP of the shuffled messages, tiny ε only",
    ),
    Entry(
        "sdp-fedlinucb-vec",
        "federated",
        PAPER,
        "a shuffler of bits",
        "(ε, δ)-DP of the shuffled bits",
    ),
    Entry(
        "secagg-fedlinucb",
        "federated",
        "tacit",
        "secure aggregation of silos",
        "(ε, δ)-DP of the opened sums",
    ),
)
