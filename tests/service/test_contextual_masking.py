"""Contextual experiments over secure aggregation: choices on devices, noise shares, dropouts."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.service.deployed import KEYS, SECRETS, Deployed, definition_of, deployed
from tests.service.test_contextual import MEANS
from tests.service.test_device_shares import noting

from tacit.aggregation.masking import MaskingRound
from tacit.client.choices import choose, numbers_of
from tacit.client.trust_models import masking, reporter
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteLaplace
from tacit.protocols.statistic_sums import SecureStatistic
from tacit.protocols.statistics import ScaledMomentStatistic
from tacit.sampling.draws import draw_gaussian, draw_laplace_share
from tacit.service.assignment import Assigned
from tacit.service.definition import Definition
from tacit.service.schema import Stage
from tacit.terms import MomentTerms, Pinned, cosign, in_words
from tacit.terms.visibility import visibility

TABLE = ("device: phone, desktop",)
MOMENTS = ("device: phone, desktop", "age: 18 to 90")


def contextual(fields: tuple[str, ...] = TABLE, **changed: Any) -> Definition:
    given: dict[str, Any] = {"algorithm": "private-contextual", "context_fields": fields}
    return definition_of("secure-aggregation", **given | changed)


def described(one: Deployed, assigned: Assigned) -> MaskingRound:
    found = one.described(assigned)
    assert isinstance(found, MaskingRound)
    return found


def hold(one: Deployed, rng: random.Random, come: float = 1.0) -> int:
    """All slots are joined, this fraction reports, and the stages run."""
    one.step(2)
    wanted = sum(row.slots - row.assigned for row in one.coordinator.rounds(Stage.OPEN))
    asked = one.join(wanted) if wanted else []
    sent = []
    for each in asked:
        context: dict[str, Any] = {"device": rng.choice(["phone", "desktop"])}
        if len(one.definition.context_fields) > 1:
            context["age"] = rng.uniform(18, 90)
        chosen = choose(one.pinned.terms, described(one, each).binding, context)
        liked = rng.random() < MEANS[context["device"]][each.option or chosen.option]
        if rng.random() < come:
            sent.append((each, one.report(each, *chosen.levels[:-1], int(liked))))
    assert set(one.send(sent)) <= {None}
    one.clock.now += 200
    one.step(3)
    one.answer_stages()
    return len(asked)


@pytest.mark.extended
@pytest.mark.parametrize("fields", [TABLE, MOMENTS])
def test_each_context_gets_its_best_option(tmp_path: Path, fields: tuple[str, ...]) -> None:
    small: dict[str, Any] = {"participants": 120, "min_batch_size": 5, "evaluation": Fraction(0)}
    with deployed(contextual(fields, epsilon=Fraction(8), **small), tmp_path) as one:
        rng = random.Random(3)
        while hold(one, rng):
            pass
        status = one.coordinator.status(one.digest)
        found = one.coordinator.estimates(one.digest)["contexts"]
    assert status["state"] == "finished"
    best = {one["context"]["device"]: one["option"] for one in found["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}


@pytest.mark.extended
def test_rounds_tolerate_the_stated_dropouts_and_no_more(tmp_path: Path) -> None:
    small: dict[str, Any] = {"min_batch_size": 8, "missing": Fraction(1, 4), "participants": 60}
    with deployed(contextual(evaluation=Fraction(0), **small), tmp_path) as one:
        for lost, stage in ((0, Stage.RELEASED), (1, Stage.ABORTED)):
            one.step(2)
            (row,) = one.coordinator.rounds(Stage.OPEN)
            asked = one.join(row.slots)
            least = described(one, asked[0]).minimum
            assert least >= row.slots - row.slots // 4
            come = asked[: least - lost]
            assert set(one.send([(each, one.report(each, 0, 1, 1)) for each in come])) == {None}
            one.clock.now += 200
            one.step(3)
            one.answer_stages()
            ended = {r.identity: r for r in one.coordinator.rounds(Stage.RELEASED, Stage.ABORTED)}
            assert ended[row.identity].stage is stage
            assert ended[row.identity].reports == (0 if lost else least)


def test_terms_state_who_adds_the_noise_and_devices_verify_it(tmp_path: Path) -> None:
    half: dict[str, Any] = {"epsilon": Fraction(1), "evaluation": Fraction(1, 2)}
    with deployed(contextual(participants=3000, **half), tmp_path) as one:
        one.step(2)
        assigned = one.join(400)
        terms, pinned = one.pinned.terms, one.pinned
        chosen = described(one, next(a for a in assigned if not a.option)).offer()
        scalar = described(one, next(a for a in assigned if a.option)).offer()
    seen = visibility(terms)
    assert "one cell of a table, adds its share of the noise" in seen.device
    assert [sight.never for sight in seen.sights] == [
        "what anybody's device knows, chose or answered"
    ]
    assert "Your device chooses which one" in " ".join(in_words(terms))
    assert terms.noise.by == "devices"
    assert (chosen.total, scalar.total) == (Fraction(2), Fraction(1))
    assert pinned.check(chosen) == pinned.check(scalar) == 1
    assert chosen.divisor is not None
    dishonest = terms.aggregation.dishonest(chosen.slots)
    assert chosen.divisor <= chosen.minimum - dishonest
    for changed, said in (
        ({"total": Fraction(199, 100)}, "total noise of the round is 199/100: must be at least 2"),
        ({"divisor": chosen.minimum - dishonest + 1}, "share divisor of the round"),
        ({"minimum": chosen.minimum - 1}, "minimum of the round"),
        ({"policy": chosen.policy[:-4]}, "policy of the round is invalid"),
        ({"metrics": 2}, "number of metrics of the round is 2: must be 8"),
    ):
        with pytest.raises(Rejected, match=said):
            pinned.check(replace(chosen, **changed))
    with pytest.raises(Rejected, match="total noise of the round is 1/2: must be at least 1"):
        pinned.check(replace(scalar, total=Fraction(1, 2)))


def test_moments_need_noise_for_the_joint_sensitivity(tmp_path: Path) -> None:
    with deployed(contextual(MOMENTS, participants=9000, epsilon=Fraction(1)), tmp_path) as one:
        one.step(2)
        given = next(a for a in one.join(2000) if not a.option)
        offer, pinned = described(one, given).offer(), one.pinned
    assert offer.total is not None
    assert pinned.terms.noise.distribution == "discrete-gaussian"
    assert pinned.check(offer) == 1
    with pytest.raises(Rejected, match="total noise of the round"):
        pinned.check(replace(offer, total=offer.total - 1))
    with pytest.raises(Rejected, match="total noise of the round"):
        pinned.check(replace(offer, total=Fraction(1 << 999)))
    weak = replace(pinned.terms.noise, minimum=offer.total * Fraction(9, 10))
    with pytest.raises(TacitError, match="moments have a delta of"):
        replace(pinned.terms, noise=weak)


def test_a_device_rejects_shares_too_narrow_to_sum_to_the_noise(tmp_path: Path) -> None:
    """At a coarse resolution 2^31 discrete Gaussians of σ/√n do not add up to a Gaussian."""
    with deployed(contextual(MOMENTS, participants=9000, epsilon=Fraction(1)), tmp_path) as one:
        one.step(2)
        given = next(a for a in one.join(2000) if not a.option)
        offer, terms = described(one, given).offer(), one.pinned.terms
    assert isinstance(terms.context, MomentTerms)
    smaller = tuple(
        tuple(tuple(round(0.9 * number) for number in row) for row in matrix)
        for matrix in terms.context.matrices
    )
    coarse = replace(terms.context, matrices=smaller, resolution=16)
    sigma = terms.noise.scale * Fraction(16, 4096) ** 2 * Fraction(11, 10)
    noise = replace(terms.noise, scale=Fraction(math.ceil(sigma)), minimum=None)
    changed = replace(terms, context=coarse, noise=noise)
    pinned = Pinned(changed, (cosign(changed, SECRETS[0]),), (KEYS[0],))
    given_noise = replace(offer, terms=changed.digest, total=noise.scale)
    assert pinned.check(given_noise) == 1
    many: dict[str, Any] = {
        "slots": 1 << 32,
        "minimum": 1 << 32,
        "divisor": 1 << 31,
        "modulus": 1 << 62,
    }
    with pytest.raises(Rejected, match="delta of the noise"):
        pinned.check(replace(given_noise, **many))


def test_shares_of_the_guaranteed_honest_devices_meet_the_guarantee() -> None:
    """Of 100 slots 20 may be missing and 10 dishonest: 70 shares are noise of scale 2/ε exactly."""
    experiment = contextual(participants=4000, epsilon=Fraction(1)).experiment()
    (round_, *_) = experiment.propose()
    protocol = experiment.open(round_)
    assert isinstance(protocol, SecureStatistic)
    n = round_.participants
    certain = n - int(n * 0.2) - int(n * 0.1)
    assert protocol.honest <= certain
    for own in protocol.own:
        summed = own.power(protocol.honest)
        assert summed.variance == pytest.approx(DiscreteLaplace(2).variance)
    grid = np.arange(-40, 41)
    exact = DiscreteLaplace(2).log_pmf(grid)
    ratios = [np.abs(exact[1:] - exact[:-1]).max()] * 2  # two cells move by one
    assert sum(ratios) == pytest.approx(1.0)


# The noise of real devices

WIDE = ("a: " + ", ".join(f"v{n}" for n in range(16)),)  # 32 features, 560 numbers
CELLS = ("a: " + ", ".join(f"v{n}" for n in range(40)),)  # 80 cells, 160 numbers
ALARM = 1e-6  # false positive rate of each statistic


def released_noise(directory: Path) -> Any:
    """Released sums of moments less the true ones, in standard deviations."""
    small: dict[str, Any] = {"min_batch_size": 4, "participants": 20, "evaluation": Fraction(0)}
    defined = contextual(WIDE, statistic="moments", **small)
    assert defined.context is not None
    known = defined.context.features(defined.options).of({"a": "v3"})[1]
    with deployed(defined, directory) as one:
        one.step(2)
        (row,) = one.coordinator.rounds(Stage.OPEN)
        asked = one.join(row.slots)
        terms, about = one.pinned.terms, described(one, asked[0])
        true = len(asked) * np.array(numbers_of(terms, about.binding, (*known, 1)))
        assert set(one.send([(each, one.report(each, *known, 1)) for each in asked])) == {None}
        one.clock.now += 200
        one.step(3)
        one.answer_stages()
        (row,) = one.coordinator.rounds(Stage.RELEASED)
    assert row.reports == 20
    variance = float(about.noise.total) ** 2 * 20 / about.noise.divisor
    units = ScaledMomentStatistic(32, 4096).units
    return (np.array(json.loads(row.total or "")) / units - true) / math.sqrt(variance)


def gaussian_problems(noise: Any) -> set[str]:
    """What is wrong with independent normal variables of variance 1."""
    found, square = set(), float((noise**2).sum())
    if min(stats.chi2.cdf(square, noise.size), stats.chi2.sf(square, noise.size)) < ALARM:
        found.add("another width")
    if stats.norm.sf(abs(noise.sum()) / math.sqrt(noise.size)) < ALARM:
        found.add("reused between numbers")
    return found


def drawn_shares(directory: Path) -> Any:
    """What devices add to a table, in standard deviations: devices × numbers."""
    with deployed(contextual(CELLS, participants=900, evaluation=Fraction(0)), directory) as one:
        one.step(2)
        asked = one.join(90)
        assert len(asked) == 90
        for each in asked:
            one.report(each, 7, 1, 1)
        terms, about = one.pinned.terms, described(one, asked[0])
        sessions = reporter(terms)._sessions  # type: ignore[attr-defined]
        numbers = [sessions[masking._key(running)].numbers for running in one.running]
    exact = np.array(numbers_of(terms, about.binding, (7, 1, 1)))
    assert (about.noise.total, about.noise.divisor) == (Fraction(1), 63)  # 2 / ε
    variance = DiscreteLaplace(1).variance / about.noise.divisor
    return (np.array(numbers) - exact) / math.sqrt(variance)


def share_problems(noise: Any) -> set[str]:
    """What is wrong with 90 × 160 shares of discrete Laplace noise, each 1/63 of it.

    Their fourth moment is 3 + 3 · 63 squared variances, so the mean square is below 0.4 with
    probability at most exp(-n 0.6² / (2 · 192)) = 1e-6, as squares are not negative. It is 1 ± 0.12
    and sums over the numbers of a device have mean square 1 ± 0.2, both far below the upper limits.
    """
    found, square = set(), float((noise**2).mean())
    if not 0.4 < square < 3:
        found.add("another width")
    if float((noise.sum(axis=1) ** 2).mean()) / noise.shape[1] > 5:
        found.add("reused between numbers")
    return found


def test_devices_add_noise_shares_to_every_cell(tmp_path: Path) -> None:
    assert share_problems(drawn_shares(tmp_path)) == set()


@pytest.mark.parametrize("fault", ["halved", "missing", "reused"])
def test_wrong_noise_shares_of_tables_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(masking, "draw_laplace_share", faulty(draw_laplace_share, fault))
    assert share_problems(drawn_shares(tmp_path)) != set()


def faulty(real: Any, fault: str) -> Any:
    known: list[int] = []

    def draw(scale: Fraction, *shares: int) -> int:
        if fault == "reused":  # one draw for all numbers of a report
            if len(known) % 160 == 0:
                known.append(real(scale, *shares))
            else:
                known.append(known[-1])
            return known[-1]
        half = scale / (2 if shares else 4)  # Gaussian draws take σ²
        return int(real(half, *shares)) if fault == "halved" else 0

    return draw


def test_the_evaluation_slice_beside_moments_has_laplace_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sums move by one: shares of discrete Laplace noise of scale 1/ε, no Gaussian ones."""
    about: dict[str, Any] = {"epsilon": Fraction(1, 2), "evaluation": Fraction(1, 2)}
    with deployed(contextual(MOMENTS, participants=9000, **about), tmp_path) as one:
        one.step(2)
        given = next(a for a in one.join(400) if a.option)
        found = described(one, given)
        gaussian = noting(masking, "draw_gaussian", monkeypatch)
        laplace = noting(masking, "draw_laplace_share", monkeypatch)
        one.report(given, 1)
    assert one.pinned.terms.noise.distribution == "discrete-gaussian"
    assert laplace == [(Fraction(2), found.noise.divisor)]
    assert not gaussian


def test_released_moments_have_the_noise_of_all_devices(tmp_path: Path) -> None:
    assert gaussian_problems(released_noise(tmp_path)) == set()


@pytest.mark.extended
@pytest.mark.parametrize("fault", ["halved", "missing"])
def test_wrong_noise_shares_of_moments_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(masking, "draw_gaussian", faulty(draw_gaussian, fault))
    assert gaussian_problems(released_noise(tmp_path)) != set()
