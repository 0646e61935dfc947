"""A JavaScript device, written from the documented wire formats, reports to Python servers."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tacit.aggregation import OwnNoise, SumView, TwoServerSession
from tacit.aggregation.announcements import endorse

NODE = shutil.which("node")
DEVICE = Path(__file__).parent / "second_device.mjs"


def device(session: TwoServerSession, number: int, **changes: Any) -> dict[str, Any]:
    """What the device answers to an announcement."""
    assert NODE is not None
    given = {
        "terms": session.pinned.terms.encode().decode(),
        "terms_signatures": [signature.hex() for signature in session.pinned.signatures],
        "announcement": session.announcement.hex(),
        "place": session.server(0).slot(number).encode().hex(),
        "values": [3, 1],
        **changes,
    }
    done = subprocess.run(
        [NODE, str(DEVICE)], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_a_javascript_device_reports_to_python_servers() -> None:
    noise = OwnNoise(4, Fraction(9, 2), lambda _: 0)
    session = TwoServerSession(3, 2, 1_000_003, 2, noise)
    for number in (0, 2):
        for role, half in enumerate(device(session, number)["halves"]):
            session.server(role).take(bytes.fromhex(half), session.now)
    assert session.finish() == SumView((6, 2), 2)


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_a_javascript_device_rejects_weaker_or_unsigned_rounds() -> None:
    noise = OwnNoise(4, Fraction(9, 2), lambda _: 0)
    session = TwoServerSession(3, 2, 1_000_003, 2, noise)
    forged = bytearray(session.announcement)
    forged[-1] ^= 1
    assert device(session, 0, announcement=forged.hex()) == {"refused": ["round"]}
    terms = session.pinned.terms.encode().decode()
    spaced = terms.replace(",", ", ")
    assert "canonical" in device(session, 0, terms=spaced)["refused"]
    weaker = session.announcement[:-128].replace(bytes((1, 9, 1, 2)), bytes((1, 8, 1, 2)))
    signed = weaker + b"".join(endorse(weaker, key) for key in session.rehearsal.keys)
    assert device(session, 0, announcement=signed.hex()) == {"refused": ["noise"]}
