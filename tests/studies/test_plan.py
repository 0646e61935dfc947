"""Plans: a row for every trust model or algorithm, and a recommendation."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.tables import each_row

from tacit.errors import TacitError
from tacit.simulation import simulate
from tacit.studies.plan import plan
from tacit.studies.plan_pictures import draw
from tacit.trust import DEPLOYABLE, TrustModel

TRUSTS = ["central", "secure-aggregation", "two-servers", "shuffler", "local"]

FIRST = (
    "Use secure aggregation" if TrustModel.SECURE_AGGREGATION in DEPLOYABLE else "Use two servers"
)


def test_a_plan_costs_every_trust_model_and_recommends_one(tmp_path: Path) -> None:
    result = plan(3, baseline=0.2, lift=0.5, epsilon=1.0, per_day=500, runs=2)
    assert [cost.trust for cost in result.costs] == TRUSTS
    for cost in result.costs:
        assert cost.participants is not None
        assert cost.worse is not None
        assert 0 < cost.worse < cost.participants
        assert cost.days == math.ceil(cost.participants / 500)
        assert cost.rounds is not None
        assert 1 < cost.rounds <= 32
        assert cost.bits_per_user > 0
        assert cost.regret is None
        assert "--control-share" in cost.command
    assert result.recommendation.startswith(FIRST)
    assert "days" in result.recommendation
    assert draw(result, tmp_path / "plan.png").stat().st_size > 1000


def test_a_horizon_adds_the_regret_over_all_participants() -> None:
    result = plan(2, 20_000, 0.2, 1.0, runs=2, algorithm="private-klucb")
    for cost in result.costs:
        assert cost.regret is not None
        assert cost.lost_share == pytest.approx(cost.regret / (0.2 * 20_000))


def test_an_infeasible_trust_model_has_a_row_with_the_reason() -> None:
    result = plan(baseline=0.3, lift=0.5, epsilon=0.8, dropout=0.1, runs=1)
    rejected = {cost.trust: cost for cost in result.costs if cost.infeasible}
    assert list(rejected) == ["shuffler"]
    assert "complete groups only" in rejected["shuffler"].infeasible
    assert rejected["shuffler"].participants is None
    assert result.recommendation.startswith(FIRST)


def test_several_participations_share_one_guarantee() -> None:
    result = plan(baseline=0.3, lift=0.5, epsilon=1.0, participations=2, runs=1)
    secagg = result.costs[1]
    data = secagg.to_dict()["guarantee"]
    assert (data["epsilon"], data["delta"], data["text"]) == (1.0, 1e-6, secagg.guarantee)
    assert secagg.guarantee.startswith("(1, 1e-06)-DP")
    once = plan(baseline=0.3, lift=0.5, epsilon=1.0, runs=1).costs[1]
    assert (secagg.participants or 0) > (once.participants or 0) > 0


MASKS = Fraction(3, 2**40)  # of three participations


@pytest.mark.parametrize("algorithm", ["private-med", "dist-rdp-se"])
@pytest.mark.parametrize("delta", [None, 1e-9])
def test_plans_with_secure_aggregation_state_the_guarantee_of_terms(
    algorithm: str, delta: float | None
) -> None:
    """Noise gets what masks leave of δ; both need adversaries that are bounded."""
    people = {"participations": 3, "horizon": 2000, "runs": 1}
    result = plan(2, gap=0.5, delta=delta, algorithm=algorithm, **people)
    row = {cost.trust: cost for cost in result.costs}.get("secure-aggregation", result.costs[0])
    stated = row.to_dict()["guarantee"]
    assert (stated["epsilon"], stated["delta"]) == (1.0, delta or 1e-6)
    assert {"id": "bounded-adversary"} in stated["assumptions"]
    assert row.guarantee == stated["text"]
    simulated = row.command.split("--delta ")[1].split()[0]
    assert 0 < Fraction(float(simulated)) <= Fraction(delta or 1e-6) - MASKS


def test_only_secure_aggregation_needs_a_delta_of_its_own() -> None:
    result = plan(2, gap=0.5, epsilon=3.0, delta=float(MASKS) / 2, participations=3, runs=1)
    row = {cost.trust: cost for cost in result.costs}
    assert "at least participations·2^-40" in row["secure-aggregation"].infeasible
    assert not row["two-servers"].infeasible
    assert "the adversary is computationally bounded" in row["shuffler"].guarantee


def test_plans_with_a_shuffler_and_no_delta_mention_the_default_of_definitions() -> None:
    (row,) = plan(2, gap=0.5, trusts=("shuffler",), runs=1).costs
    assert "definitions have a delta here, so plan them with --delta 1e-06" in row.note
    (planned,) = plan(2, gap=0.5, trusts=("shuffler",), delta=1e-6, runs=1).costs
    assert "definitions" not in planned.note.split("to tolerate")[0]
    assert planned.guarantee.startswith("(1, 1e-06)-DP")


@each_row(
    ("asked", "message"),
    [
        ({"gap": 0.0}, "[Hh]ow much better the best option is"),
        ({"gap": 0.1, "epsilon": 0.0}, "epsilon is 0"),
        ({"gap": 0.1, "algorithm": "private-klucbs"}, "did you mean private-klucb"),
        ({}, "lift and gap are missing: must be one"),
        ({"baseline": 0.2}, "lift and gap are missing: must be one"),
        ({"gap": 0.1, "algorithm": "private-contextual"}, "gap is 0.1: must not be given for priv"),
        (
            {"baseline": 0.2, "algorithms": ("fedlinucb", "private-contextual")},
            "baseline is 0.2: must not be given for fedlinucb, private-contextual, whose problem",
        ),
        ({"gap": 0.1, "lift": 0.1, "baseline": 0.1}, "lift is 0.1 and gap is 0.1: must be one"),
        ({"lift": 0.1}, "Give the baseline"),
        ({"lift": 5.0, "baseline": 0.5}, "best option has mean 3"),
        ({"lift": 0.1, "baseline": 1.5}, "baseline is 1.5"),
        ({"gap": 0.1, "options": 100_000}, "must be at most 100"),
        ({"gap": 0.1, "horizon": 1e30}, "horizon is 1e\\+30: must be at most"),
        ({"gap": 0.1, "participations": 0}, "participations is 0"),
        ({"gap": 0.1, "dropout": 1.0}, "dropout is 1"),
        ({"gap": 0.1, "participation": 2}, "a plan has no option participation"),
    ],
)
def test_invalid_plans_are_rejected_before_any_work(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        plan(**asked)


@pytest.mark.extended
def test_algorithms_of_any_problem_have_one_row_each() -> None:
    names = ["klucb", "dist-dp-se", "cdp-pe", "sdp-fedlinucb", "fedlinucb"]
    result = plan(3, 500, 0.2, 1.0, 1e-5, runs=1, algorithms=names)
    assert [cost.trust for cost in result.costs] == names
    families = ["arms", "arms", "linear", "federated", "federated"]
    assert [cost.family for cost in result.costs] == families
    assert [cost.trust for cost in result.costs if cost.infeasible] == ["sdp-fedlinucb"]
    assert all((cost.regret or 0) > 0 for cost in result.costs if not cost.infeasible)
    assert "(1, 1e-05)-DP" in result.costs[2].guarantee
    assert "Of linear algorithms, cdp-pe loses least" in result.recommendation


def test_a_plan_states_where_the_expected_means_do_not_apply() -> None:
    """Without any algorithm that takes them they are rejected: see above."""
    found = plan(2, 500, 0.2, runs=1, algorithms=["klucb", "fedlinucb"])
    assert ["means of its own" in cost.note for cost in found.costs] == [False, True]
    (alone,) = plan(2, 500, runs=1, algorithm="fedlinucb").costs
    assert not alone.note
    assert alone.regret == found.costs[1].regret


def test_an_algorithm_of_one_trust_model_has_one_row() -> None:
    (cost,) = plan(3, 20_000, 0.2, 1.0, runs=1, algorithm="dist-dp-se").costs
    assert (cost.trust, cost.trusted) == ("dist-dp-se", "secure-aggregation")
    assert cost.regret is not None
    assert cost.lost_share == pytest.approx(cost.regret / (0.2 * 20_000))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lift", "asked"),
    [
        (0.2, {"rounds": 20}),
        (0.1, {"rounds": 20, "participations": 4, "dropout": 0.2}),
    ],
)
def test_a_plan_is_within_a_quarter_of_the_simulation(lift: float, asked: dict[str, Any]) -> None:
    """At ε = 0.1 and a baseline of 2%, against 200 fresh seeds: with standard errors of 5% and 3%
    the false-alarm rate is below 1e-4 a row.
    """
    planned = plan(baseline=0.02, lift=lift, epsilon=0.1, **asked)
    checked = 0
    for cost in planned.costs:
        if cost.infeasible:
            continue
        words = cost.command.split()
        result = simulate(
            "private-med",
            means=(0.02, 0.02 + 0.02 * lift),
            epsilon=0.1,
            control_share=0.4,
            trust=cost.trust,
            horizon=int(words[words.index("--horizon") + 1]),
            until_decided=True,
            runs=200,
            seed=1_000,
            **{k: v for k, v in asked.items() if k != "dropout" or cost.trust != "local"},
        )
        then = result.decided()["participants_to_decide"]
        assert cost.participants == pytest.approx(then, rel=0.25)
        assert cost.worse == pytest.approx(result.regret_mean / (0.02 * lift), rel=0.25)
        checked += 1
    assert checked >= 4


def test_a_row_states_the_certified_group_sizes_of_a_shuffler() -> None:
    rows = {
        epsilon: {cost.trust: cost.note for cost in plan(gap=0.4, epsilon=epsilon, runs=1).costs}
        for epsilon in (0.1, 1.0)
    }
    assert "groups of 64," in rows[0.1]["shuffler"]
    assert "groups of 1,024," in rows[1.0]["shuffler"]
    assert "groups" not in rows[0.1]["secure-aggregation"]


def test_rows_with_shared_noise_state_the_cost_of_default_dropouts() -> None:
    """20% missing and 10% dishonest: 70% of a round draw all of the noise.

    The shuffler that is planned certifies complete groups only.
    """
    rows = {cost.trust: cost for cost in plan(gap=0.4, epsilon=1.0, runs=2).costs}
    said = rows["secure-aggregation"].note
    assert "20% missing and 10% dishonest participants" in said
    assert "a full round has 43% more noise variance" in said
    (people,) = re.findall(r"it takes about ([\d,]+) participants", said)
    assert int(people.replace(",", "")) > 0
    assert "10% dishonest participants, which definitions tolerate" in rows["shuffler"].note
    assert "are not tolerated here" in rows["shuffler"].note
    assert not any(rows[trust].note for trust in ("central", "two-servers", "local"))
    (told,) = plan(gap=0.4, dropout=0.2, runs=1, trusts=("secure-aggregation",)).costs
    assert not told.note


@pytest.mark.extended
def test_a_horizon_is_long_enough_for_the_slowest_run() -> None:
    """Else participants until decided were only the horizon."""
    for cost in plan(baseline=0.2, lift=0.5, epsilon=1.0, runs=12).costs:
        words = cost.command.split()
        assert cost.participants is not None
        assert cost.participants < 0.9 * int(words[words.index("--horizon") + 1])
