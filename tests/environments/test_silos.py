"""Users of silos: contexts on the sphere, fresh each round; rankings read from a file of the
official form.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tacit.bandits.contextual.federated import FederatedLinUCB
from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.environments.lasso import lasso
from tacit.environments.silos import Synthetic, columns_of, read_ranking
from tacit.errors import TacitError
from tacit.types import Floats


def write_fold(path: Path, queries: int = 24, seed: int = 0) -> Path:
    """A file like Fold1/train.txt: labels depend on a few title features."""
    rng = np.random.default_rng(seed)
    title = columns_of("title")
    lines = []
    for query in range(queries):
        for _ in range(int(rng.integers(2, 9))):
            features = rng.uniform(0, 50, 136)
            score = features[title[3]] + features[title[10]] + 10 * rng.standard_normal()
            label = int(np.clip(score / 20, 0, 4))
            lines.append(
                f"{label} qid:{query + 1} "
                + " ".join(f"{i + 1}:{v:.4g}" for i, v in enumerate(features))
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_synthetic_features_are_on_the_sphere_with_a_constant_appended() -> None:
    rng = np.random.default_rng(0)
    environment = Synthetic.draw(4, 10, 100, rng)
    contexts = environment.contexts(rng)
    assert contexts.shape == (4, 100, 10)
    np.testing.assert_allclose(np.linalg.norm(contexts, axis=2), 1.0)
    np.testing.assert_allclose(contexts[..., -1], np.sqrt(0.5))
    np.testing.assert_allclose(np.linalg.norm(environment.parameter[:-1]), np.sqrt(0.5))
    means = contexts @ environment.parameter
    assert means.min() >= 0
    assert means.max() <= 1
    assert not np.array_equal(contexts, environment.contexts(rng))
    direction = contexts[..., :-1].reshape(-1, 9)
    assert np.abs(direction.mean(axis=0)).max() < 5 * np.sqrt(0.5 / 9 / 400)


def test_seeds_reproduce_and_noise_has_the_stated_deviation() -> None:
    one, other = (Synthetic.draw(2, 5, 10, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one.parameter, other.parameter)
    rewards = one.rewards(np.full(20_000, 0.5), np.random.default_rng(0))
    assert rewards.std() == pytest.approx(0.25, rel=0.03)


class Long(Synthetic):
    """Features of length 10 from outside, stated to be within bounds."""

    bounded: ClassVar[bool] = True

    def contexts(self, rng: np.random.Generator) -> Floats:
        return 10 * super().contexts(rng)


def test_features_from_outside_are_checked_whatever_their_class_states() -> None:
    """Reports moved by a hundred times the sensitivity of their guarantee."""
    rng = np.random.default_rng(0)
    (round_,) = FederatedLinUCB(4, 5, 10, 10).propose()
    assert isinstance(round_.assignment, LinUCBPolicy)
    world = Long(4, 3, Synthetic.draw(4, 5, 3, rng).parameter)
    with pytest.raises(TacitError, match="a feature vector has norm 10"):
        world.serve(round_.assignment.start(4), rng)


def test_a_ranking_is_distributed_among_the_silos(tmp_path: Path) -> None:
    ranking = read_ranking(write_fold(tmp_path / "train.txt"), silos=5)
    assert (ranking.silos, ranking.dimension) == (5, 57)
    assert sum(len(silo) for silo in ranking.queries) == 24
    assert (
        max(len(silo) for silo in ranking.queries) - min(len(silo) for silo in ranking.queries) <= 1
    )
    contexts = ranking.contexts(np.random.default_rng(0))
    assert contexts.shape[0] == 5
    assert contexts.shape[1] <= ranking.actions
    assert contexts.shape[2] == 57
    assert np.linalg.norm(contexts, axis=2).max() <= 1 + 1e-12
    assert np.linalg.norm(ranking.parameter) <= 1 + 1e-12
    strongest = np.argsort(-np.abs(ranking.parameter))[:2]
    assert set(strongest) == {3, 10}


def test_body_features_are_read_and_invalid_files_rejected(tmp_path: Path) -> None:
    path = write_fold(tmp_path / "train.txt")
    assert read_ranking(path, field="body", silos=2).dimension == 78
    assert not set(columns_of("body")) & set(range(2, 125, 5))
    with pytest.raises(TacitError, match="fewer than 100 silos"):
        read_ranking(path, silos=100)
    with pytest.raises(TacitError, match="MSLR-WEB10K"):
        read_ranking(tmp_path / "missing.txt")
    with pytest.raises(TacitError, match="one of title, body"):
        read_ranking(path, field="url")  # type: ignore[arg-type]


def test_lasso_meets_its_optimality_conditions() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 12)) * np.linspace(0, 2, 12)
    y = x @ np.where(np.arange(12) % 4 == 1, 1.0, 0.0) + rng.standard_normal(200)
    for penalty in (0.0, 0.05, 0.5):
        w = lasso(x, y, penalty)
        slope = x.T @ (y - x @ w) / 200
        active = w != 0
        np.testing.assert_allclose(slope[active], penalty * np.sign(w[active]), atol=1e-6)
        assert np.all(np.abs(slope[~active]) <= penalty + 1e-6)
