"""What a device needs: `cryptography` and `httpx`, and nothing that is made for servers."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "fastapi", "starlette", "pydantic", "sqlalchemy", "alembic", "uvicorn")

WITHOUT = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Blocked())
"""

DEVICE = f"""
from tacit.client import AsyncDevice, Device, Ledger, Pins
with Device(Ledger(":memory:"), Pins("http://127.0.0.1:9", "01" * 32, "02" * 32)) as device:
    assert device.run_due() is None
assert not set({HEAVY}) & set(sys.modules)
print("light")
"""


@pytest.mark.parametrize("first", ["", "import tacit.client.openfeature"])
def test_a_device_needs_neither_numpy_nor_a_web_framework(first: str) -> None:
    program = WITHOUT + first + DEVICE
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.returncode) == ("light\n", 0), done.stderr
