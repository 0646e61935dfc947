"""Audits of named algorithms: defective noise is detected, correct noise is rejected at the stated
rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.tables import extended_after

from tacit.algorithms.registry import GuaranteeForm, algorithms, lookup
from tacit.assumptions import Declared
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.noise import DiscreteLaplace, NoiseDistribution
from tacit.privacy import ApproximateDP, Arithmetic, ConcentratedDP, Guaranteed, PureDP, View
from tacit.privacy.audit import lower_bound, samples_to_refute
from tacit.privacy.guarantees import state_arithmetic
from tacit.protocols.contract import Protocol
from tacit.protocols.l2_sums import CentralBall
from tacit.protocols.mechanism import PerRound
from tacit.protocols.prefix_messages import Bits, Counts
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.sums import SecureSum
from tacit.simulation import simulate
from tacit.simulation.study import in_theorem_form
from tacit.studies.audit import (
    adversary_view,
    audit_algorithm,
    first_round,
    observed,
    residual_test,
    sendable,
    tampered_draws,
    weakened,
)

UNSEEDED = 1e-9  # false-alarm rate of a test of exact draws, which no seed repeats
SLOWEST = 900.0  # seconds: a busy machine must not make the tests weaker
BROKEN = {
    "half the noise": (0.5, False),
    "no noise": (0.0, False),
    "noise once for all": (1.0, True),
}


def private() -> dict[str, Protocol]:
    """The first round of every named algorithm that guarantees something at its defaults."""
    found = {}
    for name in algorithms():
        try:
            protocol = first_round(name, {})
        except TacitError:
            continue  # rejected at its defaults, with a reason
        if protocol.guarantee is not None:
            found[name] = sendable(protocol)[0]
    return found


def verdict(
    protocol: Protocol,
    factor: float,
    reuse: bool,
    alarm: float = 1e-3,
    enough: int | None = None,
) -> Any:
    sight = adversary_view(protocol)
    with tampered_draws(factor, reuse):
        used = weakened(protocol, factor, reuse)
        return residual_test(observed(used, sight, enough=enough, seconds=SLOWEST), alarm)


QUICK = ("dist-dp-se", "cdp-se", "ldp-se", "secagg-dpe", "cdp-pe")


@pytest.mark.parametrize("name", extended_after(2, QUICK))
def test_defective_devices_are_detected_and_correct_ones_pass(name: str) -> None:
    """Sound devices at a false-alarm rate of 1e-9."""
    protocol = first_round(name, {})
    assert not verdict(protocol, 1.0, False, UNSEEDED).caught
    for how, (factor, reuse) in BROKEN.items():
        assert verdict(protocol, factor, reuse).caught, how


def test_bit_counts_too_large_to_draw_are_simulated_equivalently() -> None:
    protocol = first_round("sdp-fedlinucb-vec", {})
    counted, so = sendable(protocol)
    assert so
    assert protocol.bits_per_participant > 1e9
    assert counted.view_distribution(0, 100) == protocol.view_distribution(0, 100)
    assert sendable(first_round("secagg-fedlinucb", {}))[1] is False
    assert sendable(first_round("dist-dp-se", {}))[1] is False
    numbers, bits = np.array([-3, 0, 4, 1]), Bits(12, 5)
    rows = [bits.message(numbers, None), bits.message(numbers[::-1], None)]
    counts = [Counts(12, 5).message(numbers, None), Counts(12, 5).message(numbers[::-1], None)]
    assert Counts(12, 5).total(counts) == bits.total(rows)
    for wrong in (numbers - 3, numbers + 4):
        with pytest.raises(TacitError, match="number of records per silo"):
            Counts(12, 5).message(wrong, None)


@pytest.mark.slow
def test_defective_devices_of_every_private_algorithm_are_detected() -> None:
    for name, protocol in private().items():
        sound = verdict(protocol, 1.0, False, UNSEEDED)
        assert not sound.caught, (name, sound)
        for how, (factor, reuse) in BROKEN.items():
            found = verdict(protocol, factor, reuse)
            assert found.caught, (name, how, found)


@pytest.mark.extended
def test_defective_devices_of_pure_shuffle_are_detected() -> None:
    """Found: their draws were not those that an audit changes, so that it passed them all."""
    protocol = private()["shuffle-dp-se"]
    assert not verdict(protocol, 1.0, False, UNSEEDED).caught
    for how, (factor, reuse) in BROKEN.items():
        assert verdict(protocol, factor, reuse).caught, how


@pytest.mark.slow
def test_the_false_positive_rate_is_as_stated() -> None:
    """300 audits at an alarm of 5%: more than 30 accusations have probability below 1e-3."""
    for name in ("dist-dp-se", "cdp-se", "ldp-se"):
        protocol = first_round(name, {})
        runs = (verdict(protocol, 1.0, False, 0.05, 80) for _ in range(300))
        assert sum(found.caught for found in runs) <= 30, name


@pytest.mark.extended
def test_an_audit_states_both_verdicts_and_the_needed_samples() -> None:
    sound = audit_algorithm("cdp-se", {"epsilon": 0.5}, seconds=2, false_positive_rate=UNSEEDED)
    assert (sound.claimed_epsilon, sound.claimed_delta) == (0.5, 0.0)
    assert not sound.residuals.caught
    assert sound.attack.epsilon <= 0.5
    assert sound.samples_to_refute is not None
    broken = audit_algorithm("cdp-se", noise_factor=0.0, seconds=2)
    assert broken.caught
    assert broken.residuals.caught
    assert broken.attack.refutes(1.0)


@pytest.mark.extended
def test_an_audit_through_a_real_aggregation_matches_the_ideal_one() -> None:
    protocol = SecureSum(4, 4, DiscreteLaplace(4), PureDP(1.0))
    sight = adversary_view(protocol)
    for through in ("masking", "two-servers"):
        rows = observed(protocol, sight, through, enough=60)
        assert not residual_test(rows, UNSEEDED).caught
        with tampered_draws(0.0, False):
            assert residual_test(observed(protocol, sight, through, enough=60)).caught


def test_tampering_ends_with_the_audit_and_affects_draws_only() -> None:
    sound = NoiseDistribution.draw
    protocol = first_round("cdp-se", {})
    distribution = protocol.view_distribution(3, 4).pmf(np.arange(20))
    with tampered_draws(0.0, False):
        assert NoiseDistribution.draw is not sound
        np.testing.assert_array_equal(
            protocol.view_distribution(3, 4).pmf(np.arange(20)), distribution
        )
    assert NoiseDistribution.draw is sound


def test_invalid_audits_are_rejected() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("sdp-fedlinucb-vec", {"through": "mixing"}, "too large to send"),
        ("ucb1", {}, "has no guarantee to audit"),
        ("cdp-se", {"through": "masking"}, "does not fit masking"),
        ("cdp-se", {"noise_factor": -1.0}, "noise_factor is -1"),
        ("cdp-se", {"false_positive_rate": 2.0}, "false_positive_rate is 2"),
        ("cdp-se", {"seconds": 0.0}, "seconds is 0"),
    ]
    for name, how, reason in cases:
        with pytest.raises(TacitError, match=reason):
            audit_algorithm(name, **how)


def test_samples_to_refute_suffice_and_a_tenth_does_not() -> None:
    """Attacks on samples of the very distributions: 20 of each, seeded."""
    points, rng = np.arange(-40, 41), np.random.default_rng(0)
    p, q = (np.exp(-np.abs(points - shift) * 2.0) for shift in (0, 1))
    p, q = p / p.sum(), q / q.sum()
    needed = samples_to_refute(p, q, 1.0)
    assert needed is not None
    assert samples_to_refute(p, q, 2.0) is None

    def refuted(count: int) -> int:
        return sum(
            lower_bound(rng.choice(points, count, p=p), rng.choice(points, count, p=q)).refutes(1.0)
            for _ in range(20)
        )

    assert refuted(4 * needed) >= 15
    assert refuted(needed // 8) <= 5


CLAIMED = state_arithmetic(PureDP(0.5, view=View.MESSAGE), Arithmetic.EXACT)


def overstated(users: int) -> RandomizedBits:
    """Tacit's own protocol with a guarantee from outside."""
    made = RandomizedBits(users, PureDP(3.0))
    made.guarantee = CLAIMED
    return made


@pytest.mark.extended
def test_audits_of_algorithms_from_outside_print_guarantees_as_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guarantee of (0.5, 0)-DP beside the verdict said that its noise is drawn exactly."""
    entry = lookup("ldp-se")

    def build(problem: Any) -> Experiment:
        made = entry.build(problem)
        mechanism = PerRound(overstated, {}, Guaranteed(CLAIMED))
        return Experiment.of(made.learner, mechanism, made.options)

    changed = replace(entry, build=build)
    monkeypatch.setattr("tacit.studies.audit.lookup", lambda _: changed)
    found = audit_algorithm("ldp-se", seconds=2)
    assert found.attack.refutes(0.5)
    assert Declared() in found.guarantee.assumptions
    assert found.guarantee.arithmetic is Arithmetic.UNSTATED
    monkeypatch.undo()
    own = audit_algorithm("ldp-se", seconds=2).guarantee
    assert own.arithmetic is Arithmetic.EXACT
    assert Declared() not in own.assumptions


def test_theorem_forms_from_outside_are_not_restated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the noise's zCDP was printed as in the theorem, unchecked."""
    asked: dict[str, Any] = {"horizon": 2000, "constants": "paper", "runs": 1}
    result = simulate("dist-cdp-se", **asked)
    assert in_theorem_form(result) is not None
    form = GuaranteeForm("zCDP", also=lambda _: ConcentratedDP(0.001))
    claimed = replace(lookup("dist-cdp-se"), form=form)
    monkeypatch.setattr("tacit.simulation.study.lookup", lambda _: claimed)
    assert in_theorem_form(result) is None


def test_a_protocol_of_unknown_view_names_the_function_to_extend() -> None:
    with pytest.raises(TacitError, match=rf"Extend {adversary_view.__name__}"):
        adversary_view(CentralBall(4, 2, 1.0, ApproximateDP(1.0, 1e-6)))
