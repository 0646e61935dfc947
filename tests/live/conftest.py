"""What the tests of devices share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.live.client import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()
