"""Options added and removed around any learner, a control, and sample ratio mismatch."""

from __future__ import annotations

import itertools
import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom
from tests.bandits.coverage import most_failures

from tacit.algorithms.registry import lookup
from tacit.bandits import Managed
from tacit.bandits.sample_ratio import TILTS, ResponseRates, SampleRatio
from tacit.environments import Bernoulli
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.types import Round

RATES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
LEARNERS = ("private-med", "private-klucb", "dist-dp-se", "thompson", "dp-se")


def experiment_of(name: str = "private-med", arms: int = 3, horizon: int = 20_000) -> Experiment:
    entry = lookup(name)
    problem = entry.make_problem({"arms": arms, "horizon": horizon})
    return entry.build(problem.for_environment(Bernoulli(RATES[:arms]), 0))


def play_rounds(experiment: Experiment, came: float = 1.0) -> list[Round]:
    rounds = experiment.propose()
    for round_ in rounds:
        rng = np.random.default_rng([round_.number, 3])
        if not round_.released:
            experiment.skip(round_)
            continue
        protocol: Any = experiment.open(round_)
        people = max(protocol.minimum, int(rng.binomial(round_.participants, came)))
        levels = Bernoulli(RATES).levels(round_.arm, people, protocol.precision, rng)
        experiment.observe(round_, protocol.simulate(levels, rng))
    return rounds


def restored(experiment: Experiment) -> Experiment:
    return Experiment.from_dict(json.loads(json.dumps(experiment.to_dict(), allow_nan=False)))


CHANGES = st.sampled_from(["add", "pause", "resume", "remove", "nothing", "hold"])


@pytest.mark.extended
@pytest.mark.parametrize("name", LEARNERS)
@given(changes=st.lists(st.tuples(CHANGES, st.integers(0, 5)), max_size=12))
@settings(max_examples=4, deadline=None)
def test_options_change_at_any_time_and_restarts_change_nothing(
    name: str, changes: list[tuple[str, int]]
) -> None:
    mine, other = experiment_of(name), experiment_of(name)
    for change, place in changes:
        for each in (mine, other):
            option = each.options[place % len(each.options)]
            with suppress(TacitError):  # the control, a removed one, the last one
                if change == "add" and len(each.options) < len(RATES):
                    each.add(f"new {len(each.options)}")
                elif change == "hold":
                    each.keep_control(option, 0.2)
                elif change in ("pause", "resume", "remove"):
                    getattr(each, change)(option)
        other = restored(other)
        assert mine.propose() == other.propose()
        assert play_rounds(mine) == play_rounds(other)
    for _ in range(10_000):
        if not play_rounds(mine):
            break
    assert mine.finished
    assert mine.learner.played == mine.learner.horizon
    asked = [row.participants for row in mine.estimates()]
    assert len(asked) == len(mine.options)
    assert mine.best() in mine.options


def test_a_paused_option_gets_no_participants_and_keeps_its_data() -> None:
    experiment = experiment_of(horizon=100_000)
    play_rounds(experiment)
    before = experiment.estimates()[2]
    experiment.pause("option 3")
    for _ in range(6):
        assert all(round_.arm != 2 for round_ in play_rounds(experiment))
    assert experiment.estimates()[2].mean == before.mean
    experiment.resume("option 3")
    learner = experiment.learner
    assert isinstance(learner, Managed)
    held = [round_.arm for _ in range(4) for round_ in play_rounds(experiment)]
    assert 2 in held
    assert experiment.estimates()[2].participants > before.participants
    assert held.count(0) < 4  # nobody starts anew


def test_a_new_best_option_is_found() -> None:
    experiment = experiment_of(horizon=200_000)
    experiment.keep_control("option 1", 0.2, explore=True)
    for _ in range(6):
        play_rounds(experiment)
    experiment.add("new")
    while play_rounds(experiment):
        pass
    assert experiment.decided() == "new"
    assert experiment.best() == "new"
    rows = experiment.estimates()
    assert [row.option for row in rows] == ["option 1", "option 2", "option 3", "new"]
    assert rows[3].low < 0.5 < rows[3].high
    experiment.remove("new")
    assert experiment.decided() != "new"
    assert experiment.estimates()[3].decision == "removed"


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_control_gets_its_share_and_cannot_be_removed(name: str, share: float) -> None:
    experiment = experiment_of(name, horizon=30_000)
    experiment.keep_control("option 1", share)
    given_, everyone = 0, 0
    while rounds := play_rounds(experiment):
        given_ += sum(round_.participants for round_ in rounds if round_.arm == 0)
        everyone += sum(round_.participants for round_ in rounds)
    assert everyone == 30_000
    assert given_ >= 0.97 * share * everyone
    assert experiment.estimates()[0].lift_low is None
    for change in (experiment.pause, experiment.remove):
        with pytest.raises(TacitError, match="the control, which cannot be paused or removed"):
            change("option 1")


def test_invalid_changes_are_rejected() -> None:
    experiment = experiment_of(arms=2)
    with pytest.raises(TacitError, match="'option 2', which exists"):
        experiment.add("option 2")
    with pytest.raises(TacitError, match="option is 'pink': must be one of option 1, option 2"):
        experiment.pause("pink")
    experiment.remove("option 2")
    with pytest.raises(TacitError, match="is the last one"):
        experiment.pause("option 1")
    with pytest.raises(TacitError, match="was removed: add"):
        experiment.resume("option 2")
    with pytest.raises(TacitError, match="share is 2"):
        experiment.keep_control("option 1", 2.0)
    linear: Any = lookup("cdp-dpe")
    table = np.array([[0.9, 0.1], [-0.8, 0.3], [0.1, -0.9]])
    actions = linear.build(linear.problem.of(**linear.defaults, table=table, horizon=3_000))
    with pytest.raises(TacitError, match="share one parameter cannot be changed"):
        actions.add("more")


def test_sample_ratio_mismatch_is_detected_for_the_right_option() -> None:
    """300 experiments of 40 rounds with equal loss, false-alarm rate 1e-6 at a level of 5%."""
    rng, alarms = np.random.default_rng(4), 0
    for _ in range(300):
        ratios = ResponseRates()
        for _ in range(40):
            asked = rng.integers(20, 2_000, 3).tolist()
            ratios.add([(k, n, int(rng.binomial(n, 0.8))) for k, n in enumerate(asked)], 3)
        alarms += ratios.result().p < 0.05
    assert alarms <= most_failures(300, 0.05)
    broken = ResponseRates()
    for _ in range(20):
        asked = [1_000, 1_000, 1_000]
        rates = (0.8, 0.8, 0.7)
        came = [(k, n, int(rng.binomial(n, rates[k]))) for k, n in enumerate(asked)]
        broken.add(came, 3)
    assert broken.result().mismatch
    assert (
        ResponseRates.from_dict(json.loads(json.dumps(broken.to_dict()))).result()
        == broken.result()
    )


def worth(rounds: list[list[tuple[int, int, int]]], option: int, tilt: float) -> float:
    """e^{δr} / (1 - s + s e^δ)^R, rounds multiplied."""
    factor = 1.0
    for held in rounds:
        asked, came = (sum(entry[place] for entry in held) for place in (1, 2))
        own = next(entry for entry in held if entry[0] == option)
        share = own[1] / asked
        factor *= math.exp(tilt * own[2]) / (1 - share + share * math.exp(tilt)) ** came
    return factor


def test_sample_ratio_evidence_is_a_mixture_kept_at_its_maximum() -> None:
    """Two options of the start, one that came later; the third round speaks against the first."""
    rounds = [
        [(0, 500, 370), (1, 500, 430), (2, 500, 420)],
        [(0, 500, 370), (1, 500, 420), (2, 500, 410)],
        [(0, 500, 430), (1, 500, 380), (2, 500, 410)],
    ]
    ratios, worst = ResponseRates(), 1.0
    for number, held in enumerate(rounds, start=1):
        ratios.add(held, 2)
        mixed = 1 - 1 / 4 - 1 / 4 - 1 / 4
        for option in range(3):
            values = [worth(rounds[:number], option, tilt) for tilt in TILTS]
            mixed += sum(values) / len(values) / 4
        worst = max(worst, mixed)
        assert 1 / ratios.result().p == pytest.approx(worst)
    assert worst > max(2.0, 2 * mixed)
    assert SampleRatio(0.9e-3).mismatch
    assert not SampleRatio(1e-3).mismatch


def test_random_losses_of_reports_keep_the_expected_evidence_below_one() -> None:
    """Added up over everything that can happen in two rounds of six participants, of whom four
    report.
    """
    expected = 0.0
    for first, second in itertools.product(range(1, 4), repeat=2):
        ratios = ResponseRates()
        for came in (first, second):
            ratios.add([(0, 3, came), (1, 3, 4 - came)], 2)
        chance = math.prod(float(hypergeom.pmf(came, 6, 3, 4)) for came in (first, second))
        expected += chance * math.exp(ratios._evidence(2))
    assert 0.9 < expected <= 1


def test_the_sample_ratio_of_an_experiment_counts_reports() -> None:
    experiment = experiment_of("dist-dp-se", horizon=100_000)
    play_rounds(experiment)
    assert experiment.sample_ratio().p == 1
    assert not experiment.sample_ratio().mismatch


def test_a_round_truncated_by_the_horizon_may_be_skipped_early() -> None:
    """A live experiment knows at once that nobody is asked in it; others still take part."""
    experiment = experiment_of(horizon=2_500)
    experiment.keep_control("option 1", 0.25, explore=True)
    while not experiment.finished:
        rounds = experiment.propose()
        for round_ in sorted(rounds, key=lambda one: one.released):
            if not round_.released:
                experiment.skip(round_)
                continue
            protocol: Any = experiment.open(round_)
            rng = np.random.default_rng([round_.number, 5])
            levels = Bernoulli(RATES).levels(
                round_.arm, round_.participants, protocol.precision, rng
            )
            experiment.observe(round_, protocol.simulate(levels, rng))
    assert experiment.learner.played == 2_500
