"""Phased elimination for linear bandits: play a near-G-optimal design, estimate, eliminate, double.

`DistributedElimination` is DP-DPE (LZJ22 Algorithm 1): ⌈2^{αl}⌉ fresh clients of a population
observe phase l and report their average reward for every played action. `SingleElimination` is
DP-PE (Algorithm 3): every play belongs to a different participant. Learners see only the means of
the played actions and the distribution of the protocol's error, and know no protocol.

Two widths. `paper`: the printed ones, the same for all actions. `tight`: for every pair of actions
the sub-Gaussian variance of the estimated difference, from the actual design, plays, clients and
noise (`tacit.bandits.linear.widths`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.assumptions import Secret
from tacit.bandits.arm_summaries import summaries
from tacit.bandits.contract import KeptLearner, Plan
from tacit.bandits.linear import own_fits
from tacit.bandits.linear.design import (
    DesignWeights,
    Floats,
    Indices,
    largest_support,
    near_g_optimal,
)
from tacit.bandits.linear.widths import PhaseEvidence, RunEvidence
from tacit.errors import Number, TacitError, integer, one_of, positive, probability
from tacit.types import ArmSummary, Design, Estimate, Fit, Round

CONSTANTS = ("tight", "paper")
# g(π) / dimension: the paper's, and that of tight learners once phases are long
COARSE, SHARP = 2.0, 1.2
CUT = 0.02  # share of the failure probability for clipping parameters to a ball
WORTH = 0.01  # relative reduction of widths from which clients fit parameters


@dataclass(frozen=True)
class Widths:
    """What confidence widths are computed from.

    Parameters
    ----------
    bound
        Rewards lie in [-bound, bound].
    failure_probability
        The probability that the best action may be dropped.
    constants
        The widths: `tight`, or `paper` for the printed ones.
    """

    bound: float = 1.0
    failure_probability: Number = 0.05
    constants: str = "tight"

    def __post_init__(self) -> None:
        bound = positive("bound", self.bound, "rewards lie in [-bound, bound]")
        remedy = "it is the probability that the best action may be dropped"
        chance = probability("failure_probability", self.failure_probability, remedy)
        object.__setattr__(self, "bound", float(bound))
        object.__setattr__(self, "failure_probability", float(chance))
        one_of("constants", self.constants, CONSTANTS)


TIGHT = Widths()


class PhasedElimination(KeptLearner):
    """Base of both learners: phases, designs, least squares, elimination.

    Round number l - 1 is phase l. Its participants are the clients who observe and report or, with
    `each`, those who make one play each.
    """

    first_length: float
    each: bool

    separate: ClassVar[bool] = False
    kept: ClassVar[tuple[str, ...]] = ("_active", "_latest", "_asked", "_phases", "_evidence")

    def __init__(
        self,
        actions: npt.ArrayLike,
        horizon: int,
        widths: Widths = TIGHT,
    ) -> None:
        self.actions = np.asarray(actions, dtype=float)
        super().__init__(len(self.actions), horizon)
        self.widths = widths
        self.bound, self.constants = widths.bound, widths.constants
        self.failure_probability = float(widths.failure_probability)
        self._active: Indices = np.arange(len(self.actions))
        self._evidence = RunEvidence(
            len(self.actions), self.actions.shape[1], self.bound, self.failure_probability
        )
        self._latest = np.zeros(self.actions.shape[1])
        self._asked = np.zeros(len(self.actions), dtype=np.int64)
        self._phases = np.zeros(len(self.actions), dtype=np.int64)  # while each was active
        # the last design; active sets only shrink, so their size identifies them
        self._known: tuple[float, int, DesignWeights] | None = None

    @abstractmethod
    def _participants(self, phase: int, plays: Indices) -> int:
        """Number of participants that report in a phase."""

    @abstractmethod
    def _variances(self, reports: Indices, plays: Floats) -> Floats:
        """Sub-Gaussian variance of each played action's mean reward, from reward noise alone."""

    @abstractmethod
    def _client_variance(self, reports: Indices) -> float:
        """Variance from sampling clients, per squared norm of a direction."""

    @abstractmethod
    def _paper_width(self, design: Design, reports: int, stated: Floats) -> float:
        """The paper's W, for noise of these standard deviations in the means."""

    @property
    def active(self) -> list[int]:
        """The actions that were not dropped."""
        return [int(index) for index in self._active]

    def best(self) -> int:
        """The active action with the largest estimate."""
        return int(self._active[int((self.actions[self._active] @ self._direction()).argmax())])

    def _direction(self) -> Floats:
        tight = self.constants == "tight" and self._evidence.phases
        return self._evidence.pooled() if tight else self._latest

    def length(self, phase: int) -> float:
        """The length h of a phase."""
        return self.first_length * 2.0 ** (phase - 1)

    def _plan(self) -> Plan:
        """The next phase; one that exceeds the horizon is truncated and not released.

        Tight learners then play the best action instead, as they do once one action is left.
        """
        left, phase = self.horizon - self.played, self._number + 1
        if len(self._active) == 1 and self.constants == "tight":
            return [self._exploit(left)]
        length = self.length(phase)
        # a sharper design needs more actions, each played at least once: too many for short phases
        sharp = self.constants == "tight" and length >= 2 * self.actions.shape[1]
        design = self._design(SHARP if sharp else COARSE)
        plays, support = design.plays(length), self._active[design.support]
        if int(plays.sum()) <= left:
            participants = self._participants(phase, plays)
            return [
                (self._reported(self._assign(support, plays, length), participants), participants)
            ]
        if self.constants == "tight" and phase > 1:
            return [self._exploit(left)]
        before = np.concatenate([[0], np.cumsum(plays)[:-1]])
        return [(self._assign(support, np.clip(left - before, 0, plays), length), 0, False)]

    def _assign(self, support: Indices, plays: Indices, length: float) -> Design:
        return Design(tuple(support.tolist()), tuple(plays.tolist()), length, self.each)

    def _reported(self, design: Design, participants: int) -> Design:  # noqa: ARG002
        """The design, or the `Fit` that this many participants report instead."""
        return design

    def _exploit(self, remaining: int) -> tuple[Design, int, bool]:
        return Design((self.best(),), (remaining,), float(remaining), self.each), 0, False

    def _design(self, ratio: float) -> DesignWeights:
        """A design for the active actions, cached while they stay the same."""
        if self._known is None or self._known[:2] != (ratio, len(self._active)):
            found = near_g_optimal(self.actions[self._active], ratio=ratio)
            self._known = (ratio, len(self._active), found)
        return self._known[2]

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        """Add a phase's estimated means and drop significantly worse actions."""
        design, error = round_.assignment, estimate.error
        assert isinstance(design, Design)
        means = np.asarray(estimate.mean, dtype=float)
        support, plays = np.array(design.support), np.array(design.plays, dtype=float)
        self._asked[support] += np.asarray(error.participants)
        played = self.actions[support]
        if self.constants == "paper":
            self._latest = least_squares(played, plays) @ means
            worth = self.actions[self._active] @ self._latest
            width = self._paper_width(design, int(np.sum(error.participants)), error.stated)
            self._active = self._active[worth.max() - worth <= 2 * width]
            return
        reports = np.asarray(error.participants)
        variances = self._variances(reports, plays) + np.asarray(error.proxies)
        solve = least_squares(played, 1 / variances)
        matrix = (solve * variances) @ solve.T
        matrix = matrix + self._client_variance(reports) * np.eye(played.shape[1])
        cap = float((np.asarray(error.reaches) * np.sqrt(variances)).min())
        self._conclude(PhaseEvidence(solve @ means, matrix, cap))

    def _conclude(self, phase: PhaseEvidence) -> None:
        """Add one phase and drop significantly worse actions."""
        self._latest = phase.theta
        self._evidence.add(phase, self.actions[self._active])
        self._phases[self._active] += 1
        self._active = self._active[self._evidence.surviving(self.actions[self._active])]

    def summaries(
        self,
        names: Sequence[str],
        level: float = 0.95,
        control: int = 0,  # noqa: ARG002
    ) -> list[ArmSummary]:
        """Every action's mean reward from all phases, by a normal approximation.

        `participants` counts those who reported the action. There are no lifts over a control,
        which make no sense for negative rewards.
        """
        means, spreads = self._evidence.means(self.actions, self._phases)
        rows = zip(self._asked.tolist(), means.tolist(), spreads.tolist(), strict=True)
        known = [(n, mean if math.isfinite(s) else None, s) for n, mean, s in rows]
        return summaries(known, names, level, lowest=-self.bound)


@dataclass(frozen=True)
class ClientSampling:
    """Number of clients that each phase samples, and the spread of their parameters.

    Parameters
    ----------
    alpha
        Phase l samples ⌈2^{αl}⌉ clients.
    client_std
        The sub-Gaussian standard deviation of a client's parameter around θ*, in every direction.
    fixed_clients
        The number of clients of every phase instead (baseline DPE-FixedU).
    """

    alpha: float = 0.8
    client_std: float = 0.1
    fixed_clients: int | None = None

    def __post_init__(self) -> None:
        alpha, std = self.alpha, self.client_std
        if (
            isinstance(alpha, bool)
            or not isinstance(alpha, (int, float))
            or not 0 < alpha < math.inf
        ):
            raise TacitError(
                f"alpha is {alpha}: must be > 0, since phase l samples ⌈2^(alpha·l)⌉ clients: use "
                "a number such as 0.8"
            )
        if not std >= 0:
            raise TacitError(f"client_std is {std}: must be at least 0, a standard deviation")
        if self.fixed_clients is not None:
            integer(
                "fixed_clients", self.fixed_clients, at_least=1, remedy="every phase needs clients"
            )

    def clients(self, phase: int) -> int:
        """⌈2^{αl}⌉, or the fixed number."""
        fixed = self.fixed_clients
        return math.ceil(2.0 ** (self.alpha * phase)) if fixed is None else fixed


@dataclass(frozen=True)
class FittedReports:
    """Whether clients report a fitted parameter, and the public numbers that decide its radius.

    Parameters
    ----------
    parameters_from
        The number of clients from which a phase's clients may report parameters; None for never.
    norm
        The largest norm of θ*.
    noise_ratio
        The noise's standard deviation over the l2 sensitivity.
    noise_alone
        Whether that is each client's own noise, not the sum's.
    """

    parameters_from: int | None = None
    norm: float = 1.0
    noise_ratio: float = 0.0
    noise_alone: bool = False

    def __post_init__(self) -> None:
        positive("norm", self.norm, "the largest length of the parameter")
        if self.parameters_from is not None:
            integer("parameters_from", self.parameters_from, at_least=1)

    def noise(self, clients: int) -> float:
        """The noise's standard deviation in an average of reports of norm at most 1."""
        return 2 * self.noise_ratio / (math.sqrt(clients) if self.noise_alone else clients)


SAMPLING, AVERAGES = ClientSampling(), FittedReports()


class DistributedElimination(PhasedElimination):
    """DP-DPE: each phase's clients report averages of all played actions, or a fitted parameter.

    Phases start at h₁ = 2 with the paper's constants and at 1 with tight ones. With tight widths, a
    phase is limited by its clients, not its rounds. Reaching more clients earlier saves more regret
    than it costs communication.

    With `fitted` reports, clients of large enough phases report the parameter that they fit, in a
    ball around the current estimate (`tacit.bandits.linear.own_fits`). They do so only if widths
    get at least 1 % narrower than with one average per action. The radius follows from public
    numbers: the bound on rewards, `sampling`, `fitted` and earlier phases. The clipping bias is
    part of the widths and uses a fiftieth of the failure probability.

    >>> learner = DistributedElimination(np.eye(3), 1000, sampling=ClientSampling(alpha=0.8))
    >>> round_, = learner.propose()
    >>> round_.assignment.support, round_.assignment.plays, round_.participants
    ((0, 1, 2), (1, 1, 1), 2)
    """

    each = False

    def __init__(
        self,
        actions: npt.ArrayLike,
        horizon: int,
        widths: Widths = TIGHT,
        *,
        sampling: ClientSampling = SAMPLING,
        fitted: FittedReports = AVERAGES,
    ) -> None:
        super().__init__(actions, horizon, widths)
        self.sampling, self.fitted = sampling, fitted
        self._planned: tuple[Any, own_fits.OwnFit, Floats] | None = None
        self._off: list[float] = []  # bound on the distance of each phase's estimate from θ*
        if fitted.parameters_from is not None:
            if self.constants == "paper":
                raise TacitError("the paper's clients report actions: use tight constants")
            sure = (1 - CUT) * self.failure_probability
            k, d = self.actions.shape
            self._evidence = RunEvidence(k, d, self.bound, sure)
        self.first_length = 2.0 if self.constants == "paper" else 1.0
        if sampling.alpha * math.log2(2 * self.horizon) > 62:
            raise TacitError(
                f"alpha is {sampling.alpha} at a horizon of {self.horizon:,}: the last phase would "
                "sample 2^62 clients: use a smaller alpha"
            )

    @property
    def secret(self) -> Secret:
        """Averages of all played options, or the parameter fitted to them."""
        fits = self.fitted.parameters_from is not None
        return Secret.FITTED_PARAMETER if fits else Secret.AVERAGE_REWARDS

    def scheduled_clients(self) -> int:
        """The total number of clients sampled by all phases that fit into the horizon."""
        total, elapsed, phase = 0, 0.0, 1
        while (elapsed := elapsed + self.length(phase)) <= self.horizon:
            total += self.sampling.clients(phase)
            phase += 1
        return total

    def _participants(self, phase: int, plays: Indices) -> int:  # noqa: ARG002
        return self.sampling.clients(phase)

    def _variances(self, reports: Indices, plays: Floats) -> Floats:
        """B²/(clients · plays), averaged over plays and clients.

        Rewards in [-B, B] are B-sub-Gaussian around a client's own mean (Hoeffding's lemma).
        """
        return np.asarray(self.bound**2 / (reports * plays))

    def _client_variance(self, reports: Indices) -> float:
        return float(self.sampling.client_std**2 / reports)

    def _reported(self, design: Design, participants: int) -> Design:
        """A `Fit` where there are enough participants and it narrows widths."""
        first = self.fitted.parameters_from
        if first is None or participants < first:
            return design
        below = self._width_of_actions(design, participants) / (1 + WORTH)
        found = self._own_fit(design, self._number + 1, participants, below)
        if found is None:
            return design
        fit, centre = found
        rows = tuple(tuple(row) for row in fit.solve.tolist())
        about = tuple((fit.forward @ centre).tolist())
        return Fit(**vars(design), solve=rows, centre=about, radius=fit.radius)

    def _own_fit(
        self, design: Design, phase: int, clients: int, below: float = math.inf
    ) -> tuple[own_fits.OwnFit, Floats] | None:
        """Fit of clients' own parameters in a phase, and its centre, if widths are below `below`.

        The result for a planned phase is cached until its estimate is learned.
        """
        about = (design.support, design.plays, phase, clients)
        if self._planned is None or self._planned[0] != about:
            centre, distance = self._centre()
            fit = own_fits.best_fit(self._public(design, phase, clients, distance), below)
            if fit is None:
                return None
            self._planned = (about, fit, centre)
        return self._planned[1:]

    def _centre(self) -> tuple[Floats, float]:
        """The phase estimate with the smallest error bound, or zero, and that bound."""
        phases = self._evidence.phases
        for number, known in enumerate(phases[len(self._off) :], len(self._off) + 1):
            off = own_fits.distance_of(known.matrix, self._rare(number))
            beyond = 0.0 if known.beyond is None else float(np.linalg.norm(known.beyond, 2))
            self._off.append(off + beyond)
        nearest = int(np.argmin(self._off)) if self._off else 0
        if not self._off or self._off[nearest] >= self.fitted.norm:
            return np.zeros(self.actions.shape[1]), float(self.fitted.norm)
        return phases[nearest].theta, self._off[nearest]

    def _public(
        self, design: Design, phase: int, clients: int, distance: float
    ) -> own_fits.PublicPhase:
        return own_fits.PublicPhase(
            played=self.actions[np.array(design.support)],
            plays=np.array(design.plays, dtype=float),
            active=self.actions[self._active],
            clients=clients,
            spreads=(self.bound, self.sampling.client_std),
            distance=distance,
            noise=self.fitted.noise(clients),
            deviations=math.sqrt(2 * self._evidence.level),
            chance=self._rare(phase),
        )

    def _width_of_actions(self, design: Design, clients: int) -> float:
        """The width of a typical difference, if clients reported one average per action."""
        plays = np.array(design.plays, dtype=float)
        noise = self.fitted.noise(clients) * self.bound * math.sqrt(len(plays))
        variances = self.bound**2 / (clients * plays) + noise**2
        solve = least_squares(self.actions[np.array(design.support)], 1 / variances)
        active = self.actions[self._active]
        centred = active - active.mean(axis=0)
        square = float(((centred @ solve) ** 2 @ variances).mean())
        square += self.sampling.client_std**2 / clients * float((centred**2).sum(axis=1).mean())
        return math.sqrt(2 * self._evidence.level * square)

    def _rare(self, phase: int) -> float:
        """Half of a phase's share of the failure probability for clipped reports."""
        return CUT * self.failure_probability / (2 * phase * (phase + 1))

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        """Learn from means, or from fitted parameters."""
        design = round_.assignment
        if not isinstance(design, Fit):
            super()._learn(round_, estimate)
            return
        self._asked[np.array(design.support)] += int(estimate.error.participants)
        self._conclude(self._fitted(round_, design, estimate))

    def _fitted(self, round_: Round, design: Fit, estimate: Estimate) -> PhaseEvidence:
        """The parameter within the span of the played actions, with its error bounds."""
        error = estimate.error
        found = self._own_fit(design, round_.number + 1, round_.participants)
        assert found is not None  # there is no `below` here
        fit, _ = found
        played, plays = self.actions[np.array(design.support)], np.array(design.plays, dtype=float)
        undo = own_fits.report_inverse(played, plays, np.array(design.solve))
        theta = undo @ (np.asarray(estimate.mean) + np.array(design.centre))
        proxy = float(np.max(error.proxies))
        cap = float(np.min(error.reaches)) * math.sqrt(proxy) if proxy else math.inf
        matrix = fit.plain / int(error.participants) + proxy * undo @ undo.T
        return PhaseEvidence(theta, matrix, cap, fit.lost * undo.T if fit.lost else None)

    def _paper_width(self, design: Design, reports: int, stated: Floats) -> float:
        """(√(2d/(|U|h)) + σ/√|U| + 2σ_noise√(Sd)) · √(2 ln(kT)).

        LZJ22 equation 3, Theorems 5.3 to 5.5.
        """
        d = self.actions.shape[1]
        n = reports
        noise = 2 * float(np.max(stated)) * math.sqrt(largest_support(d) * d)
        clients = self.sampling.client_std / math.sqrt(n)
        width = math.sqrt(2 * d / (n * design.length)) + clients + noise
        return width * math.sqrt(2 * math.log(len(self.actions) * self.horizon))


class SingleElimination(PhasedElimination):
    """DP-PE: standard linear bandits, each play by a different participant.

    `per_person`: whether each participant adds noise (the local model), for the paper's widths.

    >>> SingleElimination(np.eye(3), 1000).propose()[0].assignment.plays
    (6, 6, 6)
    """

    each = True
    secret: Secret | None = Secret.ONE_REWARD  # every play belongs to another participant

    def __init__(
        self,
        actions: npt.ArrayLike,
        horizon: int,
        widths: Widths = TIGHT,
        *,
        per_person: bool = False,
    ) -> None:
        super().__init__(actions, horizon, widths)
        self.first_length = float(largest_support(self.actions.shape[1]))
        self.per_person = per_person

    def _participants(self, phase: int, plays: Indices) -> int:  # noqa: ARG002
        return int(plays.sum())

    def _variances(self, reports: Indices, plays: Floats) -> Floats:  # noqa: ARG002
        return np.asarray(self.bound**2 / reports)

    def _client_variance(self, reports: Indices) -> float:  # noqa: ARG002
        return 0.0

    def _paper_width(self, design: Design, reports: int, stated: Floats) -> float:  # noqa: ARG002
        """(√(2d/h) + 2dσ√s/h) · √(2 ln(kT)), σ the standard deviation in a sum.

        LZJ22 equation 54, Table 4.
        """
        d = int(self.actions.shape[1])
        plays = np.array(design.plays, dtype=float)
        widest = np.sqrt(2 * design.length * plays) if self.per_person else plays
        most = float((stated * widest).max())
        noise = 2 * d * most * math.sqrt(len(design.support)) / design.length
        return (math.sqrt(2 * d / design.length) + noise) * math.sqrt(
            2 * math.log(len(self.actions) * self.horizon)
        )


def least_squares(played: Floats, weights: Floats) -> Floats:
    """The matrix of weighted least squares from means of the played actions, within their span."""
    root = np.sqrt(weights / weights.max())
    return np.asarray(np.linalg.pinv(played * root[:, None], rcond=1e-9) * root)
