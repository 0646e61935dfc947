"""Silos and coordinator: the engine's twins, deaf to everything but private releases, and never at
a loss for a number.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tacit.bandits import statistics
from tacit.bandits.federated import Coordinator, Settings, Silo, Sums, repair
from tacit.checks import TacitError
from tacit.environments.silos import Synthetic
from tacit.privacy import ApproximateDP
from tacit.protocols.continual import PrefixSums
from tacit.protocols.factorization import factorize
from tacit.protocols.least_noise import calibrated
from tacit.simulation.federated import run_federation

Floats = npt.NDArray[np.float64]


def protocol_for(settings: Settings, private: bool = True) -> PrefixSums:
    shape, numbers, moved = (
        factorize("square-root", settings.steps),
        statistics.size(settings.dimension),
        statistics.joint_sensitivity(settings.dimension),
    )
    if not private:
        return PrefixSums(shape, settings.silos, numbers, moved)
    return calibrated(
        shape,
        settings.silos,
        numbers,
        moved,
        "secagg",
        "discrete-gaussian",
        ApproximateDP(5.0, 0.1),
        people=settings.sync,
    )


def drive(
    settings: Settings, protocol: PrefixSums, environment: Synthetic, users: Any, noise: Any
) -> tuple[list[list[int]], Coordinator]:
    """All rounds through the state machines, with the randomness that the engine consumes, in the
    same order.
    """
    silos = [Silo(settings, protocol.encoder(noise)) for _ in range(settings.silos)]
    coordinator = Coordinator(settings, protocol.decoder())
    choices = []
    for _ in range(settings.horizon):
        contexts = environment.contexts(users)
        acted = [silo.act(contexts[i]) for i, silo in enumerate(silos)]
        means = np.array([contexts[i, a] @ environment.parameter for i, a in enumerate(acted)])
        for silo, reward in zip(silos, environment.rewards(means, users), strict=True):
            silo.learn(reward)
        choices.append(acted)
        if silos[0].due:
            assert all(silo.due for silo in silos)
            answers = [coordinator.collect(i, silo.report()) for i, silo in enumerate(silos)]
            assert all(answer is None for answer in answers[:-1])
            assert isinstance(answers[-1], Sums)
            for silo in silos:
                silo.receive(answers[-1])
    return choices, coordinator


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("private", [False, True])
def test_engine_and_state_machines_decide_alike(private: bool, lazy: bool) -> None:
    """T = 23 is not divisible by B = 5: the last three rounds are played, never reported."""
    settings = Settings(
        silos=4, dimension=3, horizon=23, sync=5, regularizer=3.0, lazy=lazy, clip=True
    )
    protocol = protocol_for(settings, private)
    environment = Synthetic.draw(4, 3, 7, np.random.default_rng(1))
    choices, coordinator = drive(
        settings, protocol, environment, np.random.default_rng(2), np.random.default_rng(3)
    )
    noise = np.random.default_rng(3)
    encoders, decoder = [protocol.encoder(noise) for _ in range(4)], protocol.decoder()

    def synchronise(batches: Floats) -> Floats:
        return decoder.open(
            [encoder.randomize(row) for encoder, row in zip(encoders, batches, strict=True)]
        )

    other = Coordinator(settings, protocol.decoder())
    run = run_federation(
        settings,
        environment,
        synchronise,
        other,
        np.random.default_rng(2),
        checkpoints=(10, 23),
        record=True,
    )
    assert [list(map(int, row)) for row in run.choices] == choices
    assert (
        (coordinator.step, coordinator.repairs) == (other.step, other.repairs) == (4, run.repairs)
    )
    assert 0 < run.regret[0] < run.regret[1]


def test_radius_and_estimate_are_those_of_algorithm_1() -> None:
    settings = Settings(silos=2, dimension=2, horizon=10, sync=10, regularizer=2.0)
    silo = Silo(settings, protocol_for(settings, private=False).encoder())
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
    """When a silo speaks and what it says without noise, its first user's features scaled by
    `first_user`; what comes back is fixed.
    """
    settings = Settings(silos=2, dimension=3, horizon=20, sync=5, regularizer=1.0, lazy=lazy)
    silo = Silo(settings, protocol_for(settings, private=False).encoder())
    rng = np.random.default_rng(seed)
    spoke, said = [], []
    for t in range(20):
        contexts = rng.standard_normal((6, 3))
        contexts /= 1.01 * np.linalg.norm(contexts, axis=1, keepdims=True)
        rewards = rng.random(6)
        action = silo.act(contexts * (first_user if t == 0 else 1.0))
        silo.learn(float(rewards[action]) if t else (1.0 if first_user > 0 else 0.0))
        if silo.due:
            spoke.append(t)
            said.append(np.asarray(silo.report()))
            silo.receive(Sums(np.array([0.3, -0.2, 0.1]) * t, (1.0 + t) * np.eye(3)))
    return spoke, said


def test_a_lazy_silo_shows_a_user_in_one_batch_by_at_most_the_sensitivity() -> None:
    shape = factorize("square-root", 4)
    bound = statistics.joint_sensitivity(3)
    for seed in range(20):
        (spoke, said), (also_spoke, also_said) = (
            transcript(True, 1.0, seed),
            transcript(True, -1.0, seed),
        )
        assert spoke == also_spoke == [4, 9, 14, 19]
        moved = np.concatenate(said) - np.concatenate(also_said)
        assert 0 < np.linalg.norm(moved) <= bound * shape.movement()


def test_without_laziness_one_user_moves_more_than_their_own_record() -> None:
    """Later users of the batch get other actions: what ZC24 Theorem 5.1 leaves out.

    `times=sync` covers it.
    """
    shape = factorize("square-root", 4)
    bound = statistics.joint_sensitivity(3)
    moved = []
    for seed in range(40):
        (spoke, said), (also_spoke, also_said) = (
            transcript(False, 1.0, seed),
            transcript(False, -1.0, seed),
        )
        assert spoke == also_spoke
        moved.append(float(np.linalg.norm(np.concatenate(said) - np.concatenate(also_said))))
    assert max(moved) > bound * shape.movement()
    assert max(moved) <= bound * shape.movement(times=5)


def test_other_silos_hear_of_a_silo_only_through_the_opened_sum() -> None:
    """Two federations whose silo 0 has other users but whose opened sums agree are the same to
    everyone else.
    """
    settings = Settings(silos=2, dimension=2, horizon=8, sync=2, regularizer=2.0)

    class Canned:
        def __init__(self) -> None:
            self.opened = iter(np.random.default_rng(5).standard_normal((4, 5)))

        def open(self, messages: list[Any]) -> Floats:
            assert len(messages) == 2
            return next(self.opened)

        def to_dict(self) -> dict[str, Any]:
            return {}

        def restore(self, state: dict[str, Any]) -> None:
            assert not state

    def run(scale: float) -> tuple[list[int], list[int]]:
        protocol = protocol_for(settings, private=False)
        silos = [Silo(settings, protocol.encoder()) for _ in range(2)]
        coordinator, rng = Coordinator(settings, Canned()), np.random.default_rng(9)
        actions, schedule = [], []
        for t in range(8):
            contexts = rng.uniform(-0.7, 0.7, (2, 5, 2))
            silos[0].act(scale * contexts[0])
            actions.append(silos[1].act(contexts[1]))
            silos[0].learn(scale)
            silos[1].learn(0.5)
            if silos[1].due:
                schedule.append(t)
                coordinator.collect(0, silos[0].report())
                sums = coordinator.collect(1, silos[1].report())
                assert sums is not None
                for silo in silos:
                    silo.receive(sums)
        return actions, schedule

    assert run(1.0) == run(0.25)


def test_noisy_matrices_are_repaired_and_counted_and_never_give_nan() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        noise = rng.standard_normal((4, 4)) * 100
        mended, needed = repair(noise + noise.T, 1.0)
        assert needed
        assert np.linalg.eigvalsh(mended)[0] >= 1.0 - 1e-8
    untouched, needed = repair(np.eye(3), 1.0)
    assert not needed
    np.testing.assert_allclose(untouched, 2 * np.eye(3))


def test_a_federation_drowned_in_noise_still_acts() -> None:
    settings = Settings(silos=3, dimension=4, horizon=40, sync=2, regularizer=1.0, clip=True)
    shape = factorize("tree", 20)
    protocol = PrefixSums(shape, 3, statistics.size(4), 2.2, "silo", "gaussian", 1e4)
    coordinator = Coordinator(settings, protocol.decoder())
    simulator = protocol.simulator(np.random.default_rng(0))
    environment = Synthetic.draw(3, 4, 5, np.random.default_rng(1))
    run = run_federation(
        settings,
        environment,
        lambda v: simulator.step(v.sum(axis=0)),
        coordinator,
        np.random.default_rng(2),
        checkpoints=(40,),
    )
    assert run.repairs == 20
    assert np.isfinite(run.regret[-1])


def test_silos_and_coordinator_survive_storage() -> None:
    settings = Settings(silos=1, dimension=2, horizon=9, sync=3, regularizer=2.0)
    protocol = protocol_for(settings)
    rng = np.random.default_rng(0)
    silo, coordinator = (
        Silo(settings, protocol.encoder(rng)),
        Coordinator(settings, protocol.decoder()),
    )
    contexts = np.random.default_rng(1).uniform(-0.7, 0.7, (9, 4, 2))
    for t in range(4):
        silo.act(contexts[t])
        silo.learn(0.5)
        if silo.due:
            sums = coordinator.collect(0, silo.report())
            assert sums is not None
            silo.receive(sums)
    silo.act(contexts[4])
    stored = json.loads(json.dumps([silo.to_dict(), coordinator.to_dict()]))
    twin = Silo.from_dict(stored[0], protocol.encoder(rng))
    other = Coordinator.from_dict(stored[1], protocol.decoder())
    assert (other.step, other.repairs) == (coordinator.step, coordinator.repairs)
    for machine in (silo, twin):
        machine.learn(0.25)
    assert silo.act(contexts[5]) == twin.act(contexts[5])
    assert silo.to_dict() == twin.to_dict()


def test_out_of_bounds_contexts_and_rewards_are_refused_or_clipped_and_counted() -> None:
    strict = Silo(Settings(1, 2, 4, 2), protocol_for(Settings(1, 2, 4, 2), private=False).encoder())
    with pytest.raises(TacitError, match=r"norm 1\.41421; at most 1"):
        strict.act([[1.0, 1.0], [0.0, 0.0]])
    with pytest.raises(TacitError, match="shape"):
        strict.act([[1.0, 0.0, 0.0]])
    strict.act([[1.0, 0.0]])
    with pytest.raises(TacitError, match=r"reward is 1\.5; it must lie in \[0, 1\]"):
        strict.learn(1.5)
    with pytest.raises(TacitError, match="reward"):
        strict.learn(float("nan"))
    settings = Settings(1, 2, 4, 2, clip=True)
    lenient = Silo(settings, protocol_for(settings, private=False).encoder())
    lenient.act([[2.0, 0.0], [0.0, 3.0], [0.1, 0.1]])
    lenient.learn(-7.0)
    assert lenient.clipped == 3
    with pytest.raises(TacitError, match="norm nan"):
        lenient.act([[float("nan"), 0.0]])


def test_the_engine_refuses_or_counts_in_the_same_way() -> None:
    environment = Synthetic(2, 3, np.array([0.6, 0.6]), deviation=0.0)

    class Wide(Synthetic):
        def contexts(self, rng: np.random.Generator) -> Floats:
            return 2 * super().contexts(rng)

    wide = Wide(2, 3, np.array([0.6, 0.6]), deviation=5.0)
    for clip in (False, True):
        settings = Settings(2, 2, 4, 2, clip=clip)
        protocol = protocol_for(settings, private=False)
        simulator = protocol.simulator(np.random.default_rng(0))

        def run(
            where: Synthetic,
            settings: Settings = settings,
            protocol: PrefixSums = protocol,
            simulator: Any = simulator,
        ) -> Any:
            coordinator = Coordinator(settings, protocol.decoder())
            rng = np.random.default_rng(0)
            return run_federation(
                settings,
                where,
                lambda v: simulator.step(v.sum(axis=0)),
                coordinator,
                rng,
                checkpoints=(4,),
            )

        if clip:
            assert run(wide).clipped_contexts == 24
            assert run(wide).clipped_rewards > 0
        else:
            assert run(environment).clipped_rewards == 0
            with pytest.raises(TacitError, match="norm 2"):
                run(wide)
    with pytest.raises(TacitError, match="one dimension"):
        run_federation(
            Settings(2, 5, 4, 2),
            environment,
            np.sum,
            Coordinator(settings, protocol.decoder()),
            np.random.default_rng(0),
            checkpoints=(4,),
        )


def test_calls_out_of_turn_are_refused() -> None:
    settings = Settings(2, 2, 2, 1)
    protocol = protocol_for(settings, private=False)
    silo, coordinator = (
        Silo(settings, protocol.encoder()),
        Coordinator(settings, protocol.decoder()),
    )
    context = [[1.0, 0.0]]
    with pytest.raises(TacitError, match="act first"):
        silo.learn(0.5)
    with pytest.raises(TacitError, match="schedule is fixed"):
        silo.report()
    silo.act(context)
    with pytest.raises(TacitError, match="reward is missing"):
        silo.act(context)
    silo.learn(0.5)
    with pytest.raises(TacitError, match="report and receive"):
        silo.act(context)
    with pytest.raises(TacitError, match="report first"):
        silo.receive(Sums(np.zeros(2), np.eye(2)))
    message = silo.report()
    with pytest.raises(TacitError, match="schedule is fixed"):
        silo.report()
    assert coordinator.collect(0, message) is None
    with pytest.raises(TacitError, match="counts once"):
        coordinator.collect(0, message)
    with pytest.raises(TacitError, match="numbered 0 to 1"):
        coordinator.collect(2, message)
    with pytest.raises(TacitError, match="save between steps"):
        coordinator.to_dict()
    with pytest.raises(TacitError, match="all silos need one dimension"):
        silo.receive(Sums(np.zeros(3), np.eye(3)))
    silo.receive(Sums(np.zeros(2), np.eye(2)))
    silo.act(context)
    silo.learn(0.5)
    silo.report()
    silo.receive(Sums(np.zeros(2), np.eye(2)))
    with pytest.raises(TacitError, match="horizon of 2 rounds is over"):
        silo.act(context)
