"""Every device's noise is present, independent and from the operating system, which a distribution
of sums cannot show.

Whether the amount is right is for `test_every_protocol`. Here the operating system is replaced by a
stream that the test knows: a message must be a function of the part of the stream that was there
for it, and of nothing else.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import math
import pkgutil
import random
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.protocols.examples import CASES, sent
from tests.protocols.test_every_protocol import rounds_of_devices
from tests.source import stream, words

import tacit.protocols
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols.prefix_encoder import Encoder
from tacit.protocols.prefix_sums import PrefixSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import SecureSum
from tacit.sampling import draws

UNSEEDED = 1e-9  # false-alarm rate of a test of exact draws, which no seed repeats

PRIVATE = [
    name
    for name, case in CASES.items()
    if case.seen is not None and case.build().guarantee is not None
]
EACH = pytest.mark.parametrize("name", PRIVATE)
DRAWS = {
    *("draw", "flip", "uniform_below", "random_word", "random_bits", "flip_exp", "random_level"),
    *("urandom", "SystemRandom", "randbelow", "randbits", "Chance"),
}


def everyone(name: str, protocol: Any, source: str) -> list[str]:
    """The messages of each participant, and the release, each from its own random stream."""
    said = []
    messages = []
    for place, report in enumerate(CASES[name].reports):
        with stream(source, place):
            messages.append(protocol.report(report, place))
        said.append(repr(messages[-1]))
    with stream(source, "server"):
        said.append(repr(protocol.combine(messages)))
    return said


@EACH
def test_messages_use_operating_system_randomness_only(name: str) -> None:
    """Whatever state seeded generators are in; and another stream makes other messages."""
    said = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global state that a device must not use
        said.append(everyone(name, CASES[name].build(), "one"))
    assert said[0] == said[1]
    assert said[0] != everyone(name, CASES[name].build(), "other")


@EACH
def test_a_message_is_independent_of_draws_for_others(name: str) -> None:
    """One protocol serves many participants and arms: noise that it kept would be told twice."""
    expected = everyone(name, CASES[name].build(), "mine")
    for others in range(3):
        protocol = CASES[name].build()
        everyone(name, protocol, f"others {others}")
        assert everyone(name, protocol, "mine") == expected


@pytest.mark.parametrize("name", [name for name in PRIVATE if CASES[name].build().coordinates > 1])
def test_coordinates_and_arms_do_not_share_noise(name: str) -> None:
    """Correlation of every two coordinates' sums over 250 rounds of exact draws; false-alarm rate
    below 1e-9 (7 standard errors).
    """
    drawn, _ = rounds_of_devices(name)
    found = np.atleast_2d(np.corrcoef(drawn, rowvar=False))
    for one, other in itertools.combinations(range(drawn.shape[1]), 2):
        assert abs(found[one, other]) < 7 / math.sqrt(len(drawn))


def functions_that_draw() -> dict[tuple[str, int], str]:
    """Everything in `tacit.protocols` that calls a source of randomness for devices, by file and
    first line.
    """
    found = {}
    for path in Path(tacit.protocols.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
                if DRAWS & {getattr(call, "attr", getattr(call, "id", "")) for call in calls}:
                    line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                    found[path.name, line] = f"{path.name}: {node.name}"
    return found


# by a method that devices have, too; and what silos send, which is tested with encoders
SIMULATES = {"prefix_sums.py: several", "prefix_messages.py: message"}


def test_every_drawing_function_is_run_by_an_example_device() -> None:
    run: set[tuple[str, int]] = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            run.add((Path(frame.f_code.co_filename).name, frame.f_code.co_firstlineno))

    sys.setprofile(enter)
    try:
        for name, case in CASES.items():
            if name in PRIVATE:
                protocol = case.build()
                protocol.combine(sent(protocol, case.reports))
    finally:
        sys.setprofile(None)
    missed = {name for place, name in functions_that_draw().items() if place not in run}
    assert missed <= SIMULATES


def test_every_class_with_a_device_path_is_listed() -> None:
    known = {type(CASES[name].build()) for name in CASES} | {Encoder, PrefixSums}
    for module in pkgutil.iter_modules(tacit.protocols.__path__):
        loaded = importlib.import_module(f"tacit.protocols.{module.name}")
        for _, kind in inspect.getmembers(loaded, inspect.isclass):
            paths = [kind.__dict__.get(name) for name in ("randomize", "report", "draw")]
            if kind.__module__ == loaded.__name__ and any(inspect.isfunction(p) for p in paths):
                assert (
                    inspect.isabstract(kind)
                    or kind in known
                    or any(issubclass(one, kind) for one in known)
                ), f"{kind.__name__} has no example"


# Pure shuffle: a flip of probability 1e-9 and less decides whether ε is finite.


@pytest.mark.parametrize("users", [2, 21, 1025])
def test_a_message_is_randomized_with_exactly_the_certified_probability(users: int) -> None:
    """At the last coin that spoils it the message is any number of ones, whatever the reward; at
    the next it is the reward and a share.
    """
    protocol = PureShuffle(users, 1.0)
    parameters = protocol._group_and_row(0)[1].certificate.parameters
    width, edge = parameters.bits.bit_length(), parameters.mixture * 2**64
    assert edge.denominator == 1  # so that one word of 64 bits tells

    def ones(x: float, coin: int, then: list[int]) -> int:
        with stream("rest"), words([coin, *then]):
            return sum(protocol.report(x, 0).bits)

    first, last = int(edge), int(edge) - 1
    for drawn in range(parameters.bits + 1):
        number = [drawn << 64 - width]
        assert ones(0.0, last, number) == ones(1.0, last, number) == drawn
    assert ones(1.0, first, []) - ones(0.0, first, []) == 1


@pytest.mark.parametrize("end", [-1, 1])
def test_a_share_is_redrawn_only_beyond_its_bounds(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = PureShuffle(21, 1.0)._group_and_row(0)[1].certificate.parameters
    shares = iter([end * (parameters.tau + 1), -end * (parameters.tau + 5), end * parameters.tau])
    monkeypatch.setattr(draws, "draw_laplace_share", lambda *_: next(shares))
    with words([(1 << 64) - 1]):  # the coin of the mixture
        assert draws.draw_certified_ones(parameters)(0) == (1 + end) * parameters.tau


# Split and mix: the sum does not show that the shares say nothing.


def test_shares_on_the_device_are_uniform() -> None:
    """All but one share of 2,000 messages, each share and their sum by chi-square; false-alarm
    rate 1e-9 each.
    """
    protocol = SplitAndMix(SecureSum(20, 1, DiscreteLaplace(1), PureDP(1.0)))
    rows = np.array([protocol.randomize(1.0) for _ in range(2000)])
    assert rows.shape == (2000, protocol.shares)
    for missing in range(protocol.shares):
        kept = np.delete(rows, missing, axis=1)
        for numbers in (kept[:, 0], kept.sum(axis=1) % protocol.modulus):
            counts = np.bincount(numbers, minlength=protocol.modulus)
            assert len(counts) == protocol.modulus
            assert stats.chisquare(counts).pvalue > UNSEEDED
    found = np.corrcoef(rows[:, :-1], rowvar=False) - np.eye(protocol.shares - 1)
    assert np.abs(found).max() < 7 / math.sqrt(2000)
