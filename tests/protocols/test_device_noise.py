"""Exactly drawn noise of devices in vectors and prefix sums: every path passes a battery that
detects missing, halved, reused or seeded noise.

Paths are discovered: every trust model and noise of prefix sums in every factorization, every
vector protocol with a guarantee. One without an entry here fails a test.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.protocols.test_every_protocol import concrete
from tests.samples import follows
from tests.tables import extended_but_every

from tacit.errors import TacitError
from tacit.noise import Binomial, NoiseDistribution
from tacit.privacy import ApproximateDP
from tacit.protocols import vectors
from tacit.protocols.factorization import KINDS, factorize
from tacit.protocols.integer_vectors import LevelProtocol, SecureVector, ShuffledVector
from tacit.protocols.l2_sums import BallSum, CentralBall, LocalBall, SecureBall, ShuffledBall
from tacit.protocols.prefix_delivery import DELIVERIES, INTEGER_NOISE
from tacit.protocols.prefix_encoder import Encoder
from tacit.protocols.prefix_sums import PrefixSums
from tacit.testing.statistics import check_source
from tacit.types import Integers

UNSEEDED = 1e-9  # false-alarm rate of a check of exact draws, which no seed repeats
PEOPLE, STEPS, NUMBERS = 8, 3, 9
TARGET = ApproximateDP(0.5, 1e-3)


@dataclass(frozen=True)
class Path:
    """A device path: the noise of one sender in every step and number, its distribution less a
    centre."""

    noise: Callable[[], Integers]  # steps × numbers
    distribution: NoiseDistribution
    centre: int = 0

    def sample(self) -> Integers:
        """Participants × steps × numbers."""
        return np.array([self.noise() for _ in range(PEOPLE)])


def of_encoder(sums: PrefixSums) -> Integers:
    """What a silo with nothing but zeros sends, or the server publishes of such silos, step by
    step; sums of nodes taken apart.
    """
    encoder: Encoder = sums.encoder()
    rows = []
    for step in range(sums.shape.steps):
        form, message = sums.form(step), encoder.randomize(np.zeros(sums.size))
        if sums.trust == "central":  # which adds the noise to the sum of all silos
            message = sums.open(step, {}, {}, None).combine([message] * sums.silos).values
        rows.append(form.read(form.total([message]), 1))
    sent = np.array(rows)
    nodes = np.linalg.solve(sums.shape.left, sent) if sums.shape.kind == "prefix" else sent
    return np.rint(nodes).astype(np.int64)


def prefix_paths() -> Iterator[tuple[str, Path]]:
    for (trust, way), kind in itertools.product(DELIVERIES.items(), KINDS):
        for noise in way.noises:
            try:
                equal = (1.0,) * STEPS if kind == "optimal" else ()
                shape = factorize(kind, STEPS, equal)
                sums = PrefixSums(shape, 20, NUMBERS, 1.5, trust, noise, 3.0, 64)
            except TacitError:
                continue
            if sums.integral:
                path = Path(partial(of_encoder, sums), sums.share, round(sums.share.mean))
                yield f"{kind}, {trust}, {noise}", path


def vector_paths() -> Iterator[tuple[str, type[Any], Path]]:
    """Every participant holds the upper end of the range, which rounding leaves unchanged."""
    top = np.ones(NUMBERS)

    def rows(one: Callable[[], Any]) -> Callable[[], Integers]:
        return lambda: np.array([one() for _ in range(STEPS)])

    central = vectors.CentralVectors(4, NUMBERS, 1.0, TARGET)
    released = rows(
        lambda: np.rint(np.array(central.combine([top] * 4).values) / central.unit) - 2048
    )
    yield "central", vectors.CentralVectors, Path(released, central.distribution)  # type: ignore[arg-type]
    local = vectors.LocalVectors(4, NUMBERS, 1.0, TARGET)
    assert local.device is not None
    sent = rows(lambda: np.rint(local.randomize(top) / local.unit) - 512)
    yield "local", vectors.LocalVectors, Path(sent, local.device)
    bits = ShuffledVector(4, NUMBERS, 1.0, TARGET, precision=4)
    distribution = Binomial(bits.noise_bits, bits.bias)
    ones = rows(lambda: np.array([sum(row) for row in bits.randomize(top)]) - 4)
    yield "shuffled bits", ShuffledVector, Path(ones, distribution)
    for kind in ("skellam", "discrete-gaussian"):
        secure = SecureVector(4, NUMBERS, 1.0, TARGET, precision=4, noise_kind=kind)
        shares = rows(partial(shares_of, secure, top))
        yield f"secagg, {kind}", SecureVector, Path(shares, secure.share)


def ball_paths() -> Iterator[tuple[str, type[Any], Path]]:
    """Every participant holds zero, so the view is noise only."""
    centre = np.zeros(NUMBERS)

    def rows(protocol: Any, numbers: Callable[[], Any]) -> Callable[[], Integers]:
        half = protocol.modulus // 2

        def signed() -> Integers:
            values = (np.array(numbers()) + half) % protocol.modulus - half
            return np.asarray(values, dtype=np.int64)

        return lambda: np.array([signed() for _ in range(STEPS)])

    central = CentralBall(4, NUMBERS, 1.0, TARGET)
    said = rows(central, lambda: central.combine([central.randomize(centre)] * 4).values)
    yield "central", CentralBall, Path(said, central.distribution)
    own: list[tuple[str, Any]] = [("local", LocalBall(4, NUMBERS, 1.0, TARGET))]
    own += [
        (f"secagg, {kind}", SecureBall(4, NUMBERS, 1.0, TARGET, noise_kind=kind))
        for kind in ("skellam", "discrete-gaussian")
    ]
    for name, protocol in own:
        sent = rows(protocol, partial(protocol.randomize, centre))
        yield name, type(protocol), Path(sent, protocol.distribution)
    split = ShuffledBall(20, NUMBERS, 1.0, TARGET)
    parts = rows(split, lambda: [sum(row) for row in split.randomize(centre)])
    yield "shuffle", ShuffledBall, Path(parts, split.distribution)


def shares_of(protocol: SecureVector, top: Any) -> Integers:
    sent = (np.array(protocol.randomize(top)) - protocol.precision) % protocol.modulus
    return np.where(sent > protocol.modulus // 2, sent - protocol.modulus, sent)


PATHS = {
    **dict(prefix_paths()),
    **{f"vector, {name}": path for name, _, path in vector_paths()},
    **{f"vector in a ball, {name}": path for name, _, path in ball_paths()},
}
EACH = pytest.mark.parametrize("name", PATHS)


def test_every_vector_protocol_with_a_guarantee_has_a_tested_device_path() -> None:
    promising = concrete(vectors.VectorProtocol) - {vectors.Plain}
    assert {kind for _, kind, _ in vector_paths()} == promising
    assert concrete(LevelProtocol) <= promising
    assert {kind for _, kind, _ in ball_paths()} == concrete(BallSum)


def test_every_integer_prefix_sum_protocol_has_a_tested_device_path() -> None:
    ways = {tuple(name.split(", ")[1:]) for name in PATHS if not name.startswith("vector")}
    fitting = {(t, n) for t, way in DELIVERIES.items() for n in way.noises}
    assert ways == {(t, n) for t, n in fitting if n in INTEGER_NOISE}


def problems(path: Path) -> set[str]:
    """What is wrong with the noise of a path; nothing, but for a chance of 1e-9.

    Noise that is used twice is equal in more than half of the places where it should be
    independent; by chance that happens with probability below 1e-12, since no distribution here
    gives a value more than a tenth.
    """
    drawn = path.sample()
    found = set()
    if not follows(np.ravel(drawn) + path.centre, path.distribution) > UNSEEDED:
        found.add("another distribution")
    for axis, between in enumerate(("people", "steps", "numbers")):
        others = np.roll(drawn, 1, axis=axis)
        if (drawn == others).mean() > 0.5:
            found.add(f"used twice between {between}")
    try:
        check_source(lambda: path.noise().tolist(), "noise")
    except AssertionError:
        found.add("seeded")
    return found


@EACH
def test_the_noise_of_every_device_path_is_correct(name: str) -> None:
    assert PATHS[name].distribution.pmf(np.arange(-20000, 20000)).max() < 0.1
    assert not problems(PATHS[name])


DRAW = NoiseDistribution.draw


def no_noise(distribution: NoiseDistribution, size: Any = None) -> Any:
    return np.full(size, round(distribution.mean))


def halved(distribution: NoiseDistribution, size: Any = None) -> Any:
    middle = round(distribution.mean)
    return middle + np.fix((np.asarray(DRAW(distribution, size)) - middle) / 2).astype(np.int64)


def one_for_all(distribution: NoiseDistribution, size: Any = None) -> Any:
    return np.full(size, DRAW(distribution))


def seeded(distribution: NoiseDistribution, size: Any = None) -> Any:
    return np.asarray(distribution.sample(np.random.default_rng(random.getrandbits(60)), size))


class Reused:
    """The first draw again and again."""

    def __init__(self) -> None:
        self.first: Any = None

    def __call__(self, distribution: NoiseDistribution, size: Any = None) -> Any:
        self.first = DRAW(distribution, size) if self.first is None else self.first
        return self.first


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "missing": (lambda: no_noise, "another distribution"),
    "halved": (lambda: halved, "another distribution"),
    "one for all": (lambda: one_for_all, "used twice between numbers"),
    "seeded": (lambda: seeded, "seeded"),
    "reused": (Reused, "used twice between people"),
}


@pytest.mark.parametrize(
    ("name", "fault"), extended_but_every(2 * len(FAULTS) + 1, itertools.product(PATHS, FAULTS))
)
def test_defective_noise_is_detected_on_every_device_path(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, seen = FAULTS[fault]
    mutant = broken()
    monkeypatch.setattr(
        NoiseDistribution, "draw", lambda distribution, size=None: mutant(distribution, size)
    )
    assert seen in problems(PATHS[name])
