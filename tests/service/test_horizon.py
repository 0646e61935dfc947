"""Only released reports use up the participants of an experiment, and its end has a reason."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.pairs import OPTIONS, START, Pair, described, experiment_of, sqlite_pair
from tests.service.test_parties import WORTH, rounds_of

from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.service import answers, round_scheduler
from tacit.service.schema import State
from tacit.terms import approve_successor, cosign
from tacit.types import Aggregate

PLANNED = (300, 600, 1500)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with sqlite_pair(tmp_path) as made:
        yield made


def to_the_end(pair: Pair, digest: bytes) -> None:
    """Rounds, until the experiment has ended."""
    for _ in range(30):
        pair.hold(digest, WORTH.__getitem__)
        if pair.coordinator.status(digest)["ended"]:
            return


@pytest.mark.extended
def test_an_experiment_without_participants_never_ends_by_itself(pair: Pair) -> None:
    digest = pair.begin(experiment_of(300))
    for _ in range(6):
        pair.step(2)
        assert rounds_of(pair, digest, "open")
        pair.clock.now += 200
        pair.step(3)
    status = pair.coordinator.status(digest)
    assert (status["state"], status["ended"], status["people"]["reported"]) == ("running", None, 0)
    assert pair.coordinator._snapshot(digest).experiment.learner.played == 0


@pytest.mark.extended
def test_participants_without_reports_end_no_experiment(pair: Pair) -> None:
    """Sybils waste rounds; afterwards the experiment has as many participants as before."""
    digest = pair.begin(experiment_of(900))
    pair.hold(digest, WORTH.__getitem__)
    before = pair.coordinator._snapshot(digest).experiment.learner.played
    for _ in range(4):
        assert pair.hold(digest, WORTH.__getitem__, come=0.0)
    after = pair.coordinator._snapshot(digest)
    assert (after.row.state, after.experiment.learner.played) == ("running", before)
    assert before == sum(row.reports or 0 for row in after.rounds)
    to_the_end(pair, digest)
    assert pair.coordinator.status(digest)["ended"] == "participants-reached"


@pytest.mark.extended
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.3]),
    horizon=st.sampled_from(PLANNED),
)
def test_only_released_reports_end_an_experiment(seed: int, share: float, horizon: int) -> None:
    """Random sequences of empty, aborted, partly and fully reported rounds, through storage."""
    rng, released, lost = np.random.default_rng(seed), 0, 0
    experiment = experiment_of(horizon)
    experiment.keep_control(OPTIONS[0], share, explore=bool(share))
    for _ in range(400):
        experiment = Experiment.from_dict(json.loads(json.dumps(experiment.to_dict())))
        left = horizon - experiment.learner.played
        rounds = round_scheduler._next_rounds(experiment, Fraction(0))
        if not rounds:
            break
        assert experiment.learner.played == released
        assert sum(round_.participants for round_ in rounds) <= left
        for round_ in rounds:
            part = 1.0 if lost >= 60 else rng.choice([0.0, 0.0, 0.6, 1.0])
            lost += not part
            if not part:
                experiment.skip(round_, 0)
                continue
            reports = math.ceil(part * round_.participants)
            protocol: Any = experiment.open(round_)
            experiment.observe(round_, protocol.analyze(Aggregate((reports // 2,), reports)))
            released += reports
        assert released <= horizon
        assert answers.end_reason(State.RUNNING, experiment) is None
    assert experiment.finished
    assert experiment.learner.played == horizon
    assert answers.end_reason(State.FINISHED, experiment) == "participants-reached"
    assert released > horizon // 3  # the rest is fewer than the next round of the learner


def test_a_stopped_experiment_states_the_reason(pair: Pair) -> None:
    digest = pair.begin()
    assert pair.coordinator.status(digest)["ended"] is None
    pair.coordinator.pause(digest)
    assert pair.coordinator.status(digest)["ended"] is None
    pair.coordinator.stop(digest)
    assert pair.coordinator.status(digest)["ended"] == "stopped-by-hand"


@pytest.mark.extended
def test_a_later_last_day_resumes_an_ended_experiment(pair: Pair) -> None:
    day = date.fromtimestamp(START)
    digest = pair.begin(experiment_of(1500), last_day=day)
    pair.hold(digest, WORTH.__getitem__)
    before = pair.coordinator.status(digest)
    pair.clock.now += 86_400
    pair.step(2)
    status = pair.coordinator.status(digest)
    assert (status["state"], status["ended"]) == ("finished", "last-day-passed")
    old = pair.coordinator.terms(digest).terms
    terms = replace(old, last_day=date(2027, 12, 31), predecessor=digest)
    after = pair.coordinator.succeed(terms)
    signature = cosign(terms, pair.secrets[1])
    mine, other = (
        approve_successor(old, terms, key, party.records)
        for key, party in zip(pair.secrets, (pair.coordinator, pair.helper), strict=True)
    )
    pair.helper.admit(terms, (pair.coordinator.signature(after), signature), (mine, other))
    pair.coordinator.cosign(after, signature, other)
    to_the_end(pair, after)
    status = pair.coordinator.status(after)
    assert status["people"]["reported"] > before["people"]["reported"] > 0
    assert status["ended"] == "participants-reached"


def test_a_temporarily_wrong_clock_ends_no_experiment(pair: Pair) -> None:
    """It had passed the last day: only successor terms with a later one continued."""
    digest = pair.begin(experiment_of(300))
    now, pair.clock.now = pair.clock.now, pair.clock.now + 20 * 365 * 86_400
    pair.step(3)
    assert pair.coordinator.status(digest)["ended"] == "last-day-passed"
    pair.clock.now = now
    pair.coordinator.resume(digest)
    to_the_end(pair, digest)
    assert pair.coordinator.status(digest)["ended"] == "participants-reached"
    pair.coordinator.resume(digest)
    pair.step(2)
    assert pair.coordinator.status(digest)["ended"] == "participants-reached"


def extended(pair: Pair, digest: bytes, participants: int | None) -> bytes:
    """Successor terms with so many participants, signed by both."""
    old = pair.coordinator.terms(digest).terms
    terms = replace(old, predecessor=digest)
    after = pair.coordinator.succeed(terms, participants)
    signature = cosign(terms, pair.secrets[1])
    mine, other = (
        approve_successor(old, terms, key, party.records)
        for key, party in zip(pair.secrets, (pair.coordinator, pair.helper), strict=True)
    )
    pair.helper.admit(terms, (pair.coordinator.signature(after), signature), (mine, other))
    pair.coordinator.cosign(after, signature, other)
    return after


@pytest.mark.extended
def test_more_planned_participants_resume_an_ended_experiment(
    pair: Pair,
) -> None:
    digest = pair.begin(experiment_of(600))
    to_the_end(pair, digest)
    before = pair.coordinator.status(digest)
    assert before["ended"] == "participants-reached"
    assert 0 < before["people"]["reported"] <= 600
    same = extended(pair, digest, 600)
    assert pair.coordinator.status(same)["ended"] == "participants-reached"
    with pytest.raises(TacitError, match="participants is 500: must be more than 600"):
        pair.coordinator.succeed(replace(pair.coordinator.terms(same).terms, predecessor=same), 500)
    after = extended(pair, same, 1500)
    assert pair.coordinator.status(after)["state"] == "running"
    estimated = pair.coordinator.estimates(after)["options"]
    assert estimated == pair.coordinator.estimates(digest)["options"]  # nothing is forgotten
    to_the_end(pair, after)
    status = pair.coordinator.status(after)
    assert (status["ended"], status["people"]["planned"]) == ("participants-reached", 1500)
    assert before["people"]["reported"] < status["people"]["reported"] <= 1500
    assert status["people"]["reported"] > 700  # most of those planned in addition came


def test_additional_participants_need_both_signatures(pair: Pair) -> None:
    digest = pair.begin(experiment_of(600))
    pair.hold(digest, WORTH.__getitem__)
    terms = replace(pair.coordinator.terms(digest).terms, predecessor=digest)
    pair.coordinator.succeed(terms, 5000)
    assert pair.coordinator.status(digest)["people"]["planned"] == 600
    after = extended(pair, digest, 3000)  # published again, before anybody signed
    assert pair.coordinator.status(after)["people"]["planned"] == 3000
    pair.hold(after, WORTH.__getitem__)
    assert pair.coordinator.status(after)["state"] == "running"


@pytest.mark.extended
@settings(max_examples=15, deadline=None)
@given(
    no_show=st.fractions(0, Fraction(9, 10), max_denominator=20),
    share=st.sampled_from([0.0, 0.3]),
    horizon=st.sampled_from(PLANNED),
    seed=st.integers(0, 2**32),
)
def test_rounds_offer_additional_slots_for_expected_no_shows(
    no_show: Fraction, share: float, horizon: int, seed: int
) -> None:
    rng, released = np.random.default_rng(seed), 0
    experiment = experiment_of(horizon)
    experiment.keep_control(OPTIONS[0], share, explore=bool(share))
    for _ in range(400):
        experiment = Experiment.from_dict(json.loads(json.dumps(experiment.to_dict())))
        usual = Experiment.from_dict(experiment.to_dict()).propose()
        rounds = round_scheduler._next_rounds(experiment, no_show)
        if not rounds:
            break
        assert sum(round_.participants for round_ in rounds) <= horizon - released
        needed = [round_ for round_ in usual if round_.released]
        fits = sum(math.ceil(one.participants / (1 - no_show)) for one in needed)
        for round_, one in zip(rounds, needed, strict=True):
            wanted = math.ceil(one.participants / (1 - no_show))
            assert one.participants <= round_.participants <= wanted
            if fits <= horizon - released and needed == usual:
                assert round_.participants == wanted
        for round_ in rounds:
            reports = int(rng.integers(round_.participants // 2, round_.participants + 1))
            protocol: Any = experiment.open(round_)
            assert protocol.participants == round_.participants
            experiment.observe(round_, protocol.analyze(Aggregate((reports // 2,), reports)))
            released += reports
    assert released <= horizon


def test_a_round_with_the_expected_no_shows_reaches_its_minimum(pair: Pair) -> None:
    rate = Fraction(1, 4)
    needed = [one.participants for one in experiment_of().propose()]
    digest = pair.begin(no_show=rate)
    pair.step(2)
    places = [int(str(one["places"])) for one in rounds_of(pair, digest, "open")]
    assert places == [math.ceil(one / (1 - rate)) for one in needed]
    asked = pair.participants(digest, sum(places) + 5)
    assert len(asked) == sum(places)
    minimum = {described(one).minimum for one in asked}
    assert minimum == {pair.coordinator.terms(digest).terms.aggregation.minimum_batch_size}
    pair.report(digest, asked[: math.ceil(len(asked) * (1 - rate))], WORTH.__getitem__)
    pair.clock.now += 200
    pair.step(3)
    released = rounds_of(pair, digest, "opened")
    reports = sum(int(str(one["reports"])) for one in released)
    assert len(released) == len(needed)
    assert reports >= sum(needed)
    assert pair.coordinator._snapshot(digest).experiment.learner.played == reports
