"""Silos and their learner: batched and single decisions agree and use private releases only."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tacit.bandits import Learner
from tacit.bandits.contextual import moments
from tacit.bandits.contextual.federated import FederatedLinUCB, Silo, SiloRules, repair
from tacit.bandits.contextual.linucb import LinUCB, LinUCBPolicy
from tacit.environments.silos import Synthetic
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.privacy import ApproximateDP
from tacit.protocols.factorization import factorize
from tacit.protocols.mechanism import Releases
from tacit.protocols.prefix_delivery import Presence
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.simulation import run
from tacit.trust import TrustModel
from tacit.types import Arm, Estimate, Round, VectorError

Floats = npt.NDArray[np.float64]


def sums_for(learner: FederatedLinUCB, private: bool = True) -> PrefixSums:
    shape, numbers, moved = (
        factorize("square-root", learner.horizon // learner.sync),
        moments.size(learner.dimension),
        moments.joint_sensitivity(learner.dimension),
    )
    if not private:
        return PrefixSums(shape, learner.silos, numbers, moved)
    return calibrated(
        SiloStream(shape, learner.silos, numbers, moved, people=learner.sync),
        TrustModel.SECURE_AGGREGATION,
        "discrete-gaussian",
        ApproximateDP(5.0, 0.1),
    )


def policy_of(round_: Round) -> LinUCBPolicy:
    assert isinstance(round_.assignment, LinUCBPolicy)
    return round_.assignment


def told(round_: Round, bias: Floats, gram: Floats) -> Estimate:
    """An estimate that unpacks to this bias and Gram matrix."""
    total = moments.pack(bias, gram)
    columns = (np.full(len(total), value) for value in (0.0, np.inf, 0.0))
    return Estimate(total, VectorError(round_.participants, *columns))


def each_alone(
    learner: FederatedLinUCB, sums: PrefixSums, environment: Synthetic, people: Any, noise: Any
) -> list[list[int]]:
    """All rounds through one state machine per silo, each a batch of one."""
    mechanism, choices = Releases(sums), []
    silos = [Silo(sums.encoder(noise)) for _ in range(learner.silos)]
    while rounds := learner.propose():
        (round_,) = rounds
        for silo in silos:
            silo.start(round_)
        for _ in range(round_.time):
            contexts = environment.contexts(people)
            acted = [silo.act(contexts[i]) for i, silo in enumerate(silos)]
            means = np.array([contexts[i, a] @ environment.parameter for i, a in enumerate(acted)])
            for silo, reward in zip(silos, environment.rewards(means, people), strict=True):
                silo.learn(reward)
            choices.append(acted)
        messages = [silo.report() for silo in silos]
        if round_.released:
            protocol = mechanism.open(round_)
            learner.observe(round_, protocol.analyze(protocol.combine(messages)))
        else:
            assert messages == [None] * learner.silos
            learner.skip(round_)
    return choices


def all_at_once(
    learner: FederatedLinUCB, sums: PrefixSums, environment: Synthetic, people: Any, noise: Any
) -> list[list[int]]:
    """All rounds with all silos in one batch, and the same randomness in the same order."""
    mechanism, choices = Releases(sums), []
    encoders = [sums.encoder(noise) for _ in range(learner.silos)]
    while rounds := learner.propose():
        (round_,) = rounds
        actor = policy_of(round_).start(learner.silos)
        while not actor.finished:
            features = actor.as_features(environment.contexts(people))
            chosen = actor.choose(features)
            every = environment.mean_rewards(features)
            assert every is not None
            means = every[np.arange(learner.silos), chosen]
            actor.learn(environment.rewards(means, people))
            choices.append(chosen.tolist())
        rows = actor.report()
        if round_.released:
            messages = [e.randomize(row) for e, row in zip(encoders, rows, strict=True)]
            protocol = mechanism.open(round_)
            learner.observe(round_, protocol.analyze(protocol.combine(messages)))
        else:
            learner.skip(round_)
    return choices


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("private", [False, True])
def test_batched_silos_decide_like_single_silos(private: bool, lazy: bool) -> None:
    """T = 23 is not divisible by B = 5: the last three rounds are played, never reported."""
    environment = Synthetic.draw(4, 3, 7, np.random.default_rng(1))
    learners, choices = [], []
    for drive in (each_alone, all_at_once):
        rules = SiloRules(lazy=lazy, clip=True)
        learner = FederatedLinUCB(4, 3, 23, 5, regularizer=3.0, rules=rules)
        sums = sums_for(learner, private)
        people, noise = np.random.default_rng(2), np.random.default_rng(3)
        choices.append(drive(learner, sums, environment, people, noise))
        learners.append(learner)
    one, other = learners
    assert choices[0] == choices[1]
    assert len(choices[0]) == 23
    assert one.repairs == other.repairs
    assert one.played == other.played == 23
    assert one.to_dict()["number"] == other.to_dict()["number"] == 5
    np.testing.assert_allclose(one._gram, other._gram, rtol=1e-12, atol=1e-12)
    assert np.any(one._gram != 3.0 * np.eye(3))
    assert np.abs(one._bias).max() < 1e3  # 80 rewards, and noise of a few units


@pytest.mark.parametrize("lazy", [False, True])
def test_the_environment_plays_a_policy_like_an_explicit_loop(lazy: bool) -> None:
    environment = Synthetic.draw(4, 3, 7, np.random.default_rng(1))
    (round_,) = FederatedLinUCB(4, 3, 20, 6, rules=SiloRules(lazy=lazy, clip=True)).propose()
    played = environment.play(round_, None, np.random.default_rng(2))
    rng, actor, regret = np.random.default_rng(2), policy_of(round_).start(4), []
    for _ in range(6):
        contexts = environment.contexts(rng)
        chosen = actor.choose(actor.as_features(contexts))
        means = contexts @ environment.parameter
        got = means[np.arange(4), chosen]
        regret.append(float((means.max(axis=1) - got).sum()))
        actor.learn(environment.rewards(got, rng))
    np.testing.assert_allclose(played.load, actor.report().sum(axis=0), rtol=1e-12)
    assert played.regret is not None
    np.testing.assert_allclose(played.regret, np.cumsum(regret), rtol=1e-12)
    assert played.regret[-1] > 0
    assert played.time.tolist() == [1, 2, 3, 4, 5, 6]
    assert played.notes["clipped_rewards"] == actor.clipped_rewards


def test_rank_one_updates_keep_the_inverse_matrices() -> None:
    """300 participants per silo after a synchronisation: inverse and estimate as solved anew."""
    rng, d = np.random.default_rng(7), 4
    root = rng.standard_normal((d, d))
    gram, bias = root @ root.T + np.eye(d), rng.standard_normal(d)
    rows = tuple(tuple(row) for row in gram.tolist())
    actor = LinUCB(LinUCBPolicy(tuple(bias.tolist()), rows, (1.0,) * 301), 3)
    for _ in range(300):
        contexts = rng.standard_normal((3, 5, d))
        contexts /= 1.01 * np.linalg.norm(contexts, axis=2, keepdims=True)
        actor.choose(actor.as_features(contexts))
        actor.learn(rng.random(3))
    for silo in range(3):
        solved = np.linalg.solve(gram + actor.gram[silo], bias + actor.bias[silo])
        np.testing.assert_allclose(actor._estimate[silo], solved, rtol=1e-9)


def test_radius_and_estimate_match_algorithm_1() -> None:
    learner = FederatedLinUCB(2, 2, 10, 10, regularizer=2.0, rules=SiloRules(lazy=False))
    silo = Silo(sums_for(learner, private=False).encoder())
    silo.start(learner.propose()[0])
    rng = np.random.default_rng(0)
    gram, bias = 2.0 * np.eye(2), np.zeros(2)
    for t in range(1, 8):
        contexts = rng.uniform(-0.7, 0.7, (5, 2))
        theta = np.linalg.solve(gram, bias)
        beta = np.sqrt(2 * np.log(200) + 2 * np.log(1 + 2 * t / 4)) + np.sqrt(2.0)
        widths = np.sqrt(np.array([x @ np.linalg.solve(gram, x) for x in contexts]))
        best = int(np.argmax(contexts @ theta + beta * widths))
        assert silo.act(contexts) == best
        x, y = contexts[best], float(rng.random())
        silo.learn(y)
        gram += np.outer(x, x)
        bias += x * y


def transcript(lazy: bool, first_user: float, seed: int) -> tuple[list[int], list[Floats]]:
    """The times and noiseless contents of a silo's messages, its first user's features scaled by
    `first_user`; replies are fixed.
    """
    learner = FederatedLinUCB(2, 3, 20, 5, regularizer=1.0, rules=SiloRules(lazy=lazy))
    silo = Silo(sums_for(learner, private=False).encoder())
    rng = np.random.default_rng(seed)
    spoke, said, t = [], [], 0
    while rounds := learner.propose():
        (round_,) = rounds
        silo.start(round_)
        for _ in range(round_.time):
            contexts = rng.standard_normal((6, 3))
            contexts /= 1.01 * np.linalg.norm(contexts, axis=1, keepdims=True)
            rewards = rng.random(6)
            action = silo.act(contexts * (first_user if t == 0 else 1.0))
            silo.learn(float(rewards[action]) if t else (1.0 if first_user > 0 else 0.0))
            t += 1
        spoke.append(t - 1)
        said.append(np.asarray(silo.report()))
        back = told(round_, np.array([0.3, -0.2, 0.1]) * (t - 1), (t - 1.0) * np.eye(3))
        learner.observe(round_, back)
    return spoke, said


def test_a_lazy_silo_bounds_a_participants_effect_on_a_batch_by_the_sensitivity() -> None:
    shape = factorize("square-root", 4)
    bound = moments.joint_sensitivity(3)
    for seed in range(20):
        (spoke, said), (also_spoke, also_said) = (
            transcript(True, 1.0, seed),
            transcript(True, -1.0, seed),
        )
        assert spoke == also_spoke == [4, 9, 14, 19]
        moved = np.concatenate(said) - np.concatenate(also_said)
        assert 0 < np.linalg.norm(moved) <= bound * shape.movement()


def test_without_laziness_one_participant_moves_other_records() -> None:
    """Later users of the batch get other actions: what ZC24 Theorem 5.1 leaves out, and an eager
    `Presence` covers.
    """
    shape = factorize("square-root", 4)
    (records,) = Presence(eager=True).records(silos=2, participants=5)
    bound = moments.joint_sensitivity(3)
    moved = []
    for seed in range(40):
        (spoke, said), (also_spoke, also_said) = (
            transcript(False, 1.0, seed),
            transcript(False, -1.0, seed),
        )
        assert spoke == also_spoke
        moved.append(float(np.linalg.norm(np.concatenate(said) - np.concatenate(also_said))))
    assert max(moved) > bound * shape.movement()
    assert max(moved) <= sum(records) * bound * shape.movement()


def test_silos_affect_each_other_only_through_the_released_sum() -> None:
    """Two federations whose silo 0 has other participants but whose released sums agree are the
    same to everyone else.
    """

    def actions(scale: float) -> tuple[list[int], list[int]]:
        learner = FederatedLinUCB(2, 2, 8, 2, regularizer=2.0, rules=SiloRules(lazy=False))
        sums = sums_for(learner, private=False)
        silos = [Silo(sums.encoder()) for _ in range(2)]
        released = iter(np.random.default_rng(5).standard_normal((4, 5)))
        rng = np.random.default_rng(9)
        found, schedule = [], []
        while rounds := learner.propose():
            (round_,) = rounds
            for silo in silos:
                silo.start(round_)
            for _ in range(round_.time):
                contexts = rng.uniform(-0.7, 0.7, (2, 5, 2))
                silos[0].act(scale * contexts[0])
                found.append(silos[1].act(contexts[1]))
                silos[0].learn(scale)
                silos[1].learn(0.5)
            schedule.append(len(found))
            messages = [silo.report() for silo in silos]
            protocol = Releases(sums).open(Round(0, 2, round_.assignment))
            honest = protocol.analyze(protocol.combine(messages))
            learner.observe(round_, Estimate(next(released), honest.error))
        return found, schedule

    assert actions(1.0) == actions(0.25)
    assert actions(1.0)[1] == [2, 4, 6, 8]


def test_noisy_matrices_are_repaired_and_counted_without_nan() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        noise = rng.standard_normal((4, 4)) * 100
        mended, needed = repair(noise + noise.T, 1.0)
        assert needed
        assert np.linalg.eigvalsh(mended)[0] >= 1.0 - 1e-8
    untouched, needed = repair(np.eye(3), 1.0)
    assert not needed
    np.testing.assert_allclose(untouched, 2 * np.eye(3))


def test_a_federation_with_overwhelming_noise_still_acts() -> None:
    shape = factorize("tree", 20)
    sums = PrefixSums(shape, 3, moments.size(4), 2.2, TrustModel.SILO, "gaussian", 1e4)
    learner = FederatedLinUCB(3, 4, 40, 2, regularizer=1.0, rules=SiloRules(lazy=False, clip=True))
    environment = Synthetic.draw(3, 4, 5, np.random.default_rng(1))
    outcome = run(Experiment.of(learner, Releases(sums)), environment, np.random.default_rng(2))
    assert learner.repairs == 20
    assert outcome.regret is not None
    assert np.isfinite(outcome.regret).all()


def test_silos_and_their_learner_round_trip() -> None:
    learner = FederatedLinUCB(1, 2, 9, 3, regularizer=2.0, rules=SiloRules(lazy=False))
    sums = sums_for(learner)
    rng = np.random.default_rng(0)
    mechanism, silo = Releases(sums), Silo(sums.encoder(rng))
    contexts = np.random.default_rng(1).uniform(-0.7, 0.7, (9, 4, 2))
    (round_,) = learner.propose()
    silo.start(round_)
    for t in range(3):
        silo.act(contexts[t])
        silo.learn(0.5)
    protocol = mechanism.open(round_)
    learner.observe(round_, protocol.analyze(protocol.combine([silo.report()])))
    between = json.loads(json.dumps(silo.to_dict()))
    assert Silo.from_dict(between, sums.encoder(rng)).to_dict() == silo.to_dict()
    (round_,) = learner.propose()
    silo.start(round_)
    silo.act(contexts[3])
    silo.learn(0.5)
    silo.act(contexts[4])
    stored = json.loads(json.dumps([silo.to_dict(), learner.to_dict()]))
    twin = Silo.from_dict(stored[0], sums.encoder(rng))
    other = Learner.from_dict(stored[1])
    assert isinstance(other, FederatedLinUCB)
    assert (other.played, other.repairs) == (learner.played, learner.repairs) == (3, other.repairs)
    assert other.propose() == [round_]
    for machine in (silo, twin):
        machine.learn(0.25)
    assert silo.act(contexts[5]) == twin.act(contexts[5])
    assert silo.to_dict() == twin.to_dict()


def test_out_of_bounds_contexts_and_rewards_are_rejected_or_clipped_and_counted() -> None:
    def silo_of(clip: bool) -> Silo:
        learner = FederatedLinUCB(1, 2, 4, 2, rules=SiloRules(lazy=False, clip=clip))
        silo = Silo(sums_for(learner, private=False).encoder())
        silo.start(learner.propose()[0])
        return silo

    strict = silo_of(clip=False)
    with pytest.raises(TacitError, match=r"norm 1\.41421; at most 1"):
        strict.act([[1.0, 1.0], [0.0, 0.0]])
    with pytest.raises(TacitError, match="shape"):
        strict.act([[1.0, 0.0, 0.0]])
    strict.act([[1.0, 0.0]])
    with pytest.raises(TacitError, match=r"1 reward\(s\) lie outside \[0, 1\], such as 1\.5"):
        strict.learn(1.5)
    with pytest.raises(TacitError, match="reward"):
        strict.learn(float("nan"))
    lenient = silo_of(clip=True)
    lenient.act([[2.0, 0.0], [0.0, 3.0], [0.1, 0.1]])
    lenient.learn(-7.0)
    assert (lenient.actor.clipped_contexts, lenient.actor.clipped_rewards) == (2, 1)
    with pytest.raises(TacitError, match="norm nan"):
        lenient.act([[float("nan"), 0.0]])
    with pytest.raises(TacitError, match="act first"):
        lenient.learn(0.5)


def test_a_batch_error_names_the_out_of_bounds_reward() -> None:
    """Found: it named the first of the batch, whether or not that was the one."""
    actor = policy_of(FederatedLinUCB(3, 2, 4, 2).propose()[0]).start(3)
    actor.choose(actor.as_features(np.full((3, 4, 2), 0.5)))
    with pytest.raises(TacitError, match=r"1 reward\(s\) lie outside \[0, 1\], such as 7"):
        actor.learn(np.array([0.5, 7.0, 0.5]))


def test_batched_silos_reject_or_count_alike() -> None:
    environment = Synthetic(2, 3, np.array([0.6, 0.6]), deviation=0.0)

    class Wide(Synthetic):
        def contexts(self, rng: np.random.Generator) -> Floats:
            return 2 * super().contexts(rng)

    wide = Wide(2, 3, np.array([0.6, 0.6]), deviation=5.0)

    def notes(where: Synthetic, clip: bool, dimension: int = 2) -> Any:
        learner = FederatedLinUCB(2, dimension, 4, 2, rules=SiloRules(lazy=False, clip=clip))
        experiment = Experiment.of(learner, Releases(sums_for(learner, private=False)))
        return run(experiment, where, np.random.default_rng(0)).notes

    assert notes(wide, clip=True)["clipped_contexts"] == 24
    assert notes(wide, clip=True)["clipped_rewards"] > 0
    assert notes(environment, clip=False)["clipped_rewards"] == 0
    with pytest.raises(TacitError, match="norm 2"):
        notes(wide, clip=False)
    with pytest.raises(TacitError, match="need one row of 5 features per action, like all silos"):
        notes(environment, clip=False, dimension=5)
    (round_,) = FederatedLinUCB(3, 2, 4, 2).propose()
    with pytest.raises(TacitError, match="must be 2, one per silo"):
        environment.play(round_, None, np.random.default_rng(0))


def test_calls_out_of_turn_are_rejected() -> None:
    learner = FederatedLinUCB(2, 2, 3, 1, rules=SiloRules(lazy=False))
    sums = sums_for(learner, private=False)
    mechanism, silo = Releases(sums), Silo(sums.encoder())
    context = [[1.0, 0.0]]
    for early in (lambda: silo.act(context), lambda: silo.learn(0.5), silo.report):
        with pytest.raises(TacitError, match="no round has started"):
            early()
    with pytest.raises(TacitError, match="has no policy: pass a round"):
        silo.start(Round(0, 2, Arm(0)))
    (round_,) = learner.propose()
    silo.start(round_)
    with pytest.raises(TacitError, match="act first"):
        silo.learn(0.5)
    with pytest.raises(TacitError, match="schedule is data-independent"):
        silo.report()
    silo.act(context)
    with pytest.raises(TacitError, match="reward is missing"):
        silo.act(context)
    with pytest.raises(TacitError, match="schedule is data-independent"):
        silo.report()
    silo.learn(0.5)
    with pytest.raises(TacitError, match="participants of this round have been served: report"):
        silo.act(context)
    with pytest.raises(TacitError, match="not reported yet"):
        silo.start(round_)
    message = silo.report()
    with pytest.raises(TacitError, match="no round has started"):
        silo.report()
    protocol = mechanism.open(round_)
    with pytest.raises(TacitError, match="1 of 2 silos reported"):
        protocol.combine([message])
    with pytest.raises(TacitError, match="3 of 2 silos reported"):
        protocol.combine([message] * 3)
    with pytest.raises(TacitError, match="the same dimension"):
        protocol.combine([message, np.zeros(9)])
    with pytest.raises(TacitError, match="has 9 numbers: must have 5"):
        learner.observe(round_, told(round_, np.zeros(3), np.eye(3)))
    good = told(round_, np.zeros(2), np.eye(2))
    learner.observe(round_, good)
    with pytest.raises(TacitError, match="already observed"):
        learner.observe(round_, good)
    for _ in range(2):
        (round_,) = learner.propose()
        silo.start(round_)
        silo.act(context)
        silo.learn(0.5)
        silo.report()
        learner.observe(round_, told(round_, np.zeros(2), np.eye(2)))
    assert learner.propose() == []
    assert learner.finished
    silo.start(round_)
    silo.act(context)
    silo.learn(0.5)
    with pytest.raises(TacitError, match="all 3 synchronisations are used up"):
        silo.report()


def test_an_unreleased_round_ends_without_a_message() -> None:
    learner = FederatedLinUCB(1, 2, 3, 2)
    sums = sums_for(learner, private=False)
    silo = Silo(sums.encoder())
    learner.skip(learner.propose()[0])
    (last,) = learner.propose()
    assert (last.time, last.released) == (1, False)
    silo.start(last)
    silo.act([[1.0, 0.0]])
    silo.learn(1.0)
    assert silo.report() is None
    assert silo.to_dict()["encoder"]["history"] == []
