"""Contextual experiments through a shuffler: small tables as noisy bits of every cell."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.service.deployed import (
    ADDRESSES,
    KEYS,
    SECRETS,
    Deployed,
    definition_of,
    deployed,
)
from tests.service.test_contextual import MEANS

from tacit.aggregation import ShuffledView
from tacit.aggregation.shuffler import ShufflerRound
from tacit.client.choices import choose
from tacit.client.trust_models import shuffler
from tacit.errors import Rejected, TacitError
from tacit.noise import Binomial
from tacit.privacy import ApproximateDP, ThreatModel
from tacit.protocols.statistic_sums import ShuffledTable, StatisticTotals, table_bits
from tacit.protocols.statistics import TableStatistic
from tacit.rounds.codecs import Mixed, codec
from tacit.service.assignment import Assigned
from tacit.service.definition import Definition
from tacit.service.definition_text import DefinitionError
from tacit.service.forecast import explained
from tacit.service.pages import participant
from tacit.service.schema import Stage
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.terms import Pinned, Terms, cosign, in_words
from tacit.terms.accounting import cells_delta
from tacit.terms.visibility import visibility

ALARM = 1e-6  # false positive rate of each statistic


def contextual(**changed: Any) -> Definition:
    given: dict[str, Any] = {
        "algorithm": "private-contextual",
        "context_fields": ("device: phone, desktop",),
    }
    return definition_of("shuffler", **given | changed)


def described(one: Deployed, assigned: Assigned) -> ShufflerRound:
    engine = coordinator_engine(one.pinned.terms)
    found = decoded(engine, one.pinned.terms, assigned.announcement)
    assert isinstance(found, ShufflerRound)
    return found


def run_round(one: Deployed, rng: random.Random) -> int:
    """All slots are joined, devices choose and report; then the deadline passes."""
    one.step(2)
    wanted = sum(row.slots - row.assigned for row in one.coordinator.rounds(Stage.OPEN))
    asked = one.join(wanted) if wanted else []
    sent = []
    for each in asked:
        context = {"device": rng.choice(["phone", "desktop"])}
        chosen = choose(one.pinned.terms, described(one, each).binding, context)
        liked = rng.random() < MEANS[context["device"]][chosen.option]
        sent.append((each, one.report(each, *chosen.levels[:-1], int(liked))))
    assert set(one.send(sent)) <= {None}
    one.clock.now += 200
    one.step(3)
    return len(asked)


def test_devices_learn_the_best_option_per_context(tmp_path: Path) -> None:
    """A table of 2 × 2, from the definition to the answer; the simulation errs in 0 of 200."""
    with deployed(contextual(epsilon=Fraction(6), participants=160), tmp_path) as one:
        rng = random.Random(3)
        while run_round(one, rng):
            pass
        status = one.coordinator.status(one.digest)
        found = one.coordinator.estimates(one.digest)
    assert status["state"] == "finished"
    best = {one["context"]["device"]: one["option"] for one in found["contexts"]["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}
    assert status["guarantee"]["delta"] == 1e-6


def test_terms_state_noise_bits_and_devices_verify_them(tmp_path: Path) -> None:
    with deployed(contextual(participants=3000, epsilon=Fraction(1)), tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        terms, pinned, offer = one.pinned.terms, one.pinned, described(one, assigned).offer()
    assert Terms.decode(terms.encode()) == terms
    assert (terms.noise.by, terms.noise.distribution) == ("devices", "binomial")
    assert "binomial noise of variance" in " ".join(in_words(terms))
    assert "adds noise bits to each cell" in visibility(terms).device
    assert "whose bit is which" in visibility(terms).sights[1].never
    assert not participant.in_browsers(terms)
    assert pinned.check(offer) == 1
    assert offer.metrics == 8
    assert offer.divisor is not None
    assert offer.parts is not None
    assert offer.total is not None
    bits = offer.divisor * (offer.parts - 1)
    assert cells_delta(bits, offer.total, Fraction(1)) <= terms.guarantee.delta
    for changed, said in (
        ({"total": offer.total / 2}, "delta of the noise of the round|variance of the noise bits"),
        ({"total": offer.total * Fraction(9, 10)}, "delta of the noise of the round is"),
        ({"divisor": offer.divisor - 1}, "delta of the noise of the round is"),
        ({"parts": 1}, "number of messages per metric of the round"),
        ({"modulus": 1 << 20}, "modulus of the round"),
        ({"policy": offer.policy[:-4]}, "policy of the round is invalid"),
        ({"metrics": 2}, "number of metrics of the round is 2: must be 8"),
        ({"option": 0, "policy": b"", "metrics": 1}, "no rounds with one option"),
    ):
        with pytest.raises(Rejected, match=said):
            pinned.check(replace(offer, **changed))


def test_terms_with_other_noise_or_an_evaluation_slice_are_rejected() -> None:
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    assert terms.context is not None
    for changed, said in (
        ({"noise": replace(terms.noise, distribution="discrete-laplace")}, "must be binomial"),
        ({"context": replace(terms.context, evaluation=Fraction(1, 10))}, "0 with trust shuffler"),
        ({"guarantee": replace(terms.guarantee, delta=Fraction(0))}, "above 0 with binomial"),
    ):
        with pytest.raises(TacitError, match=said):
            replace(terms, **changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"evaluation": Fraction(1, 10)}, "0, or left out, with trust shuffler"),
        ({"statistic": "moments"}, "which serves tables of at most 24 cells"),
        ({"context_fields": ("a: " + ", ".join(map(str, range(13))),)}, r"messages in a round of"),
        ({"delta": Fraction(0)}, "above 0"),
    ],
)
def test_invalid_definitions_are_rejected_with_their_cost(
    changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(DefinitionError, match=said):
        contextual(**changed)


def test_the_check_states_what_a_device_sends() -> None:
    said = " ".join(explained(contextual(participants=3000, epsilon=Fraction(1)))["What you ask"])
    assert "noise bits of every device in the smallest round" in said
    assert "encrypted messages" in said


# The guarantee, from the distribution of what is shuffled


def two_cells(noise: Binomial, epsilon: float) -> float:
    """δ by force: (X, Y + 1) against (X + 1, Y) over all pairs of numbers, both directions."""
    ones = noise.pmf(np.arange(noise.n + 1))
    stays, moves = np.append(ones, 0.0), np.append(0.0, ones)
    before, after = np.outer(stays, moves), np.outer(moves, stays)
    factor = math.exp(epsilon)
    return max(
        float(np.maximum(0.0, before - factor * after).sum()),
        float(np.maximum(0.0, after - factor * before).sum()),
    )


@pytest.mark.parametrize(
    ("bits", "bias", "epsilon"),
    [(160, "1/2", 1.0), (60, "1/5", 0.5), (300, "1/20", 2.0), (3, "1/3", 0.1), (1, "1/2", 1.0)],
)
def test_delta_is_that_of_two_cells_moved_jointly(bits: int, bias: str, epsilon: float) -> None:
    exact = two_cells(Binomial(bits, Fraction(bias)), epsilon)
    assert cells_delta(bits, Fraction(bias), Fraction(epsilon)) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("epsilon", ["1/100", "1", "12", "1000"])
@pytest.mark.parametrize("few", ["1/1000000", "1/100", "1/20", "2"])
@pytest.mark.parametrize("bits", [3, 160, 700])
def test_delta_is_right_where_nearly_all_bits_are_equal(bits: int, few: str, epsilon: str) -> None:
    """Probabilities of rare numbers are 0 in doubles: the others must count all the same."""
    rare = Fraction(few) / bits
    for bias in (rare, 1 - rare):
        exact = two_cells(Binomial(bits, bias), min(float(Fraction(epsilon)), 700.0))
        assert cells_delta(bits, bias, Fraction(epsilon)) == pytest.approx(exact, rel=1e-8)


def test_a_device_rejects_bits_of_a_bias_near_one(tmp_path: Path) -> None:
    """Under terms whose least variance is tiny: nearly no table would have any noise."""
    with deployed(contextual(participants=3000, epsilon=Fraction(1)), tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        terms, offer = one.pinned.terms, described(one, assigned).offer()
    weak = replace(terms, noise=replace(terms.noise, minimum=Fraction(1, 10**6)))
    pinned = Pinned(weak, tuple(cosign(weak, key) for key in SECRETS[:2]), weak.keys)
    assert offer.divisor is not None
    assert offer.parts is not None
    bits = offer.divisor * (offer.parts - 1)
    for rare in (Fraction(1, 10**3), Fraction(1, 10**5)):
        with pytest.raises(Rejected, match=r"delta of the noise of the round is (0\.9\d*|1): must"):
            pinned.check(replace(offer, terms=weak.digest, total=1 - rare / bits))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("participants", [12, 30, 200, 600])
def test_the_stated_noise_is_nearly_minimal(participants: int, epsilon: float) -> None:
    target, threat = ApproximateDP(epsilon, 1e-6), ThreatModel(0.2, 0.1)
    protocol = ShuffledTable(participants, TableStatistic(2, 3), target, threat)
    bits, bias = protocol.honest * protocol.noise_bits, protocol.bias
    assert two_cells(Binomial(bits, bias), epsilon) <= target.delta
    assert protocol.honest == threat.honest(participants)
    assert two_cells(Binomial(bits, bias * Fraction(9, 10)), epsilon) > target.delta


def test_more_reports_never_weaken_the_guarantee() -> None:
    target = ApproximateDP(1.0, 1e-6)
    each, bias = table_bits(40, target)
    deltas = [cells_delta(each * reports, bias, Fraction(1)) for reports in (40, 41, 60, 100)]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] <= target.delta


def test_device_simulation_and_protocol_have_one_distribution() -> None:
    """Numbers of ones of 300 reports: chi-square of both paths, false positive rate 1e-6 each."""
    protocol = ShuffledTable(300, TableStatistic(1, 2), ApproximateDP(1.0, 1e-6))
    messages = [protocol.randomize(n % 4) for n in range(300)]
    devices = protocol.analyze(protocol.combine(messages)).total
    load = StatisticTotals(np.full(4, 75), 300)
    simulated = protocol.simulate(load, np.random.default_rng(1)).total
    variance = 300 * protocol.noise_bits * protocol.bias * (1 - protocol.bias)
    for found in (devices, simulated):
        square = float((((np.asarray(found) - 75) ** 2) / float(variance)).sum())
        assert stats.chi2.sf(square, 4) > ALARM


def test_bits_of_a_device_have_the_announced_probability(tmp_path: Path) -> None:
    """2,000 cells: the number of ones among noise bits is binomial; halved bias is found."""
    with deployed(contextual(participants=3000, epsilon=Fraction(1)), tmp_path) as one:
        one.step(2)
        about = described(one, one.join(1)[0])
    parts = about.messages // about.metrics
    drawn = [shuffler.randomized(about, 0) for _ in range(2000)]
    assert {len(bits) for bits in drawn} == {parts}
    ones, bits = sum(map(sum, drawn)), 2000 * (parts - 1)
    assert stats.binomtest(ones, bits, float(about.noise.total)).pvalue > ALARM
    assert stats.binomtest(ones, bits, float(about.noise.total) / 2).pvalue < ALARM
    assert all(sum(shuffler.randomized(about, 1)) >= 1 for _ in range(100))


def test_all_bits_of_a_report_may_carry_one_label() -> None:
    """The analyzer cannot tell: a malicious participant moves one cell by the bits of a report."""
    table = ShuffledTable(100, TableStatistic(2, 2), ApproximateDP(8.0, 1e-4))
    way, bits = codec(table, "mixing"), int(table.bits_per_participant)
    assert isinstance(way, Mixed)
    honest = [message for _ in range(99) for message in way.payload(table.randomize(0))]
    zeros, ones = (
        np.array(way.released(ShuffledView((*honest, *[bytes((bit,))] * bits), 100, 0)).values)
        for bit in (0, 1)
    )
    assert (ones - zeros).tolist() == [bits, *[0] * (table.coordinates - 1)]


def test_delta_of_too_many_noise_bits_counts_as_one() -> None:
    """A device rejects what it cannot compute."""
    assert cells_delta(1 << 20, Fraction(1, 2), Fraction(1)) < 1e-6
    assert cells_delta(1 << 100, Fraction(1, 2), Fraction(1)) == 1.0


def test_shuffled_tables_support_one_participation() -> None:
    target = ApproximateDP(1.0, 1e-6, participations=2)
    with pytest.raises(TacitError, match="participations is 2: must be 1 with tables"):
        ShuffledTable(300, TableStatistic(1, 2), target)
