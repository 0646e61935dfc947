"""The device's side of every aggregation runs without NumPy and SciPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "scipy"):
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Blocked())
"""
DEVICE = """
from tacit.aggregation import run_masking, run_shuffler, run_two_servers

assert run_masking([[1] * 20, [2] * 20, [3] * 20], 1009, 3).numbers == (6,) * 20
assert run_two_servers([1, 2, 3], 1009, 3).numbers == (6,)
assert sorted(run_shuffler([[b"a"], [b"b"]], 2).messages) == [b"a", b"b"]
"""
VERIFIED = """
from fractions import Fraction

from tacit.aggregation import OwnNoise, run_verified

assert run_verified([1, 2, 3], 3, OwnNoise(4, Fraction(4), lambda scale: 0)).numbers == (6,)
"""
AFTERWARDS = """
assert not {"numpy", "scipy"} & set(sys.modules)
print("light")
"""


def runs_light(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program + AFTERWARDS],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("light\n", 0), done.stderr


def test_masking_shuffling_and_secret_sharing_need_no_numpy() -> None:
    """Every role of every intermediary, the devices' among them."""
    runs_light(DEVICE)


def test_verified_sums_need_no_numpy() -> None:
    pytest.importorskip("Crypto", reason="needs pycryptodome: pip install '.[verified]'")
    runs_light(VERIFIED)
