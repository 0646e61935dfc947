"""A malicious client in a masked round costs at most its own number and is named."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from tests.aggregation.malicious_clients import (
    Garbage,
    MaliciousClient,
    UnknownKey,
    WrongShare,
    corrupt,
)

from tacit.aggregation import MaskingClient, Neighbourhood, SumView
from tacit.aggregation.blame import Misbehaviour
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP, ThreatModel
from tacit.protocols.sums import SecureSum
from tacit.rounds import aggregation_view, released

PEOPLE, AMONG = 200, Neighbourhood(12, 8)


@pytest.mark.parametrize(
    ("attacker", "lie", "counted"),
    [
        (WrongShare(), Misbehaviour.WRONG_SHARE, PEOPLE),
        (Garbage(), Misbehaviour.DISPUTED, PEOPLE - 1),
        (UnknownKey(), Misbehaviour.UNKNOWN_KEY, PEOPLE - 1),
    ],
)
def test_one_malicious_client_of_two_hundred_is_excluded_and_named(
    attacker: MaliciousClient, lie: Misbehaviour, counted: int
) -> None:
    protocol = SecureSum(
        PEOPLE, 1, DiscreteLaplace(1), PureDP(1.0), threat=ThreatModel(dropout=0.05)
    )
    devices: list[MaskingClient] = []

    def made(*about: Any) -> MaskingClient:
        devices.append(MaskingClient(*about))
        if len(devices) == 1:
            corrupt(devices[0], attacker)
        return devices[-1]

    with patch("tacit.aggregation.in_process.MaskingClient", made):
        view = aggregation_view(protocol, [7] * PEOPLE, "masking", among=AMONG)
    assert isinstance(view, SumView)
    assert view.reports == counted
    assert released(protocol, view, "masking").value == 7 * counted % protocol.modulus
    false = (devices[0].address,)
    assert [blame.addresses for blame in view.blamed if blame.kind is lie] == [false]
    assert all(false[0] in blame.addresses for blame in view.blamed)
