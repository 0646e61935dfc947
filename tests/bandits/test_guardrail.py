"""A guardrail pauses clearly worse options, rarely any other, and states its reason."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bandits.coverage import most_failures

from tacit import begin
from tacit.bandits.arm_summaries import SummarySettings
from tacit.bandits.confidence_sequences import Tally, evidence_that_larger, is_larger
from tacit.bandits.guardrail import Guard, Guardrail
from tacit.environments import Bernoulli, TwoMetrics
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.noise import DiscreteLaplace
from tacit.simulation import simulate
from tacit.types import ErrorDistribution, Estimate, Round

RATES = (0.2, 0.3, 0.4, 0.25, 0.35)
ERRORS = (0.1, 0.1, 0.4, 0.1, 0.4)
WORLD = TwoMetrics(Bernoulli(RATES), Bernoulli(ERRORS))
NOISE = DiscreteLaplace(4)


def guarded(
    arms: int = 3, horizon: int = 20_000, name: str = "private-med", **options: Any
) -> Experiment:
    """The first option is the control; the third is the best, and its errors are not."""
    given_ = {"guardrail": "errors", "control_share": 0.2, "epsilon": 2.0, **options}
    return begin(name, [f"o{k}" for k in range(arms)], binary=True, horizon=horizon, **given_)


def observe(experiment: Experiment, round_: Round, world: TwoMetrics = WORLD) -> None:
    if not round_.released:
        experiment.skip(round_)
        return
    rng = np.random.default_rng([round_.number, 5])
    protocol = experiment.open(round_)
    experiment.observe(round_, protocol.simulate(world.play(round_, protocol, rng).load, rng))


def play_rounds(experiment: Experiment, world: TwoMetrics = WORLD) -> list[Round]:
    rounds = experiment.propose()
    for round_ in rounds:
        observe(experiment, round_, world)
    return rounds


def finish(experiment: Experiment, world: TwoMetrics = WORLD) -> Experiment:
    while play_rounds(experiment, world):
        pass
    return experiment


def as_json(experiment: Experiment) -> str:
    return json.dumps(experiment.to_dict(), allow_nan=False)


def restored(experiment: Experiment) -> Experiment:
    return Experiment.from_dict(json.loads(as_json(experiment)))


# The test itself


def tally(mean: float, people: int = 400, rounds: int = 3) -> Tally:
    """Rounds with their expected results."""
    found = Tally(10_000, 3_000)
    for _ in range(rounds):
        found.add(Estimate(mean * people, ErrorDistribution(people, 1, NOISE)))
    return found


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.3])
def test_guardrail_evidence_is_the_minimum_over_pairs_within_the_margin(margin: float) -> None:
    """By brute force over a grid of pairs (q, r) with q <= r + margin."""
    one, other = tally(0.5), tally(0.1)
    grid = np.linspace(0, 1, 401)
    larger, smaller = one.evidence_against(grid, 1), other.evidence_against(grid, -1)
    allowed = grid[:, None] <= grid[None, :] + margin + 1e-12
    least = float(np.where(allowed, larger[:, None] + smaller[None, :], np.inf).min())
    found = evidence_that_larger(one, other, margin=margin)
    assert found == pytest.approx(least, rel=1e-3)
    assert is_larger(one, other, 0.9 * found, margin)
    assert not is_larger(one, other, 1.1 * found, margin)
    assert not is_larger(one, other, 0.0, 0.41)
    assert not is_larger(other, one, 0.0, margin)


def false_pause(seed: int, rail: Guardrail, control: float, arms: int = 3) -> bool:
    """Whether options that are as much worse as is tolerated are ever paused, in 36 rounds of sizes
    that follow what was seen.
    """
    rng = np.random.default_rng([seed, 77])
    worse = rail.margin if rail.better == "lower" else -rail.margin
    guard = Guard(rail, 36 * 400, arms)
    for number in range(36):
        option = number % arms
        mean = guard.tallies[option].mean or 0.5
        people = 40 + int(300 * min(max(mean, 0.0), 1.0))
        true = control if option == 0 else control + worse
        total = rng.binomial(people, true) + float(NOISE.sample(rng))
        guard.take(option, Estimate(total, ErrorDistribution(people, 1, NOISE)))
        if guard.newly_worse(range(arms), 0):
            return True
    return False


@pytest.mark.parametrize(
    ("rail", "control"),
    [
        (Guardrail("errors", level=0.8), 0.1),
        (Guardrail("errors", margin=0.05, level=0.8), 0.3),
        (Guardrail("visits", "higher", margin=0.1, level=0.8), 0.5),
    ],
)
def test_options_that_are_not_worse_are_rarely_paused(rail: Guardrail, control: float) -> None:
    """80 experiments each at level 80%, every option at the edge; false-alarm rate 1e-6."""
    paused = sum(false_pause(seed, rail, control) for seed in range(80))
    assert paused <= most_failures(80, 0.2)


@pytest.mark.slow
def test_the_rate_of_false_pauses_holds_in_many_whole_runs() -> None:
    """2,000 runs of four options with equal errors at ε = 0.5, at level 95%; false-alarm rate
    1e-6.
    """
    result = simulate(
        "private-med",
        means=(0.2, 0.3, 0.4, 0.4),
        guardrail="errors",
        guardrail_means=(0.05,) * 4,
        control_share=0.2,
        horizon=30_000,
        epsilon=0.5,
        runs=2_000,
    )
    paused = sum(bool(run["paused"]) for run in result.summary()["runs"])
    assert paused <= most_failures(2_000, 0.05)


def test_fixed_time_tests_of_each_round_would_pause_too_often() -> None:
    """What the rate above is worth: one look's normal 80% at every round fails it."""

    class OneLook(Guard):
        def _is_significantly_worse(self, option: int, control: int, sure: float) -> bool:  # noqa: ARG002
            mine, theirs = self.tallies[option], self.tallies[control]
            if option == control or mine.mean is None or theirs.mean is None:
                return False
            spread = (mine.spread**2 + theirs.spread**2) ** 0.5
            return bool(mine.mean - theirs.mean > 0.85 * spread)

    rng, paused = np.random.default_rng(0), 0
    for _ in range(60):
        guard = OneLook(Guardrail("errors", level=0.8), 24_000, 3)
        for number in range(60):
            total = rng.binomial(100, 0.1) + float(NOISE.sample(rng))
            guard.take(number % 3, Estimate(total, ErrorDistribution(100, 1, NOISE)))
            if guard.newly_worse(range(3), 0):
                paused += 1
                break
    assert paused > most_failures(60, 0.2)


def test_whole_runs_pause_only_the_bad_option() -> None:
    """40 runs: of the bad option's at least 37, of the good one's no more than the rate allows."""
    result = simulate(
        "private-med",
        means=(0.2, 0.3, 0.4),
        guardrail="errors",
        guardrail_means=(0.1, 0.1, 0.2),
        control_share=0.2,
        horizon=30_000,
        runs=40,
        workers=1,
    )
    counts = result.summary()["paused_runs"]
    assert counts["option 3"] >= 37
    assert counts.get("option 2", 0) <= most_failures(40, 0.05)
    assert "option 1" not in counts
    assert result.summary()["winner"] == "option 2"


# What an experiment makes of it


def test_a_clearly_worse_option_is_paused_with_its_reason() -> None:
    experiment = guarded()
    while not experiment.paused:
        assert play_rounds(experiment)
    (option, reason), *others = experiment.paused.items()
    assert (option, others) == ("o2", [])
    assert reason.startswith("errors is clearly worse than the control's: 0.")
    assert reason.endswith("(lower is better)")
    rows = finish(experiment).estimates()
    assert [row.paused for row in rows] == [None, None, reason]
    assert [row.decision for row in rows] == ["worse", "best", "paused"]
    for row, error in zip(rows, ERRORS, strict=False):
        assert row.guardrail_low is not None
        assert row.guardrail_high is not None
        assert row.guardrail_low < error < row.guardrail_high
        assert row.guardrail is not None
        assert row.guardrail_low < row.guardrail < row.guardrail_high
    assert experiment.best() == experiment.decided() == "o1"
    assert rows[2].best == 0


def test_a_paused_option_is_not_assigned_until_resumed_manually() -> None:
    experiment = guarded(horizon=60_000)
    while not experiment.paused:
        assert play_rounds(experiment)
    assert experiment.best() != "o2"  # before new rounds are planned, too
    for _ in range(3):
        assert all(round_.arm != 2 for round_ in play_rounds(experiment))
    experiment.resume("o2")
    assert experiment.paused == {}
    held = {round_.arm for _ in range(4) for round_ in play_rounds(experiment)}
    assert 2 in held
    assert finish(experiment).paused == {}  # it is paused once, whatever comes
    assert experiment.best() == experiment.decided() == "o2"


def test_manually_paused_options_say_so_and_stay_in_the_comparison() -> None:
    experiment = guarded()
    experiment.pause("o1")
    assert experiment.paused == {"o1": "by hand"}
    assert [row.paused for row in experiment.estimates()] == [None, "by hand", None]
    experiment.resume("o1")
    assert [row.paused for row in experiment.estimates()] == [None, None, None]


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_the_control_is_never_paused(better: str) -> None:
    """However bad it is, and the others are no worse."""
    errors = (0.9, 0.1, 0.1) if better == "lower" else (0.1, 0.9, 0.9)
    world = TwoMetrics(Bernoulli(RATES[:3]), Bernoulli(errors))
    experiment = finish(guarded(guardrail_better=better), world)
    assert experiment.paused == {}
    assert experiment.estimates()[0].participants > 3_000


@pytest.mark.parametrize(("better", "paused"), [("lower", ["o2"]), ("higher", ["o1"])])
def test_the_direction_determines_which_values_are_worse(better: str, paused: list[str]) -> None:
    world = TwoMetrics(Bernoulli(RATES[:3]), Bernoulli((0.4, 0.15, 0.65)))
    assert list(finish(guarded(guardrail_better=better), world).paused) == paused


def test_differences_within_the_margin_are_tolerated() -> None:
    assert list(finish(guarded(guardrail_margin=0.1)).paused) == ["o2"]
    assert finish(guarded(guardrail_margin=0.35)).paused == {}


def test_added_options_are_monitored_too() -> None:
    experiment = guarded(horizon=60_000)
    play_rounds(experiment)
    experiment.add("o3")
    experiment.add("o4")
    finish(experiment)
    assert sorted(experiment.paused) == ["o2", "o4"]
    assert len(experiment.estimates()) == 5


def test_a_removed_option_is_not_paused() -> None:
    experiment = guarded()
    rounds = experiment.propose()
    experiment.remove("o2")
    for round_ in rounds:
        observe(experiment, round_)
    finish(experiment)
    assert experiment.paused == {}
    assert experiment.estimates()[2].decision == "removed"


CHANGES = st.sampled_from(["add", "pause", "resume", "remove", "nothing"])


@pytest.mark.parametrize("name", ["private-med", "private-klucb"])
@given(changes=st.lists(st.tuples(CHANGES, st.integers(0, 4)), max_size=8))
@settings(max_examples=4, deadline=None)
def test_restarts_pause_no_option_twice(name: str, changes: list[tuple[str, int]]) -> None:
    mine, other = guarded(name=name), guarded(name=name)
    pauses: dict[str, int] = {}
    for change, place in [*changes, *[("nothing", 0)] * 400]:
        before = mine.paused
        for each in (mine, other):
            option = each.options[place % len(each.options)]
            with suppress(TacitError):  # the control, a removed one
                if change == "add" and len(each.options) < len(RATES):
                    each.add(f"o{len(each.options)}")
                elif change in ("pause", "resume", "remove"):
                    getattr(each, change)(option)
        if change != "nothing":
            other = restored(other)
        assert mine.propose() == other.propose()
        rounds = play_rounds(mine)
        assert rounds == play_rounds(other)
        for option, why in mine.paused.items():
            if why != "by hand" and before.get(option) != why:
                pauses[option] = pauses.get(option, 0) + 1
        if not rounds:
            break
    assert mine.finished
    assert as_json(mine) == as_json(restored(other))
    assert mine.estimates() == restored(other).estimates()
    assert all(count == 1 for count in pauses.values())
    assert "o0" not in pauses


def test_parts_of_the_failure_probability_sum_to_at_most_one() -> None:
    """Over wrong leaders and true bests: one fixed best before a pause, any pair after it."""
    for first in (2, 5, 50):
        for late in (0, 1, 20):
            options = range(first + late)
            before, after = (
                SummarySettings(first=first, halted=frozenset()),
                SummarySettings(first=first, halted=frozenset({0})),
            )
            kept = max(
                sum(before.share(k) * before.rival_factor(b) for k in options) for b in options
            )
            pairs = sum(after.share(k) * after.rival_factor(b) for k in options for b in options)
            assert kept + pairs <= 1 + 1e-12
    assert SummarySettings(first=4).rival_factor(1) == 4 * SummarySettings(first=4).share(1)


def test_the_total_failure_probability_of_a_guardrail_is_as_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of every option the most that is ever risked, those of the start and later ones."""
    risked: dict[int, float] = {}
    guard = Guard(Guardrail("errors", level=0.9), 1000, 3)

    def note(mine: Tally, _: Tally, level: float, __: float) -> bool:
        option = next(k for k, one in enumerate(guard.tallies) if one is mine)
        risked[option] = max(risked.get(option, 0.0), math.exp(-level))
        return False

    monkeypatch.setattr("tacit.bandits.guardrail.is_larger", note)
    for later in range(10):
        assert guard.newly_worse(range(3 + later), 0) == []
        guard.add()
    assert len(risked) == 12
    assert 0.08 < sum(risked.values()) <= 0.1


# Rejections


def test_a_guardrail_needs_a_control() -> None:
    experiment = guarded()
    bare = Experiment.of(experiment.learner, experiment.mechanism, experiment.options)
    with pytest.raises(
        TacitError, match=r"no control to compare with: call keep_control\(option, share\) first"
    ):
        bare.guard("errors")
    with pytest.raises(TacitError, match="give the control a share, such as"):
        guarded(control_share=0.0)


def test_a_guardrail_needs_a_second_metric_under_the_same_guarantee() -> None:
    single = begin("private-med", ["a", "b"], binary=True, horizon=9_000, control_share=0.2)
    before = as_json(single)
    with pytest.raises(TacitError, match=r"has 1 metrics: must have 2\. Make it of factories"):
        single.guard("errors")
    assert as_json(single) == before
    assert single.guardrail is None


def test_a_guardrail_is_set_once_before_the_first_round() -> None:
    experiment = guarded()
    assert experiment.guardrail == Guardrail("errors")
    with pytest.raises(TacitError, match="which is too late: there is at most one"):
        experiment.guard("visits")
    started = begin(
        "private-med", ["a", "b"], binary=True, horizon=9_000, control_share=0.2, guardrail="x"
    )
    data = started.to_dict() | {"guard": None}
    late = Experiment.from_dict(data)
    late.propose()
    with pytest.raises(TacitError, match="set before the first round"):
        late.guard("errors")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "has no name"),
        ({"better": "faster"}, "better is 'faster': must be one of lower, higher"),
        ({"margin": -0.1}, "margin is -0.1"),
        ({"margin": 1.0}, "margin is 1"),
        ({"level": 1.0}, "level is 1"),
    ],
)
def test_invalid_guardrails_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        Guardrail(**{"name": "errors", **options})


def test_the_control_remains_the_baseline() -> None:
    experiment = guarded()
    with pytest.raises(TacitError, match="compares all options with o0: keep that as the control"):
        experiment.keep_control("o1", 0.2)
    experiment.keep_control("o0", 0.3)


def test_an_estimate_without_the_second_metric_is_rejected_and_nothing_changes() -> None:
    experiment = guarded()
    round_ = experiment.propose()[0]
    protocol = experiment.open(round_)
    whole = protocol.simulate(
        WORLD.play(round_, protocol, np.random.default_rng(0)).load, np.random.default_rng(1)
    )
    before = as_json(experiment)
    bad = Estimate(np.array([1.0, np.nan]), whole.error, whole.guarantee_id)
    for estimate, message in (
        (whole.metric(0), "has 1 numbers: must have 2, the second one of the guardrail errors"),
        (bad, "must be a finite number"),
        (Estimate(whole.total, whole.error), "has guarantee none: must be"),
    ):
        with pytest.raises(TacitError, match=message):
            experiment.observe(round_, estimate)
        assert as_json(experiment) == before
    experiment.observe(round_, whole)
