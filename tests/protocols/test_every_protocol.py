"""The contract of every protocol: one stated distribution on every path, rejections, and the
guarantee.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.protocols.examples import CASES, EXAMPLES, sent
from tests.samples import follows, same_distribution
from tests.tables import extended_but_every

import tacit.protocols
from tacit.assumptions import TRUST_OF_VIEW, DishonestAtMost, HonestServers, PinnedKeys
from tacit.errors import TacitError
from tacit.noise import NoiseDistribution
from tacit.privacy import View
from tacit.protocols.contract import Protocol
from tacit.types import Aggregate, Estimate, Floats, Integers

FAST, DEVICES = 1000, 400  # rounds of each path; half the noise shows at less than 1e-9
UNSEEDED = 1e-9  # false-alarm rate of a test of exact draws, which no seed repeats

EACH = pytest.mark.parametrize("name", CASES)
VIEWS = {  # by a word of the name, the first that is in it
    "shuffle": View.SHUFFLED,
    "shuffled": View.SHUFFLED,
    "split": View.SHUFFLED,
    "central": View.SERVER_OUTPUT,
    "local": View.MESSAGE,
    "response": View.MESSAGE,
    "two": View.OTHER_SERVER,
    "verified": View.OTHER_SERVER,
    "joint": View.OTHER_SERVER,
    "secagg": View.RELEASED_SUM,
    "separate": View.RELEASED_SUM,
    "prefix": View.RELEASED_SUM,
}


def concrete(cls: type[Any]) -> set[type[Any]]:
    """All classes of tacit's own below one that can be built."""
    own: set[type[Any]] = set() if inspect.isabstract(cls) else {cls}
    below = (sub for sub in cls.__subclasses__() if sub.__module__.startswith("tacit."))
    return own.union(*(concrete(sub) for sub in below))


def test_every_protocol_is_tested() -> None:
    for module in pkgutil.iter_modules(tacit.protocols.__path__):
        importlib.import_module(f"tacit.protocols.{module.name}")
    assert concrete(Protocol) == {type(case.build()) for case in CASES.values()}


def run_devices(protocol: Protocol, reports: list[Any]) -> tuple[list[Any], Aggregate, Estimate]:
    messages = sent(protocol, reports)
    released = protocol.combine(messages)
    return messages, released, protocol.analyze(released)


@cache
def rounds_of_devices(name: str) -> tuple[Floats, Integers]:
    """The estimated sums of so many rounds of exact draws, and what was seen of each."""
    case = CASES[name]
    sums, seen = [], []
    unused = case.build()
    for _ in range(DEVICES):
        protocol = copy.deepcopy(unused)
        messages, released, estimate = run_devices(protocol, case.reports)
        sums.append(np.ravel(estimate.total))
        seen.append(0 if case.seen is None else case.seen(protocol, released, messages))
    return np.array(sums), np.array(seen)


@cache
def simulated_rounds(name: str) -> Floats:
    case, rng = CASES[name], np.random.default_rng(5)
    protocol = case.build()
    made = (protocol.simulate(case.load, rng) for _ in range(FAST))
    return np.array([np.ravel(estimate.total) for estimate in made])


@EACH
def test_devices_match_the_simulation(name: str) -> None:
    """Exact draws cannot be seeded: 400 rounds, false-alarm rate 1e-9 per coordinate."""
    drawn, _ = rounds_of_devices(name)
    fast = simulated_rounds(name)
    assert drawn.shape[1] == fast.shape[1] == CASES[name].build().coordinates
    for coordinate in range(drawn.shape[1]):
        assert same_distribution(fast[:, coordinate], drawn[:, coordinate]) > UNSEEDED


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.seen is not None])
def test_devices_match_the_released_distribution(name: str) -> None:
    """What is seen of 400 rounds of exact draws against `released_distribution`; false-alarm rate
    1e-9."""
    distribution = released_distribution(name, CASES[name].build())
    _, seen = rounds_of_devices(name)
    assert follows(seen, distribution) > UNSEEDED


@pytest.mark.parametrize(
    "name", [name for name, e in EXAMPLES.items() if e.noisy and CASES[name].seen is not None]
)
def test_the_comparison_with_the_release_detects_half_the_noise(name: str) -> None:
    distribution = released_distribution(name, EXAMPLES[name].build(0.5))
    _, seen = rounds_of_devices(name)
    assert follows(seen, distribution) < UNSEEDED


@pytest.mark.parametrize(
    "name",
    extended_but_every(
        3, zip(n for n, case in CASES.items() if case.seen is not None and n != "exact")
    ),
)
def test_the_comparison_detects_devices_with_half_the_noise(
    name: str,
) -> None:
    distribution = released_distribution(name, CASES[name].build())
    _, seen = rounds_of_devices(name)
    centre = round(float(np.median(seen)))
    assert follows(centre + np.fix((seen - centre) / 2), distribution) < UNSEEDED


def released_distribution(name: str, protocol: Protocol) -> NoiseDistribution:
    case = CASES[name]
    return protocol.released_distribution(case.total, case.inside or protocol.participants)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.seen is None])
def test_a_protocol_without_an_exact_distribution_says_so(name: str) -> None:
    protocol = CASES[name].build()
    with pytest.raises(TacitError, match=r"no exact distribution|has no distribution"):
        protocol.view_distribution(0, protocol.participants)


@EACH
def test_wrong_numbers_of_reports_are_rejected_and_nothing_is_released(name: str) -> None:
    case = CASES[name]
    protocol = case.build()
    messages, released, _ = run_devices(case.build(), case.reports)
    assert 1 <= protocol.minimum <= protocol.participants == len(messages)
    for reports in (protocol.minimum - 1, protocol.participants + 1):
        with pytest.raises(TacitError, match=r"the round is aborted|over the \d+ that"):
            protocol.check_reports(reports)
        with pytest.raises(TacitError, match=r"the round is aborted|over the \d+ that"):
            protocol.combine((messages + messages[-1:])[:reports])
        with pytest.raises(TacitError, match=r"the round is aborted|over the \d+ that"):
            protocol.analyze(replace(released, reports=reports))
    for reports in (protocol.minimum, protocol.participants):
        protocol.check_reports(reports)


@EACH
def test_a_guarantee_states_its_view_and_the_noise_that_it_assumes(name: str) -> None:
    protocol = CASES[name].build()
    if name in ("exact", "vector-plain", "statistic-exact"):
        assert protocol.guarantee is None
        return
    assert protocol.guarantee is not None
    view = next(view for word, view in VIEWS.items() if word in name.split("-"))
    assert protocol.guarantee.view is view
    shared = view in (View.RELEASED_SUM, View.SHUFFLED)
    needed = {one.identifier for one in protocol.guarantee.assumptions}
    assert (DishonestAtMost.identifier in needed) == shared
    assert (PinnedKeys.identifier in needed) == (view is View.OTHER_SERVER)
    assert (TRUST_OF_VIEW[view] == HonestServers(1, of=2)) == (view is View.OTHER_SERVER)


@EACH
def test_estimates_name_guarantee_coordinates_and_participants(name: str) -> None:
    case = CASES[name]
    protocol = case.build()
    _, released, estimate = run_devices(protocol, case.reports)
    simulated = protocol.simulate(case.load, np.random.default_rng(0))
    digest = "" if protocol.guarantee is None else protocol.guarantee.digest
    assert protocol.guarantee_id == digest
    assert len(released.values) == protocol.coordinates
    assert released.reports == protocol.participants
    assert protocol.bits_per_participant > 0
    for one in (estimate, simulated):
        assert one.guarantee_id == digest
        assert np.size(one.total) == np.size(one.mean) == protocol.coordinates
        assert int(np.sum(one.error.participants)) == protocol.participants


@EACH
def test_a_wrapped_value_is_marked_on_the_estimate(name: str) -> None:
    case = CASES[name]
    protocol = case.build()
    _, released, estimate = run_devices(protocol, case.reports)
    assert not estimate.wrapped
    if name == "separate-sums":
        first, *others = released.values
        marked = replace(released, values=(replace(first, wrapped=True), *others))
    else:
        marked = replace(released, wrapped=True)
    assert protocol.analyze(marked).wrapped
