"""The operating system's randomness, replaced by a stream that a test knows.

A device that draws from anything else does not notice the replacement, which is how a test notices
the device.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.sampling import coins


@contextmanager
def stream(*name: Any) -> Iterator[None]:
    """Within, all randomness of the operating system is a function of the name alone; no generator
    can be made of it, or of a seed.
    """
    with (
        repeated(*name),
        patch.object(random.Random, "seed", _rejected),
        patch.object(np.random, "default_rng", _rejected),
        patch.object(np.random, "RandomState", _rejected),
    ):
        yield


@contextmanager
def repeated(*name: Any) -> Iterator[None]:
    """Within, the randomness of the operating system is a function of the name; a process that is
    forked meanwhile has the real one.
    """
    real, here, count = os.urandom, os.getpid(), itertools.count()

    def urandom(size: int) -> bytes:
        if os.getpid() != here:
            return real(size)
        return hashlib.shake_256(repr((name, next(count))).encode()).digest(size)

    coins._pool.clear()  # in place: a fork clears this very list
    try:
        with patch.object(os, "urandom", urandom), patch.object(random, "_urandom", urandom):
            yield
    finally:
        coins._pool.clear()


def _rejected(*_: Any, **__: Any) -> None:
    raise AssertionError("a device seeds no generator")


@contextmanager
def words(script: Sequence[int]) -> Iterator[None]:
    """Within, the coins' next words of 64 bits are these, and then the operating system's."""
    with patch.object(coins, "_pool", list(reversed(script))):
        yield
