"""Every suite of the terms, from a definition to a released round, with shipped devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from tests.service.pairs import experiment_of
from tests.service.served import served, wait_for

from tacit.aggregation.two_servers import TwoServerRound
from tacit.client import Device, Ledger, Pins
from tacit.errors import Rejected, TacitError
from tacit.service.definition import Definition
from tacit.service.schema import LIVE
from tacit.service.timing import Timing
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import HPKE_SUITES, Aggregation, Answer, check_successor, in_words

POST_QUANTUM = HPKE_SUITES[2]


def no_noise(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda _scale: 0


@pytest.mark.extended
@pytest.mark.parametrize("suite", HPKE_SUITES)
def test_a_round_is_released_under_the_suite_of_its_terms(tmp_path: Path, suite: str) -> None:
    quiet = {"noise": no_noise}
    with served(tmp_path, sources=(quiet, quiet)) as both:
        digest = both.begin(
            experiment_of(horizon=400),
            Timing(joining=2, margin=2, grace=60),
            suite=suite,
            answer=Answer("1 or 0", window=0),
            aggregation=Aggregation(1),
        )
        wait_for(lambda: any(one["stage"] == "open" for one in both.status(digest)["rounds"]))
        keys = [key.hex() for key in both.keys]
        pins = Pins(both.urls[0], coordinator=keys[0], helper=keys[1])
        for _ in range(3):
            with Device(Ledger(":memory:"), pins) as device:
                slot = device.join(digest)
                assert slot.asked
                device.record(digest, 1)
                device.wait_and_report()
                (receipt,) = device.status()
                assert all(half.sent for half in receipt.shares)
        announced = [row.announcement for row in both.helper.rounds(*LIVE)]
        for one in announced:
            assert TwoServerRound.decode(one[: -2 * SIGNATURE_SIZE]).suite.identifier == suite

        def counted() -> list[int]:
            rounds = both.status(digest)["rounds"]
            return [one["reports"] for one in rounds if one["stage"] == "opened"]

        wait_for(lambda: sum(counted()) == 3)


def test_a_definition_can_require_post_quantum_encryption() -> None:
    about = {
        "question": "Which?",
        "options": ("a", "b"),
        "meaning": "1 or 0",
        "window": 60,
        "epsilon": 1,
        "first_day": "2026-11-16",
        "last_day": "2026-12-31",
    }
    helper = {"helper_address": "https://helper.example", "helper_key": bytes(range(32))}
    usual = Definition.of(**about, **helper).terms("https://c.example", bytes(32))
    later = Definition.of(**about, **helper, post_quantum=True).terms(
        "https://c.example", bytes(32)
    )
    assert (usual.suite, later.suite) == (HPKE_SUITES[0], POST_QUANTUM)
    assert "with a large quantum computer, once" in " ".join(in_words(usual))
    assert "cannot read it with a quantum computer later" in " ".join(in_words(later))
    with pytest.raises(TacitError, match="secure-aggregation"):
        Definition.of(**about, trust="secure-aggregation", post_quantum=True)


def test_no_successor_drops_post_quantum_encryption(tmp_path: Path) -> None:
    with served(tmp_path) as both:
        old = both.terms(("a", "b"), suite=POST_QUANTUM)
        with pytest.raises(Rejected, match="suite of successor terms"):
            check_successor(old, replace(old, suite=HPKE_SUITES[0], predecessor=old.digest))
        weak = both.terms(("a", "b"))
        check_successor(weak, replace(weak, suite=POST_QUANTUM, predecessor=weak.digest))
