"""200 private releases have the declared noise; a silo's halved, missing or reused noise is caught.

Silos without records release noise and nothing else. Each test has a false positive rate of 1e-6;
its power against every defect is computed from the same distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.silos.harness import LocalFederation
from tests.silos.test_federation import released
from tests.silos.test_recorded import federation_with_tables, request

from tacit.protocols.mechanism import Releases
from tacit.protocols.prefix_delivery import draw_vector
from tacit.protocols.prefix_encoder import Encoder
from tacit.protocols.prefix_sums import PrefixSums
from tacit.silos.agent import SiloAgent
from tacit.silos.evaluation import EvaluationRequest
from tacit.silos.federation import SyncSchedule
from tacit.types import Floats

RATE = 1e-6
SILOS, NUMBERS = 3, 27  # 6 features: 6 + 21 numbers
RELEASES = 200


def variance_p(scores: Floats) -> float:
    """Two-sided p-value of the scores' variance, if it is 1."""
    squares = float((scores**2).sum())
    return float(2 * min(stats.chi2.cdf(squares, scores.size), stats.chi2.sf(squares, scores.size)))


def variance_power(ratio: float, numbers: int) -> float:
    """Probability that `variance_p` falls below RATE if the variance is `ratio`."""
    low, high = (float(stats.chi2.ppf(at, numbers)) for at in (RATE / 2, 1 - RATE / 2))
    return float(stats.chi2.cdf(low / ratio, numbers) + stats.chi2.sf(high / ratio, numbers))


def common_p(scores: Floats) -> float:
    """p-value of what rows have in common: their sum has the variance of independent rows."""
    squares = float((scores.sum(axis=0) ** 2).sum()) / len(scores)
    return float(stats.chi2.sf(squares, scores.shape[1]))


def run_empty(rows: int, **about: Any) -> tuple[Floats, list[Floats], PrefixSums]:
    """Released rows of silos without records, and every silo's messages, in units."""
    schedule = SyncSchedule(horizon=rows, sync=1, kind="fixed")
    federation = LocalFederation.of(SILOS, schedule=schedule, **about)
    coordinator = federation.coordinator()
    coordinator.run()
    mechanism = coordinator.experiment.mechanism
    assert isinstance(mechanism, Releases)
    messages = [
        np.array([np.frombuffer(row.message or b"", np.int64) for row in agent._database.rows()])
        for agent in federation.agents.values()
    ]
    return released(coordinator), messages, mechanism.sums


@pytest.mark.extended
def test_two_hundred_releases_have_the_declared_distribution() -> None:
    """5,400 numbers: variance, shape and independence of rows; then every silo on its own."""
    rows, messages, sums = run_empty(RELEASES)
    scores = rows / np.sqrt(sums.row_variance)
    assert scores.shape == (RELEASES, NUMBERS)
    assert variance_p(scores) > RATE
    assert stats.kstest(scores.ravel(), "norm").pvalue > RATE
    assert common_p(scores) > RATE
    for words in messages:
        check_silo(words, sums)
    check_silo(np.concatenate(messages), sums)  # nor do two silos draw the same
    total = np.sum(messages, axis=0) / sums.scale
    np.testing.assert_array_equal(total, rows)  # nothing but the silos' messages is released


def check_silo(words: Floats, sums: PrefixSums) -> None:
    """A silo's share of the noise: its variance, its shape, no number drawn twice."""
    for one in range(len(words)):
        same = (words[one + 1 :] == words[one]).sum(axis=1)
        assert not (same == words.shape[1]).any(), "reused"
    own = words / sums.share.std
    assert common_p(own) > RATE, "reused"
    assert variance_p(own) > RATE, "variance"
    assert stats.kstest(own.ravel(), "norm").pvalue > RATE, "shape"


def halved(draw: Callable[..., Floats], _kept: list[Floats]) -> Floats:
    return np.rint(draw() / 2)


def no_noise(draw: Callable[..., Floats], _kept: list[Floats]) -> Floats:
    return np.zeros_like(draw())


def reused(draw: Callable[..., Floats], kept: list[Floats]) -> Floats:
    """The noise of the first row in every row."""
    kept.append(draw())
    return kept[0]


def reused_once(draw: Callable[..., Floats], kept: list[Floats]) -> Floats:
    """The noise of the first row in the last of twelve."""
    kept.append(draw())
    return kept[0] if len(kept) == 12 else kept[-1]


@contextmanager
def defect(change: Callable[[Callable[..., Floats], list[Floats]], Floats]) -> Iterator[None]:
    """The noise of silo 1 is changed; the others draw theirs as they should."""
    randomize, calls = Encoder.randomize, {"count": 0}
    kept: list[Floats] = []

    def changed(self: Encoder, vector: Floats) -> Any:
        silo = calls["count"] % SILOS  # silos commit in turn
        calls["count"] += 1
        if silo != 1:
            return randomize(self, vector)
        sums = self.protocol
        noise = change(lambda: draw_vector(sums.size, sums.share, None, sums.sigma), kept)
        row = np.rint(np.asarray(vector) * sums.scale)
        return (row + noise).astype(np.int64).view(np.uint64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoder, "randomize", changed)
        yield


@pytest.mark.parametrize(
    ("change", "caught", "ratio"),
    [
        (halved, "variance", 0.25),
        (no_noise, "reused|variance", None),
        (reused, "reused", None),
        (reused_once, "reused", None),
    ],
)
def test_a_defect_in_one_silos_noise_is_detected(
    change: Any, caught: str, ratio: float | None
) -> None:
    """Twelve rows suffice: a silo's 324 numbers."""
    with defect(change):
        _, messages, sums = run_empty(12)
    check_silo(messages[0], sums)
    check_silo(messages[2], sums)
    with pytest.raises(AssertionError, match=caught):
        check_silo(messages[1], sums)
    if ratio is not None:
        assert variance_power(ratio, messages[1].size) > 1 - 1e-9


def test_the_test_of_released_rows_has_the_stated_power() -> None:
    """What 200 releases show of one silo of three without a look into it: the variance is
    (2 + r) / 3 of the declared one, r = 1/4 if its noise is halved and 0 if it is missing. If the
    silo draws once for all rows, the sum of rows has (2 + 200) / 3 times the variance."""
    numbers = RELEASES * NUMBERS
    assert variance_power((2 + 0.25) / 3, numbers) > 1 - 1e-9
    assert variance_power(2 / 3, numbers) > 1 - 1e-9
    threshold = stats.chi2.isf(RATE, NUMBERS)
    assert stats.chi2.sf(threshold / ((2 + RELEASES) / 3), NUMBERS) > 1 - 1e-9
    assert variance_power(1.0, numbers) == pytest.approx(RATE)
    assert variance_power(0.75, 27) < 0.01  # a single release would not show it


def test_silos_draw_the_noise_of_every_evaluation(tmp_path: Path) -> None:
    """Evaluations of deployed silos: what a silo sends, less its own sums, is one fresh share
    of the noise. Only the clip differs, so noise drawn alike would be the same numbers.
    """
    federation = federation_with_tables(tmp_path, 50)
    coordinator, agents = federation.coordinator(), list(federation.agents.values())
    requests = [replace(request(), clip=Fraction(clip)) for clip in range(1, 26)]
    for agent in agents:
        assert agent._recorded is not None
        agent._recorded = replace(agent._recorded, epsilon=Fraction(99), delta=Fraction(1, 99))
    for asked in requests:
        coordinator.evaluate(asked)
    sums = requests[0].sums(federation.terms)
    shares = [[left(agent, at, sums) for at in range(len(requests))] for agent in agents]
    for words in shares:
        check_silo(np.array(words), sums)
    check_silo(np.concatenate(shares), sums)  # nor do two silos draw the same


def left(agent: SiloAgent, number: int, sums: PrefixSums) -> Floats:
    """The noise in the message of an evaluation, in units."""
    assert agent._recorded is not None
    question, message = agent._database.evaluations()[number]
    exact = EvaluationRequest.decode(question).vector(agent._recorded.table)
    words = np.frombuffer(message, np.int64).astype(np.float64)
    return words - np.rint(exact * sums.scale)
