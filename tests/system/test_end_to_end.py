"""Whole rounds with real cryptography: devices draw exactly, an intermediary opens, the learner
decides.

Two thousand simulated devices add Pólya shares to their answers; masking, splitting and mixing each
open the batch. What comes out must follow the stated law, and a learner must decide as it does with
the ideal functionality under the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tacit.bandits import ForgettingElimination
from tacit.checks import TacitError
from tacit.intermediaries import (
    Dropouts,
    Neighbourhood,
    Refusal,
    neighbourhood,
    run_masking,
    run_mixing,
    run_splitting,
)
from tacit.noise import DiscreteLaplace
from tacit.noise.coins import below
from tacit.privacy import PureDP, privacy_loss
from tacit.protocols.contract import Opened
from tacit.protocols.modular import SecureSum

DEVICES = 2000
PRECISION = 8
NEIGHBOURS = Neighbourhood(21, 11)


def secure_sum(users: int = DEVICES, dropout: float = 0.0) -> SecureSum:
    return SecureSum(users, PRECISION, DiscreteLaplace(PRECISION), PureDP(1.0), dropout=dropout)


def mask(protocol: SecureSum, messages: list[int]) -> Opened:
    among = NEIGHBOURS if len(messages) > 100 else None
    view = run_masking(messages, protocol.modulus, protocol.minimum, among)
    return Opened(view.numbers[0], view.reports)


def split(protocol: SecureSum, messages: list[int]) -> Opened:
    view = run_splitting(messages, protocol.modulus, protocol.minimum)
    return Opened(view.numbers[0], view.reports)


def mix(protocol: SecureSum, messages: list[int]) -> Opened:
    """Every user's message as three random shares that travel separately through the shuffler."""
    width = (protocol.modulus.bit_length() + 7) // 8
    reports = []
    for message in messages:
        first, second = below(protocol.modulus), below(protocol.modulus)
        shares = (first, second, (message - first - second) % protocol.modulus)
        reports.append([share.to_bytes(width, "big") for share in shares])
    view = run_mixing(reports, protocol.minimum)
    total = sum(int.from_bytes(message, "big") for message in view.messages)
    return Opened(total % protocol.modulus, view.reports)


INTERMEDIARIES: dict[str, Callable[[SecureSum, list[int]], Opened]] = {
    "masking": mask,
    "splitting": split,
    "mixing": mix,
}


@pytest.mark.parametrize("name", INTERMEDIARIES)
def test_two_thousand_devices_through_real_cryptography_give_the_exact_modular_sum(
    name: str,
) -> None:
    protocol = secure_sum()
    rewards = np.random.default_rng(1).random(DEVICES)
    messages = [protocol.randomize(float(x)) for x in rewards]
    opened = INTERMEDIARIES[name](protocol, messages)
    assert opened == protocol.combine(messages)
    # rounding and noise stay within what they have but for a chance of 1e-9 each
    slack = (
        protocol.error(DEVICES).radius(1e-9) + math.sqrt(DEVICES / 2 * math.log(2e9)) / PRECISION
    )
    assert abs(protocol.analyze(opened).total - rewards.sum()) < slack


def test_the_error_of_opened_sums_follows_the_stated_law() -> None:
    """Chi-square of 400 batches of 16 devices, opened by splitting, against the noise's law; false
    alarm 1e-6 (draws have no seed).
    """
    from scipy.stats import chi2

    protocol = SecureSum(16, 1, DiscreteLaplace(1), PureDP(1.0))
    answers = [1.0] * 5 + [0.0] * 11
    errors = []
    for _ in range(400):
        view = run_splitting(
            [protocol.randomize(x) for x in answers], protocol.modulus, protocol.minimum
        )
        errors.append(round(protocol.analyze(Opened(view.numbers[0], view.reports)).total - 5))
    edges = (-2, -1, 0, 1, 2)
    observed = [
        sum(e <= -2 for e in errors),
        *(sum(e == k for e in errors) for k in (-1, 0, 1)),
        sum(e >= 2 for e in errors),
    ]
    law = DiscreteLaplace(1)
    expected = [
        400 * law.cdf(-2),
        *(400 * float(law.pmf(k)) for k in (-1, 0, 1)),
        400 * law.tail(1),
    ]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert statistic < chi2.isf(1e-6, len(edges) - 1)


@pytest.mark.parametrize("name", INTERMEDIARIES)
def test_a_learner_decides_through_cryptography_as_with_the_ideal_functionality(name: str) -> None:
    """The same messages through combine and through the intermediary: every proposal and the final
    state are the same.
    """
    rng = np.random.default_rng(3)
    means = (0.2, 0.9, 0.5)
    ideal, real = (ForgettingElimination(arms=3, horizon=700, growth=4) for _ in range(2))
    while batches := ideal.propose():
        assert real.propose() == batches
        for batch in batches:
            if not batch.opened:
                ideal.skip(batch)
                real.skip(batch)
                continue
            protocol = SecureSum(batch.users, 1, DiscreteLaplace(1), PureDP(1.0))
            messages = [
                protocol.randomize(float(rng.random() < means[batch.arm]))
                for _ in range(batch.users)
            ]
            ideal.observe(batch, protocol.analyze(protocol.combine(messages)))
            real.observe(batch, protocol.analyze(INTERMEDIARIES[name](protocol, messages)))
    assert real.to_dict() == ideal.to_dict()
    assert real.best() == ideal.best()


def test_dropout_within_what_was_promised_is_survived_and_private() -> None:
    """A fifth of 100 devices drop out at various stages: the sum of the others opens, and the noise
    in it still gives epsilon = 1.
    """
    protocol = secure_sum(100, dropout=0.2)
    assert protocol.minimum == 80
    messages = [protocol.randomize(0.5) for _ in range(100)]
    gone = Dropouts(join=range(5), share=range(5, 10), mask=range(10, 20), reveal=range(20, 25))
    among = neighbourhood(100, dropout=0.3, corrupt=0.05)
    view = run_masking(messages, protocol.modulus, protocol.minimum, among, gone)
    assert view.reports == 80
    assert view.numbers[0] == sum(messages[20:]) % protocol.modulus
    assert protocol.analyze(Opened(view.numbers[0], view.reports)).error.users == 80
    assert privacy_loss(protocol.share.power(80), PRECISION).pure <= 1.0


def test_shares_made_for_everyone_fail_at_a_fifth_of_dropout_and_ours_hold() -> None:
    """Exactly, from the law of the shares that arrive: CORRECTIONS 13."""
    users, arrived = 100, 80
    law = DiscreteLaplace(PRECISION)
    naive = privacy_loss(law.share(users).power(arrived), PRECISION).pure
    ours = privacy_loss(law.share(arrived).power(arrived), PRECISION).pure
    assert naive == pytest.approx(1.371, abs=0.01)
    assert naive > 1.0
    assert ours == pytest.approx(1.0)
    for more in (81, 90, 100):
        assert privacy_loss(law.share(arrived).power(Fraction(more)), PRECISION).delta(1.0) <= 1e-12


def test_one_report_fewer_than_promised_opens_nothing() -> None:
    protocol = secure_sum(50, dropout=0.2)
    messages = [protocol.randomize(1.0) for _ in range(50)]
    with pytest.raises(Refusal, match="minimum is 40"):
        run_masking(messages, protocol.modulus, protocol.minimum, dropouts=Dropouts(mask=range(11)))
    with pytest.raises(Refusal, match="minimum is 40"):
        run_splitting(messages, protocol.modulus, protocol.minimum, lost=(range(11), ()))
    with pytest.raises(TacitError, match="below the 40"):
        protocol.analyze(Opened(0, 39))
