"""Sums modulo m with integer noise: who adds the noise is what tells the trust models apart.

`Central` trusts the server to add it, `Local` lets every user add all of it, `SecureSum` lets every
user add a share of it and an intermediary open only the sum (CZ23 Algorithm 1; Theorems 1, 2, 4, 5,
6). The modulus leaves room for the noise; how often it does not is computed, or for wide sums of
many Pólya shares bounded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.checks import Number, TacitError, integer
from tacit.noise import NoiseLaw
from tacit.noise.chernoff import tail_bound
from tacit.privacy import Guarantee, guaranteed_reports, reporting_condition
from tacit.protocols.contract import ErrorLaw, Integers, Opened, SumProtocol

MISREAD = 1e-9  # default probability that a batch wraps around its modulus


class SecureSum(SumProtocol):
    """Each user adds a share of the noise; secure aggregation opens the sum modulo m, and nothing
    else.

    `law` is the noise that `guarantee` needs; shares are made for the guaranteed number of honest
    reports. `share` overrides the share's law where it does not divide (discrete Gaussian). Dropout
    is tolerated down to `minimum`.

    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> protocol = SecureSum(100, 10, DiscreteLaplace(10), PureDP(1.0), dropout=0.1)
    >>> protocol.minimum, protocol.modulus, protocol.bits_per_user
    (90, 1421, 11)
    """

    def __init__(
        self,
        users: int,
        precision: int,
        law: NoiseLaw,
        guarantee: Guarantee,
        *,
        dropout: Number = 0,
        corrupt: Number = 0,
        share: NoiseLaw | None = None,
        modulus: int | None = None,
        misread: float = MISREAD,
    ) -> None:
        self.users = integer("users", users, at_least=1)
        self.precision = integer("precision", precision, at_least=1)
        self.guarantee = guarantee
        honest = guaranteed_reports(self.users, dropout, corrupt)
        self.minimum = guaranteed_reports(self.users, dropout)
        if self.minimum < self.users or honest < self.minimum:
            self.guarantee = replace(guarantee, condition=reporting_condition(dropout, corrupt))
        self.law = law
        self.share = share if share is not None else law.share(honest)
        self._laws = {honest: law}
        largest = self.users * self.precision
        self.modulus = (
            largest + 2 * self._noise(self.users).room(misread) + 1
            if modulus is None
            else integer("modulus", modulus, at_least=2)
        )
        self._misread = self._wrap_chance()
        self.bits_per_user = (self.modulus - 1).bit_length()

    def _wrap_chance(self) -> float:
        """The probability that a full batch is misread, in the worst case."""
        return self._noise(self.users).wrap_chance(self.users * self.precision, self.modulus)

    def _noise(self, reports: int) -> NoiseLaw:
        """The law of the noise that this many honest shares add up to."""
        if reports not in self._laws:
            self._laws[reports] = self.share.power(reports)
        return self._laws[reports]

    def error(self, reports: int) -> ErrorLaw:
        """Noise of all shares that arrived."""
        return ErrorLaw(reports, self.precision, self._noise(reports), self._misread)

    def randomize(self, x: float) -> int:
        """(level + share) mod m.

        The noise is drawn before the reward is touched, so timing says nothing of it.
        """
        noise = self.share.draw()
        return (self.encode(x) + noise) % self.modulus

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:
        """(levels + shares) mod m."""
        noisy: Integers = levels + self.share.sample(rng, len(levels))
        truth = int(noisy.sum())
        self._count(Opened(truth % self.modulus, len(levels)), truth)
        return noisy % self.modulus

    def combine(self, messages: Any) -> Opened:
        """The sum modulo m."""
        self.check_reports(len(messages))
        array = np.asarray(
            messages, dtype=object if self.modulus * len(messages) > 1 << 62 else np.int64
        )
        return Opened(int(array.sum()) % self.modulus, len(messages))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Opened:
        truth = total + int(self._noise(reports).sample(rng))
        opened = Opened(truth % self.modulus, reports)
        self._count(opened, truth)
        return opened

    def _count(self, opened: Opened, truth: int) -> None:
        self.wrapped += self._sum(opened) != truth

    def _sum(self, opened: Opened) -> float:
        """Values in the upper half of the spare residues are underflows (CZ23 Algorithm 1, lines 28
        to 30).
        """
        top = self.users * self.precision
        spare = (self.modulus - top - 1) // 2
        return (
            opened.value - self.modulus
            if opened.value > top + self.modulus - top - 1 - spare
            else opened.value
        )


class Central(SecureSum):
    """The server is trusted: it sums levels and adds the noise itself.

    Its outputs are private, what it sees is not.
    """

    def __init__(
        self,
        users: int,
        precision: int,
        law: NoiseLaw,
        guarantee: Guarantee,
        *,
        modulus: int | None = None,
        misread: float = MISREAD,
    ) -> None:
        super().__init__(
            users, precision, law, guarantee, share=law, modulus=modulus, misread=misread
        )
        self.minimum = 1
        self.bits_per_user = self.precision.bit_length()

    def _noise(self, reports: int) -> NoiseLaw:  # noqa: ARG002
        return self.law

    def randomize(self, x: float) -> int:
        """The level itself."""
        return self.encode(x)

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:  # noqa: ARG002
        """The levels themselves."""
        return levels

    def combine(self, messages: Any) -> Opened:
        """The sum, with the server's noise: an exact draw."""
        self.check_reports(len(messages))
        return Opened((int(np.sum(messages)) + self.law.draw()) % self.modulus, len(messages))

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Opened:
        """The sum, with the server's noise from the caller's generator."""
        self.check_reports(len(messages))
        return self._open(int(np.sum(messages)), len(messages), rng)


class Local(SecureSum):
    """Nobody is trusted: every user adds noise that suffices alone.

    Whatever happens to the message afterwards, it is private.
    """

    def __init__(
        self, users: int, precision: int, law: NoiseLaw, guarantee: Guarantee, *, modulus: int
    ) -> None:
        self._sums: dict[int, NoiseLaw] = {}
        super().__init__(users, precision, law, guarantee, share=law, modulus=modulus)
        self.minimum = 1

    def _noise(self, reports: int) -> NoiseLaw:
        if reports not in self._sums:
            self._sums[reports] = self.law.power(reports)
        return self._sums[reports]

    def _wrap_chance(self) -> float:
        """A bound: the noise of many users is too wide to sum."""
        return tail_bound(
            self._noise(self.users), (self.modulus - self.users * self.precision - 1) // 2
        )


def paper_modulus(users: int, precision: int, tau: float) -> int:
    """m = ng + 2τ + 1 (CZ23 Algorithm 1)."""
    if not math.isfinite(tau) or tau < 0:
        raise TacitError(f"tau is {tau}; the room for noise must be a number of at least 0")
    return users * precision + 2 * math.ceil(tau) + 1
