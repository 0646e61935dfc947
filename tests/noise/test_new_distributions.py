"""A distribution defined elsewhere works everywhere without registration."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.noise.battery import suspicions
from tests.noise.distributions import DISTRIBUTIONS

import tacit
from tacit.errors import Number, TacitError
from tacit.noise import DiscreteLaplace, NoiseDistribution, Skellam, Table, convolve
from tacit.noise.cumulants import cumulants
from tacit.noise.distribution import STORABLE, Floats
from tacit.noise.serialize import distribution_from_dict, distribution_to_dict
from tacit.privacy import (
    ApproximateDP,
    ComposedLoss,
    PureDP,
    ThreatModel,
    calibrate,
    l2_guarantee,
    linf_loss,
    privacy_loss,
    renyi_divergence,
)
from tacit.protocols.sums import SecureSum
from tacit.protocols.vector_noise import joint_epsilon
from tacit.types import Levels


@dataclass(frozen=True)
class Together(NoiseDistribution):
    """The sum of two independent distributions: divisible where both are."""

    one: NoiseDistribution
    other: NoiseDistribution

    @property
    def mean(self) -> float:
        return self.one.mean + self.other.mean

    @property
    def variance(self) -> float:
        return float(self.one.variance) + float(self.other.variance)

    @property
    def log_concave(self) -> bool:  # type: ignore[override]
        return self.one.log_concave and self.other.log_concave

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        return summed(self.one, self.other).log_pmf(k)

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        result: Floats = self.one.log_mgf(s) + self.other.log_mgf(s)
        return result

    def power(self, times: Number) -> NoiseDistribution:
        return Together(self.one.power(times), self.other.power(times))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        return self.one.sample(rng, size) + self.other.sample(rng, size)

    def _draw_one(self) -> int:
        return self.one.draw() + self.other.draw()

    @classmethod
    def of_std(cls, std: float) -> Together:
        half = math.sqrt(0.5) * std
        return cls(Skellam.of_std(half), DiscreteLaplace.of_std(half))


@lru_cache(maxsize=8)
def summed(one: NoiseDistribution, other: NoiseDistribution) -> Table:
    return convolve(one, other)


@dataclass(frozen=True)
class Mixture(NoiseDistribution):
    """Discrete Laplace noise of one of two scales: not log-concave, and without declared
    properties.
    """

    scales: tuple[float, ...]
    mean = 0.0

    @property
    def parts(self) -> list[DiscreteLaplace]:
        return [DiscreteLaplace(scale) for scale in self.scales]

    @property
    def variance(self) -> float:
        return float(np.mean([part.variance for part in self.parts]))

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        logs = [part.log_pmf(k) for part in self.parts]
        result: Floats = np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))
        return result

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        logs = [part.log_mgf(s) for part in self.parts]
        result: Floats = np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))
        return result

    def power(self, times: Number) -> NoiseDistribution:
        raise TacitError(f"no power {times}")

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        chosen = rng.integers(len(self.scales), size=size)
        return np.choose(chosen, [part.sample(rng, size) for part in self.parts])

    def _draw_one(self) -> int:
        return self.parts[0].draw()


DISTRIBUTION = Together(Skellam(2), DiscreteLaplace(3))
TARGET = ApproximateDP(1.0, 1e-5)


def hockey_stick(distribution: NoiseDistribution, shift: int, epsilon: float) -> float:
    k = np.arange(-4000, 4001)
    return float(
        np.maximum(0.0, distribution.pmf(k) - math.exp(epsilon) * distribution.pmf(k + shift)).sum()
    )


def test_every_exported_distribution_is_in_the_suite() -> None:
    ours = {
        distribution for name, distribution in STORABLE.items() if name.startswith("tacit.noise.")
    }
    assert ours == {type(distribution) for distribution in DISTRIBUTIONS.values()}
    assert all(
        NoiseDistribution.kinds[distribution.kind] is distribution
        for distribution in ours
        if issubclass(distribution, NoiseDistribution)
    )


def test_a_new_distribution_needs_an_unused_name() -> None:
    assert Together.kind == "together"
    assert NoiseDistribution.kinds["together"] is Together
    impostor = type("Skellam", (Together,), {})
    assert vars(impostor)["kind"] == "skellam"
    assert NoiseDistribution.kinds["skellam"] is Skellam
    assert type(distribution_from_dict(distribution_to_dict(Skellam(3)))) is Skellam


def test_a_new_distribution_round_trips() -> None:
    for distribution in (DISTRIBUTION, DISTRIBUTION.share(7), Mixture((1.0, 4.5))):
        assert (
            distribution_from_dict(json.loads(json.dumps(distribution_to_dict(distribution))))
            == distribution
        )


def test_deserialisation_imports_tacit_modules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("tacit.noise.serialize.import_module", asked.append)
    for name in ("os:system", "tacit.cli.__main__:main", "tacitly:Distribution", "this:Zen", "Law"):
        with pytest.raises(TacitError, match="is unknown"):
            distribution_from_dict({"law": name})
    assert not asked
    with pytest.raises(TacitError, match="is unknown"):
        distribution_from_dict({"law": "tacit.protocols.pure_shuffle:Unheard"})
    assert asked == ["tacit.protocols.pure_shuffle"]


@pytest.mark.parametrize(
    "distribution", [DISTRIBUTION, DISTRIBUTION.share(5), Mixture((1.0, 6.0))], ids=repr
)
def test_the_loss_of_a_new_distribution_is_exact_in_its_worst_shift(
    distribution: NoiseDistribution,
) -> None:
    loss = privacy_loss(distribution, 3)
    for epsilon in (0.0, 0.3, 1.0):
        truth = max(hockey_stick(distribution, shift, epsilon) for shift in (1, 2, 3))
        assert truth <= loss.delta(epsilon) <= truth * (1 + 1e-9) + 1e-15
    assert renyi_divergence(distribution, 1, 2.0) > 0


def test_new_distributions_compose_and_hide_vectors() -> None:
    distribution = Together.of_std(30.0)
    single = privacy_loss(distribution, 2).epsilon(1e-5)
    assert single < ComposedLoss(((privacy_loss(distribution, 2), 3),)).epsilon(1e-5) < 3 * single
    joint = joint_epsilon(distribution, 2, 3, 1e-5)
    assert joint == pytest.approx(linf_loss(distribution, 2, 3).epsilon(1e-5), rel=1e-3)
    assert single < l2_guarantee(distribution, 2 * math.sqrt(3), 3, 1e-5).epsilon < 1.3 * joint
    with pytest.raises(TacitError, match="not log-concave"):
        linf_loss(Mixture((1.0, 6.0)), 1, 2)


@pytest.mark.parametrize("kind", [Together, "together"])
def test_a_new_distribution_is_calibrated_and_shared(kind: Any) -> None:
    found = calibrate(kind, 2, TARGET, users=20)
    assert found.meets_target
    assert privacy_loss(found.distribution, 2).epsilon(1e-5) <= 1.0  # type: ignore[arg-type]
    assert privacy_loss(found.distribution.scaled(0.99), 2).epsilon(1e-5) > 1.0  # type: ignore[arg-type]
    assert found.share is not None
    assert float(found.share.variance) * 20 == pytest.approx(float(found.distribution.variance))
    with pytest.raises(TacitError, match="no pure guarantee"):
        calibrate(kind, 2, PureDP(1.0))
    with pytest.raises(TacitError, match="no closed form"):
        calibrate(kind, 2, TARGET, constants="paper")
    with pytest.raises(TacitError, match="more than one parameter"):
        calibrate(Mixture, 2, TARGET)


def test_learners_use_cumulants_of_a_new_distribution() -> None:
    assert cumulants(DISTRIBUTION) is cumulants(Together(Skellam(2), DiscreteLaplace(3)))
    value, slope, curvature = cumulants(DISTRIBUTION)(0.1)
    parts = [cumulants(part)(0.1) for part in (DISTRIBUTION.one, DISTRIBUTION.other)]
    assert value == pytest.approx(sum(part[0] for part in parts))
    assert slope == pytest.approx(sum(part[1] for part in parts), rel=1e-4)
    assert curvature == pytest.approx(sum(part[2] for part in parts), rel=1e-3)
    assert cumulants(DISTRIBUTION)(1.0) == (math.inf, math.inf, math.inf)


def test_a_new_distribution_hides_a_secure_sum() -> None:
    """Seeded; the unseeded draws raise a false alarm once in 10^8 runs."""
    distribution = calibrate(Together, 4, TARGET).distribution
    assert isinstance(distribution, Together)
    protocol = SecureSum(50, 4, distribution, TARGET, threat=ThreatModel(dropout=0.1))
    assert protocol.error(50).variance > float(distribution.variance) / 16
    estimate = protocol.analyze(protocol.combine([protocol.randomize(0.5) for _ in range(50)]))
    assert abs(estimate.mean - 0.5) < 50 * distribution.std / (50 * 4)
    rng, shares = np.random.default_rng(0), Levels(np.array([2]), np.array([50]))
    simulated = [protocol.simulate(shares, rng).mean for _ in range(200)]
    assert np.mean(simulated) == pytest.approx(
        0.5, abs=5 * float(np.std(simulated)) / math.sqrt(200)
    )
    assert not suspicions(
        DISTRIBUTION.share(4).draw(4 * 5000).reshape(-1, 4).sum(axis=1), DISTRIBUTION
    )


def test_a_distribution_that_is_not_divisible_offers_close_shares() -> None:
    from tacit.noise import DiscreteGaussian, sum_divergence

    distribution = DiscreteGaussian(20.0)
    share = distribution.approximate_share(16)
    assert share == DiscreteGaussian(5.0)
    assert share.sum_of_shares(16) == distribution
    assert share.closeness(16) == sum_divergence(5.0, 16)
    assert not distribution.divisible
    for exact in (Skellam(8), DiscreteLaplace(8)):
        assert exact.approximate_share(4) == exact.share(4)
        assert exact.share(4).sum_of_shares(4) == exact
        assert exact.closeness(4) == 0.0


@pytest.mark.parametrize("kind", ["discrete-laplace", "skellam", "discrete-gaussian", "binomial"])
@pytest.mark.parametrize("std", [4.0, 33.3, 1e5])
def test_a_distribution_is_found_by_its_standard_deviation(kind: str, std: float) -> None:
    distribution = NoiseDistribution.kinds[kind].of_std(std)
    assert distribution.std == pytest.approx(std, rel=1e-2)
    assert distribution.scaled(2.0).std == pytest.approx(2 * distribution.std, rel=1e-3)


def test_importing_distributions_loads_no_slow_packages() -> None:
    slow = ("scipy.signal", "scipy.stats", "scipy.optimize", "dp_accounting")
    code = f"import sys, tacit.noise, tacit.privacy; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_other_package_checks_a_distributions_class() -> None:
    root = Path(tacit.__file__).parent
    names = {
        distribution.__name__
        for name, distribution in STORABLE.items()
        if name.startswith("tacit.noise.")
    }
    asking = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.parent.name != "noise" and classes_asked_for(path) & (names | {"Gaussian"})
    }
    assert asking == set()


def classes_asked_for(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            found |= {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
        if isinstance(node, ast.MatchClass):
            found.add(ast.unparse(node.cls))
    return found
