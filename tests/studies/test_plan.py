"""Plans: every trust model or algorithm has its row, and one sentence says which to take."""

from __future__ import annotations

import math

import pytest

from tacit.checks import TacitError
from tacit.studies.plan import plan


def test_a_plan_costs_every_trust_model_and_recommends_one() -> None:
    result = plan(3, 20_000, 0.2, 1.0, runs=2)
    assert [cost.trust for cost in result.costs] == ["central", "secagg", "shuffle", "local"]
    assert all(cost.regret > 0 and cost.bits_per_user > 0 for cost in result.costs)
    assert result.recommendation.startswith("Use secure aggregation")
    assert "too few" in plan(3, 200, 0.02, 0.5, runs=2).recommendation
    with pytest.raises(TacitError, match="how much better the best option is"):
        plan(3, 1000, 0.0, 1.0)


def test_a_trust_model_that_cannot_serve_is_a_row_that_says_why() -> None:
    result = plan(3, 20_000, 0.2, 0.09, runs=1)
    refused = {cost.trust: cost for cost in result.costs if cost.refused}
    assert list(refused) == ["shuffle"]
    assert "smallest certified is 0.1" in refused["shuffle"].refused
    assert math.isnan(refused["shuffle"].regret)
    assert result.recommendation.startswith("Use secure aggregation")
    assert "shuffler" not in result.recommendation
    served = plan(3, 20_000, 0.2, 0.4, 1e-5, runs=1)
    assert not any(cost.refused for cost in served.costs)


def test_a_plan_that_nothing_can_serve_is_refused() -> None:
    with pytest.raises(TacitError, match="epsilon is 0"):
        plan(3, 1000, 0.1, 0.0)
    with pytest.raises(TacitError, match="did you mean private-klucb"):
        plan(3, 1000, 0.1, 1.0, algorithm="private-klucbs")


def test_algorithms_of_any_family_are_costed_one_row_each() -> None:
    names = ["klucb", "dist-dp-se", "cdp-pe", "sdp-fedlinucb", "fedlinucb"]
    result = plan(3, 500, 0.2, 1.0, 1e-5, runs=1, algorithms=names)
    assert [cost.trust for cost in result.costs] == names
    families = ["arms", "arms", "linear", "federated", "federated"]
    assert [cost.family for cost in result.costs] == families
    assert [cost.trust for cost in result.costs if cost.refused] == ["sdp-fedlinucb"]
    assert all(cost.regret > 0 for cost in result.costs if not cost.refused)
    assert "(1, 1e-05)-DP" in result.costs[2].guarantee
    assert "Of linear algorithms, cdp-pe loses least" in result.recommendation


def test_an_algorithm_of_one_trust_model_has_one_row() -> None:
    (cost,) = plan(3, 20_000, 0.2, 1.0, runs=1, algorithm="dist-dp-se").costs
    assert (cost.trust, cost.trusted) == ("dist-dp-se", "secure aggregation")
    assert cost.lost_share == pytest.approx(cost.regret / (0.2 * 20_000))
