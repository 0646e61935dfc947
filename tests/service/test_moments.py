"""Contextual experiments with moments, live over two servers: features, policies, noise."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy import stats
from tests.service.deployed import ADDRESSES, KEYS, SECRETS, Deployed, definition_of, deployed
from tests.service.pairs import Link, described
from tests.service.test_contextual import device, forged, policy_slot

from tacit.aggregation import aggregator
from tacit.aggregation.aggregator_context import Draw
from tacit.aggregation.announcements import Binding
from tacit.assumptions import TowardsOutsiders
from tacit.bandits.contextual.device_choices import LinearChoice
from tacit.bandits.contextual.policy_learners import LinearThompson
from tacit.client.choices import choose, numbers_of
from tacit.contextual.policies import LinearPolicy
from tacit.environments.contextual import Codes
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace
from tacit.privacy import ApproximateDP
from tacit.privacy.gaussian import GaussianLoss
from tacit.protocols.slice_mechanism import SliceMechanism
from tacit.protocols.statistic_sums import StatisticTotals, TwoServerStatistic
from tacit.protocols.statistics import Answers, ScaledMomentStatistic
from tacit.sampling.draws import accepted_gaussian
from tacit.service.assignment import Assigned
from tacit.service.context_forecast import ContextForecast
from tacit.service.definition import Definition
from tacit.service.definition_files import parse, write
from tacit.service.definition_text import DefinitionError
from tacit.service.forecast import explained, forecast
from tacit.service.helper import Helper
from tacit.service.party import exact_noise
from tacit.service.schema import Stage
from tacit.terms import BY_POLICY, MomentTerms, Terms, in_words
from tacit.terms.accounting import vector_delta
from tacit.types import Arm, Round

FIELDS = ("device: phone, desktop", "age: 18 to 90")


def contextual(fields: tuple[str, ...] = FIELDS, **changed: Any) -> Definition:
    given = {"algorithm": "private-contextual", "context_fields": fields}
    return definition_of("two-servers", **given | changed)


def moments(definition: Definition) -> MomentTerms:
    assert isinstance(definition.context, MomentTerms)
    return definition.context


def somebody(rng: random.Random) -> dict[str, Any]:
    return {"device": rng.choice(["phone", "desktop"]), "age": rng.uniform(18, 90)}


def mean(context: Mapping[str, Any], option: str) -> float:
    """Friendly is better on phones, and a little for the young."""
    likes = (0.43 if context["device"] == "phone" else -0.43) + 0.02 * (54 - context["age"]) / 36
    return float(0.5 + likes if option == "friendly" else 0.5 - likes)


def report(one: Deployed, assigned: Assigned, rng: random.Random) -> Mapping[int, bytes]:
    context = somebody(rng)
    chosen = choose(one.pinned.terms, described(assigned).binding, context)
    option = assigned.option or chosen.option
    reward = rng.random() < mean(context, option)
    return one.report(assigned, *chosen.levels[:-1], int(reward))


def run_round(one: Deployed, rng: random.Random) -> int:
    one.step(2)
    wanted = sum(row.slots - row.assigned for row in one.coordinator.rounds(Stage.OPEN))
    asked = one.join(wanted) if wanted else []
    assert set(one.send([(each, report(one, each, rng)) for each in asked])) <= {None}
    one.clock.now += 200
    one.step(3)
    return len(asked)


def test_each_context_gets_its_best_option(tmp_path: Path) -> None:
    defined = contextual(
        epsilon=Fraction(8), participants=240, min_batch_size=5, evaluation=Fraction(1, 3)
    )
    with deployed(defined, tmp_path) as one:
        rng = random.Random(3)
        while run_round(one, rng):
            pass
        status = one.coordinator.status(one.digest)
        found = one.coordinator.estimates(one.digest)["contexts"]
    assert status["state"] == "finished"
    best = {one["context"]["device"]: one["option"] for one in found["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}
    assert len(found["gains"]) == 2
    assert status["guarantee"]["delta"] == 1e-6


# Definition and terms


def test_a_definition_with_numbers_round_trips_into_terms() -> None:
    defined = contextual(interactions=("age: friendly",), levels=4, epsilon=Fraction(1, 3))
    assert defined.statistic == "moments"
    assert defined.delta == Fraction(1, 10**6)
    assert parse(write(defined)) == defined
    assert parse(write(defined, yaml=True)) == defined
    terms = defined.terms(ADDRESSES[0], KEYS[0])
    assert Terms.decode(terms.encode()) == terms
    assert isinstance(terms.context, MomentTerms)
    assert terms.context.dimension == 3  # intercept, option, age with friendly
    assert terms.noise.distribution == "discrete-gaussian"
    assert terms.noise.by == "servers"
    words = " ".join(in_words(terms))
    assert "age (from 18 to 90)" in words
    assert "the report is 9 numbers" in words
    assert "discrete-gaussian noise of standard deviation" in words
    assert "Towards everybody but the two servers" in words


@pytest.mark.parametrize("evaluation", [Fraction(0), Fraction(1, 10)])
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(8)])
def test_terms_state_the_guarantee_towards_outsiders(
    epsilon: Fraction, evaluation: Fraction
) -> None:
    defined = contextual(epsilon=epsilon, evaluation=evaluation, participants=5000)
    (said,) = (x for x in in_words(defined.terms(ADDRESSES[0], KEYS[0])) if "everybody but" in x)
    guarantee = defined.experiment().guarantee
    assert guarantee is not None
    (stated,) = (x for x in guarantee.assumptions if isinstance(x, TowardsOutsiders))
    shown = float(said.partition("(")[2].partition(",")[0])
    assert shown == pytest.approx(stated.epsilon, rel=0.01)
    assert shown < epsilon


@pytest.mark.parametrize(
    ("fields", "changed", "statistic", "said"),
    [
        (("a: x, y",), {}, "table", "4 cells of context and option are at most 80"),
        (
            ("a: " + ", ".join(map(str, range(13))), "b: " + ", ".join(map(str, range(4)))),
            {},
            "moments",
            "104 cells of context and option are more than 80",
        ),
        (FIELDS, {}, "moments", "moments of 6 features, 27 numbers: the context has numbers"),
        (("a: x, y",), {"statistic": "moments"}, "moments", "the definition asks for it; 4 cells"),
    ],
)
def test_the_definition_chooses_a_statistic_and_explains_it(
    fields: tuple[str, ...], changed: dict[str, Any], statistic: str, said: str
) -> None:
    defined = contextual(fields, **changed)
    assert defined.statistic == statistic
    assert said in " ".join(explained(defined)["What you ask"])


@pytest.mark.parametrize("fields", [FIELDS, ("device: phone, desktop",)])
def test_the_forecast_states_noise_participants_and_gain(fields: tuple[str, ...]) -> None:
    expected = {"baseline": Fraction(1, 2), "lift": Fraction(4, 5), "evaluation": Fraction(1, 3)}
    defined = contextual(fields, participants=4000, epsilon=Fraction(4), **expected)
    found = forecast(defined, runs=2)
    assert isinstance(found, ContextForecast)
    assert found.right > 0.9
    assert found.enough is not None
    assert found.enough <= 4000
    assert found.gain == pytest.approx(0.2, abs=0.01)
    assert found.detectable is not None
    assert 0 < found.detectable < 1
    said = " ".join(found.sentences())
    assert "by device" in said
    assert f"Each of {found.numbers} released numbers" in said
    if fields != FIELDS:
        both = 2 * DiscreteLaplace(Fraction(1, 2)).variance
        assert found.noise == pytest.approx(math.sqrt(both))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"statistic": "table"}, "a table has no place for numbers"),
        ({"statistic": "sums"}, "table, corners or moments"),
        ({"context_fields": ("age: 90 to 18",)}, "from a smaller number"),
        ({"interactions": ("aeg: friendly",)}, 'names the field "aeg"'),
        ({"interactions": ("age: frendly",)}, 'names the option "frendly"'),
        ({"interactions": ("age",)}, "each field once"),
        ({"exploration": Fraction(1, 5)}, "explore by Thompson draws"),
        ({"delta": Fraction(0)}, "above 0"),
        ({"levels": 5000}, "at most 4096 with moments"),
        ({"context_fields": tuple(f"n{k}: 0 to 1" for k in range(11))}, "2,048 combinations"),
        ({"context_fields": ("a: " + ", ".join(map(str, range(40))),)}, "80 features"),
        ({"participations": 2}, "1 with contextual.fields"),
        ({"proofs": True}, "only tables and corners have proofs"),
    ],
)
def test_invalid_definitions_are_rejected(changed: dict[str, Any], said: str) -> None:
    given = vars(contextual()) | {"control_share": 0} | changed
    with pytest.raises(DefinitionError, match=said):
        Definition.of(**given)


def test_terms_reject_noise_below_the_guarantee() -> None:
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    context, noise = terms.context, terms.noise
    assert isinstance(context, MomentTerms)
    for changed, said in (
        ({"noise": replace(noise, scale=noise.scale / 2, minimum=None)}, "moments have a delta of"),
        (
            {"noise": replace(noise, minimum=noise.least * Fraction(99, 100))},
            "moments have a delta",
        ),
        ({"guarantee": replace(terms.guarantee, delta=Fraction(0))}, "delta is 0: must be above 0"),
        ({"noise": replace(noise, distribution="discrete-laplace")}, "must be discrete-gaussian"),
        ({"context": replace(context, statistic="table")}, "context.statistic is 'table'"),
        ({"context": replace(context, matrices=())}, "context.matrices"),
        ({"context": replace(context, resolution=16)}, "long: must be at most"),
    ):
        with pytest.raises(TacitError, match=said):
            replace(terms, **changed)


def test_a_feature_map_with_longer_features_is_rejected() -> None:
    """One percent longer: the noise would not suffice."""
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    assert isinstance(terms.context, MomentTerms)
    longer = tuple(
        tuple(tuple(round(1.01 * number) for number in row) for row in matrix)
        for matrix in terms.context.matrices
    )
    with pytest.raises(TacitError, match="features are up to 1"):
        replace(terms, context=replace(terms.context, matrices=longer))


# The device


def test_devices_compute_the_features_and_moments_of_the_simulation() -> None:
    """Bit for bit, for 300 participants: features of all options, and the sum of all reports."""
    defined, rng = contextual(levels=4), random.Random(8)
    terms = defined.terms(ADDRESSES[0], KEYS[0])
    features = moments(defined).features(defined.options)
    experiment = defined.experiment()
    (round_, *_) = experiment.propose()
    assert isinstance(round_.assignment, LinearChoice)
    binding = Binding(terms.digest, BY_POLICY, policy=round_.assignment.published())
    protocol = experiment.open(round_)
    assert isinstance(protocol, TwoServerStatistic)
    assert isinstance(protocol.statistic, ScaledMomentStatistic)
    people = [
        somebody(rng) | {"age": rng.choice([18, 90, 99, rng.uniform(18, 90)])} for _ in range(300)
    ]
    codes = Codes(np.array([features.code(one) for one in people]), features)
    total, options, levels = np.zeros(protocol.coordinates, dtype=np.int64), [], []
    for one, simulated in zip(people, codes.features, strict=True):
        chosen = choose(terms, binding, one)
        options.append(defined.options.index(chosen.option))
        levels.append(rng.randrange(5))
        assert chosen.levels[:-1] == tuple(simulated[options[-1]].astype(int))
        assert [tuple(vector) for vector in simulated.astype(int)] == features.of(one)
        total += numbers_of(terms, binding, (*chosen.levels[:-1], levels[-1]))
    answers = Answers(codes, np.array(options), np.array(levels))
    simulated_total = protocol.statistic.total(answers, np.random.default_rng(0))
    assert total.tolist() == simulated_total.tolist()


def test_a_device_checks_the_norm_of_its_features() -> None:
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    assert isinstance(terms.context, MomentTerms)
    policy = LinearPolicy((0.0,) * 6, (((0.0,) * 6,) * 6,)).encode()
    binding = Binding(terms.digest, BY_POLICY, policy=policy)
    assert len(numbers_of(terms, binding, (4096, 0, 0, 0, 0, 0, 1))) == 27
    with pytest.raises(TacitError, match="must be at most 1"):
        numbers_of(terms, binding, (4096, 1, 0, 0, 0, 0, 1))


def test_published_policies_are_thompson_draws_of_0_7_standard_deviations() -> None:
    experiment = contextual(participants=10**6).experiment()
    (round_, *_) = experiment.propose()
    protocol, learner = experiment.open(round_), experiment.learner
    assert isinstance(protocol, TwoServerStatistic)
    assert isinstance(protocol.statistic, ScaledMomentStatistic)
    assert isinstance(learner, LinearThompson)
    rng = np.random.default_rng(4)
    people = Codes(np.array([[1.0, 1.0, 0.0, 0.5]] * 200), learner.map)
    answers = Answers(people, rng.integers(0, 2, 200), rng.integers(0, 2, 200))
    total = protocol.statistic.total(answers, rng)
    experiment.observe(round_, protocol.simulate(StatisticTotals(total, 200), rng))
    for other in experiment.propose():
        if isinstance(other.assignment, LinearChoice):
            sent = LinearPolicy.decode(other.assignment.published(), 6, 2)
            root = np.array(sent.roots[0])
            wanted = 0.49 * learner.fit.covariance
            assert np.allclose(root @ root.T, wanted, rtol=1e-5, atol=1e-9)
            assert np.allclose(sent.mean, learner.fit.mean, rtol=1e-6)
            assert len(sent.roots) == 6
            last = np.array(sent.roots[-1])
            assert np.trace(last @ last.T) < np.trace(root @ root.T)


@pytest.fixture
def one(tmp_path: Path) -> Any:
    with deployed(contextual(participants=10**5), tmp_path) as made:
        made.step(2)
        yield made


def test_a_device_reports_nothing_but_encrypted_shares(one: Deployed) -> None:
    given, sent = policy_slot(one), list[httpx.Request]()
    own = device(one, given, sent)
    slot = own.choose(one.digest, {"device": "phone", "age": 30})
    assert own.record(one.digest, 1)
    (running,) = own.ledger.running()
    vectors = moments(one.definition).features(one.definition.options)
    known = vectors.of({"device": "phone", "age": 30})[one.definition.options.index(slot.option)]
    assert running.levels == (*known, 1)
    one.clock.now = (slot.reports_at or 0) + 1
    own.run_due()
    everything = b"".join(str(request.url).encode() + request.content for request in sent)
    for word in (b"phone", slot.option.encode()):
        assert word not in everything
    spent = own.ledger.spent_delta
    assert spent == Fraction(1, 10**6)


def test_a_device_rejects_altered_policies_and_less_noise(one: Deployed) -> None:
    given, context = policy_slot(one), {"device": "phone", "age": 30}
    about = described(given)
    policy = about.binding.policy
    many, none = bytes([2]) + policy[1:], bytes([0]) + policy[1:]
    infinite = policy[:-4] + bytes.fromhex("7f800000")
    paused = policy[:1] + bytes([2, 0, 0, 0, 1]) + policy[2:]
    for wrong in (policy[:-1], policy + b"0", many, none, infinite, paused):
        with pytest.raises(Rejected, match="policy of the round is invalid"):
            device(one, forged(given, binding={"policy": wrong})).choose(one.digest, context)
    assert about.scale is not None
    for changed, said in (
        ({"scale": about.scale - 1}, "noise scale of the round is"),
        ({"length": 1}, "number of metrics of the round is 1: must be 27"),
        ({"modulus": 1 << 30}, "modulus of the round"),
    ):
        with pytest.raises(Rejected, match=said):
            device(one, forged(given, **changed)).choose(one.digest, context)
    scalar = next(each for each in one.join(200) if each.option)
    weak = forged(scalar, scale=Fraction(1, 4))
    with pytest.raises(Rejected, match="noise scale of the round is 1/4: must be at least 1/2"):
        device(one, weak).choose(one.digest, context)


# The guarantee, from the distribution of the noise


def test_the_sensitivity_matches_brute_force() -> None:
    """Random pairs and pairs near the worst: never above what terms count with, nearly reached."""
    rng = np.random.default_rng(1)
    for dimension, levels in ((1, 1), (2, 1), (3, 7), (6, 4)):
        report = ScaledMomentStatistic(dimension, 512, levels).report
        bound, largest = math.sqrt(report.squared_sensitivity), 0.0

        def moment(direction: Any, level: int, report: Any = report) -> Any:
            inside = direction / np.linalg.norm(direction) * 0.998
            return np.array(report.vector(tuple(int(x) for x in inside * 512), level), dtype=float)

        for _ in range(400):
            x = rng.normal(size=dimension)
            y = rng.normal(size=dimension)
            y -= (y @ x) / (x @ x) * x if dimension > 1 else 0
            for other in (y, -x, x + 0.5 * y if dimension > 1 else y):
                for pair in ((levels, levels), (0, levels), (levels, 0)):
                    moved = np.linalg.norm(moment(x, pair[0]) - moment(other, pair[1]))
                    largest = max(largest, float(moved))
        assert largest <= bound
        assert largest > (0.9 if dimension > 1 else 0.9 * 2 / math.sqrt(4.5)) * bound


def test_delta_matches_enumeration_over_reports_and_outputs() -> None:
    """One feature of -1, 0 or 1: sums over the actual distribution of both noisy numbers."""
    target = ApproximateDP(1.0, 1e-4)
    statistic = ScaledMomentStatistic(dimension=1, resolution=1)
    noise = statistic.noise(target)
    sigma = float(noise[0].std)
    reach = math.ceil(7 * sigma)
    grid = np.arange(-reach, reach + 1)
    log_pmf = noise[0].log_pmf(grid)
    exact = -(grid**2) / (2 * sigma**2)
    assert np.allclose(log_pmf - log_pmf[reach], exact, atol=1e-9)
    reports = {tuple(statistic.encode(((x,), y))) for x in (-1, 0, 1) for y in (0, 1)}
    worst = 0.0
    for first in reports:
        for second in reports:
            shift = np.array(second) - np.array(first)
            loss = [(-(grid**2) + (grid - s) ** 2) / (2 * sigma**2) for s in shift]
            both = loss[0][:, None] + loss[1][None, :]
            mass = np.exp(log_pmf)[:, None] * np.exp(log_pmf)[None, :]
            worst = max(worst, float((mass * np.maximum(0, -np.expm1(1.0 - both))).sum()))
    assert worst <= target.delta
    square = statistic.report.squared_sensitivity
    assert worst <= vector_delta(Fraction(sigma), square, 2, Fraction(1)) <= target.delta * 1.01
    halved = GaussianLoss(sigma / 2, math.sqrt(square)).delta(1.0)
    assert halved > 10 * target.delta


def test_the_stated_noise_is_minimal_to_a_thousandth() -> None:
    for epsilon, delta, dimension in ((1.0, 1e-6, 8), (0.2, 1e-8, 3), (4.0, 1e-5, 20)):
        statistic = ScaledMomentStatistic(dimension, 4096)
        sigma = Fraction(statistic.noise(ApproximateDP(epsilon, delta))[0].std)
        square, size = statistic.report.squared_sensitivity, statistic.size
        assert vector_delta(sigma, square, size, Fraction(epsilon)) <= delta
        assert vector_delta(sigma * Fraction(999, 1000), square, size, Fraction(epsilon)) > delta


# The noise of a real coordinator and a real helper

ROUNDS, PEOPLE = 6, 10
WIDE = ("a: " + ", ".join(f"v{n}" for n in range(8)),)  # 16 features, 152 numbers
ALARM = 1e-6  # false positive rate of each statistic
Noises = np.ndarray[Any, np.dtype[np.float64]]
Factory = Callable[[bytes], Draw]


def released_noise(
    directory: Path, coordinator: Factory = exact_noise, helper: Factory = exact_noise
) -> Noises:
    """Released sums less the true ones, in standard deviations: rounds × numbers."""
    changed: dict[str, Any] = {"participants": 10**7, "evaluation": Fraction(0)}
    defined = contextual(WIDE, statistic="moments", **changed)
    statistic, found = ScaledMomentStatistic(16, 4096), []
    with deployed(defined, directory, options={"noise": coordinator}) as one:
        assert one.helper is not None
        one.helper = Helper(
            SECRETS[1], one.stores[1], one.helper.records, clock=one.clock, noise=helper
        )
        one.link = Link(one.helper)
        known = moments(defined).features(defined.options).of({"a": "v3"})[1]
        for _ in range(ROUNDS):
            one.step(2)
            asked, true = one.join(PEOPLE), np.zeros(152)
            for each in asked:
                true += numbers_of(one.pinned.terms, described(each).binding, (*known, 1))
            assert set(one.send([(each, one.report(each, *known, 1)) for each in asked])) == {None}
            one.clock.now += 200
            one.step(3)
            row = max(one.coordinator.rounds(Stage.RELEASED), key=lambda row: row.number)
            assert row.reports == PEOPLE
            found.append(np.array(json.loads(row.total or "")) / statistic.units - true)
        sigma = float(one.pinned.terms.noise.scale)
    return np.array(found) / (math.sqrt(2) * sigma)


def problems(noise: Noises) -> set[str]:
    """What is wrong with the noise of both servers together, as normal variables of variance 1.

    Squares have a chi-square distribution. Sums over a round are normal; products of successive
    rounds are so up to the central limit theorem, with 760 terms.
    """
    n, found = noise.size, set()
    square = float((noise**2).sum())
    if stats.chi2.cdf(square, n) < ALARM:
        found.add("too little")
    if stats.chi2.sf(square, n) < ALARM:
        found.add("too much")
    sums = (noise.sum(axis=1) ** 2).sum() / noise.shape[1]
    if stats.chi2.sf(sums, len(noise)) < ALARM:
        found.add("reused between numbers")
    products = float((noise[1:] * noise[:-1]).sum()) / math.sqrt(noise[1:].size)
    if stats.norm.sf(abs(products)) < ALARM:
        found.add("reused between rounds")
    if stats.kstest(noise.ravel(), "norm").pvalue < ALARM:
        found.add("another distribution")
    return found


def halved(_identity: bytes) -> Draw:
    return lambda scale: int(DiscreteLaplace(scale / 2).draw())


def missing(_identity: bytes) -> Draw:
    return lambda _scale: 0


def once_per_round(_identity: bytes) -> Draw:
    drawn: list[int] = []

    def draw(scale: Fraction) -> int:
        drawn.extend([int(DiscreteGaussian(float(scale)).draw())] * (not drawn))
        return drawn[0]

    return draw


def test_released_moments_have_the_noise_of_both_servers(tmp_path: Path) -> None:
    assert problems(released_noise(tmp_path)) == set()


@pytest.mark.extended
@pytest.mark.parametrize("fault", [halved, missing, once_per_round])
@pytest.mark.parametrize("role", ["coordinator", "helper"])
def test_wrong_noise_of_one_server_is_detected(tmp_path: Path, fault: Factory, role: str) -> None:
    assert problems(released_noise(tmp_path, **{role: fault})) != set()


@pytest.mark.extended
def test_reused_noise_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws of both servers in every round."""
    known = [accepted_gaussian(Fraction(10**8) ** 2, exact_noise(b"")) for _ in range(2 * 152)]
    again = cycle(known)

    def draw(square: Fraction, _propose: Draw) -> int:
        return round(next(again) * math.sqrt(square) / 10**8)

    monkeypatch.setattr(aggregator, "accepted_gaussian", draw)
    assert "reused between rounds" in problems(released_noise(tmp_path))


def test_rounds_with_options_and_rounds_with_choices_cost_epsilon(one: Deployed) -> None:
    assigned = one.join(200)
    for each in (next(a for a in assigned if a.option), next(a for a in assigned if not a.option)):
        assert one.pinned.check(described(each).offer()) == one.definition.epsilon


def test_the_evaluation_slice_beside_moments_has_laplace_noise_of_both_servers(
    tmp_path: Path,
) -> None:
    """Its sums move by one: each server draws discrete Laplace noise of scale 1/ε once."""
    drawn: dict[str, list[Fraction]] = {"coordinator": [], "helper": []}

    def noting(name: str) -> Factory:
        def draw(scale: Fraction) -> int:
            drawn[name].append(scale)
            return 0

        return lambda _identity: draw

    about: dict[str, Any] = {"epsilon": Fraction(1, 2), "evaluation": Fraction(1, 2)}
    defined = contextual(statistic="moments", participants=9000, min_batch_size=4, **about)
    with deployed(defined, tmp_path, options={"noise": noting("coordinator")}) as one:
        assert one.helper is not None
        one.helper = Helper(
            SECRETS[1], one.stores[1], one.helper.records, clock=one.clock, noise=noting("helper")
        )
        one.link = Link(one.helper)
        one.step(2)
        slice_ = [each for each in one.join(400) if each.option]
        identity = one.identity(slice_[0])
        same = [each for each in slice_ if one.identity(each) == identity]
        assert set(one.send([(each, one.report(each, 1)) for each in same])) == {None}
        one.clock.now += 200
        one.step(3)
        row = next(r for r in one.coordinator.rounds(Stage.RELEASED) if r.identity == identity)
        assert json.loads(row.total or "") == [len(same)]
    assert drawn == {"coordinator": [Fraction(2)], "helper": [Fraction(2)]}


@pytest.mark.parametrize(
    ("trust", "epsilon"),
    [("two-servers", "1/10"), ("two-servers", "2/3"), ("secure-aggregation", "1/10")],
)
def test_the_evaluation_slice_beside_moments_has_the_exact_scale(
    tmp_path: Path, trust: str, epsilon: str
) -> None:
    """Found: its noise was made for the nearest double, so that parties rejected the experiment."""
    about: dict[str, Any] = {"evaluation": Fraction(1, 5), "delta": Fraction(1, 10**6)}
    about |= {"algorithm": "private-contextual", "context_fields": FIELDS, "statistic": "moments"}
    defined = definition_of(trust, epsilon=Fraction(epsilon), **about)
    with deployed(defined, tmp_path) as one:
        one.step(2)
        assert one.coordinator.rounds(Stage.OPEN)
    mechanism = defined.experiment().mechanism
    assert isinstance(mechanism, SliceMechanism)
    protocol: Any = mechanism.slices.open(Round(0, 200, Arm(0)))
    assert protocol.distribution.scale == 1 / Fraction(epsilon)
