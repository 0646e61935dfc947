"""Every test that the explanation of threat and trust models names exists."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from tacit.aggregation import OwnNoise, TwoServerSession
from tacit.aggregation.wire import Kind
from tacit.terms.words import assumed

HERE = Path(__file__).parent
OWN = OwnNoise(1, Fraction(1), lambda _: 0)


def test_every_test_that_an_explanation_names_exists() -> None:
    pages = (HERE.parents[1] / "docs/explanation").rglob("*.md")
    page = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"`(test_\w+)`", page))
    written = "".join(file.read_text(encoding="utf-8") for file in HERE.parent.rglob("test_*.py"))
    assert len(named) > 30
    assert not {name for name in named if f"def {name}(" not in written}


def test_every_kind_of_message_is_documented() -> None:
    page = (HERE.parents[1] / "docs/reference/wire-formats/messages.md").read_text(encoding="utf-8")
    for kind in Kind:
        assert f"| `{kind:02x}` | {kind.name} |" in page


def test_every_assumption_of_two_servers_is_documented() -> None:
    page = (HERE.parents[1] / "docs/explanation/trust/two-servers.md").read_text(encoding="utf-8")
    for one in assumed(TwoServerSession(3, 1, 1 << 20, noise=OWN).pinned.terms):
        assert f"| `{one.identifier}` | {one.text()} |" in page
