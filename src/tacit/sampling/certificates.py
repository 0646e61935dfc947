"""The committed table of certificates for pure DP shuffle batches.

A certificate bounds the likelihood ratio of the server's view of one batch: the number of ones
among the shuffled bits. It is proven for the number of users it names. It also covers a larger
batch with the same shares: further reports add ones that do not depend on one's own bit. It does
not cover a smaller batch. `python -m tacit.papers.certificates --check` proves every row again;
this module proves nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from tacit.errors import TacitError, as_fraction, integer, positive, probability

Kind = Literal["every-k", "extreme-k"]
Method = Literal["integers", "tilted"]


@dataclass(frozen=True)
class PureShuffleParameters:
    """The parameters from which a device draws the number of ones among its bits, exactly.

    >>> noise, mixture = Fraction(19, 20), Fraction(1, 10**6)
    >>> PureShuffleParameters(64, 1, noise_epsilon=noise, tau=20, mixture=mixture).bits
    41
    """

    users: int
    precision: int
    noise_epsilon: Fraction
    tau: int
    mixture: Fraction

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "users", integer("users", self.users, at_least=1))
        set_(self, "precision", integer("precision", self.precision, at_least=1))
        set_(self, "noise_epsilon", positive("noise_epsilon", self.noise_epsilon))
        set_(self, "tau", integer("tau", self.tau, at_least=1))
        remedy = (
            "without a mixture some counts would be impossible for some inputs, and the batch not "
            "private at all"
        )
        set_(self, "mixture", probability("mixture", self.mixture, remedy))

    @property
    def bits(self) -> int:
        """Bits that each user sends."""
        return 2 * self.tau + self.precision


@dataclass(frozen=True)
class Certificate:
    """A proven bound on the privacy loss of one batch of exactly `parameters.users` users.

    `kind` "every-k" covers every data set: (epsilon, 0)-differential privacy under replacement of
    one user. "extreme-k" covers only data sets in which the number of ones among the other users is
    in `ks_checked`.
    """

    epsilon: Fraction
    kind: Kind
    parameters: PureShuffleParameters
    ks_checked: tuple[int, ...]
    method: Method

    @property
    def statement(self) -> str:
        """The proven claim in one sentence, and its limits in another."""
        users, bits, others = self.parameters.users, self.parameters.bits, self.parameters.users - 1
        head = (
            f"With exactly {users} users of {bits} bits each, replacing one user's bit changes the "
            "log probability "
            f"of no number of ones, 0 to {users * bits}, by more than {float(self.epsilon)}"
        )
        if self.kind == "every-k":
            proven = f"{head}, whatever the other {others} users hold."
        else:
            proven = (
                f"{head}, when {', '.join(map(str, self.ks_checked))} of the other {others} users "
                "hold a one. "
                "Other data sets were not checked, so this is not yet a proof of differential "
                "privacy."
            )
        return (
            f"{proven} Further messages do not change that. If fewer messages arrive, the number "
            "of bits itself is seen and this certificate does not apply."
        )


@dataclass(frozen=True)
class TableRow:
    """A certificate of the committed table, and the round epsilon that its parameters were searched
    for.
    """

    target: Fraction
    certificate: Certificate

    @property
    def users(self) -> int:
        """The batch size of the row."""
        return self.certificate.parameters.users

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> TableRow:
        """A row of the data file."""
        parameters = PureShuffleParameters(
            users=row["users"],
            precision=row["precision"],
            noise_epsilon=Fraction(row["noise_epsilon"]),
            tau=row["tau"],
            mixture=Fraction(row["mixture"]),
        )
        ks = covered(parameters.users, row["kind"])
        certificate = Certificate(
            Fraction(row["epsilon"]), row["kind"], parameters, ks, row["method"]
        )
        return cls(Fraction(row["target"]), certificate)


@cache
def load_table() -> tuple[TableRow, ...]:
    """The committed certificates, by target epsilon and then by number of users.

    Needs no python-flint.
    """
    rows = json.loads(data_file().read_text())["rows"]
    return tuple(TableRow.from_dict(row) for row in rows)


def lookup(users: int, epsilon: float | Fraction) -> TableRow:
    """The row for a batch of exactly this many users with the largest target of at most `epsilon`.

    >>> row = lookup(1024, 1.3)
    >>> row.target, row.certificate.kind
    (Fraction(1, 1), 'every-k')
    >>> lookup(100, 1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.errors.TacitError: users is 100; certified batches are of 1, 2, ... with groups(100, 1)
    """
    users = integer("users", users, at_least=1)
    rows = {row.users: row for row in _usable(epsilon)}
    if users not in rows:
        first, second, third, *_, largest = sorted(rows)
        raise TacitError(
            f"users is {users}; certified batches are of {first}, {second}, {third}, ..., "
            f"{largest}: cut it with groups({users}, {epsilon})"
        )
    return rows[users]


@dataclass(frozen=True)
class Group:
    """`count` groups of `size` participants each, with the shares of a certified row."""

    count: int
    row: TableRow
    size: int

    @property
    def participants(self) -> int:
        """The number of participants in these groups."""
        return self.count * self.size


def groups(users: int, epsilon: float | Fraction, curious: int = 1) -> list[Group]:
    """Split a batch into as few groups as possible, all of the largest row that fits.

    A group has `curious` participants more than its row is certified for: members know their own
    bits and see the others'. Left-over participants join the last group, since an extra share adds
    less noise than an extra group. Groups are disjoint, so the epsilon of the batch is that of one
    group.

    >>> [(group.count, group.row.users, group.size) for group in groups(2500, 1)]
    [(1, 1024, 1025), (1, 1024, 1475)]
    """
    everyone = integer(
        "users", users, at_least=1 + curious, remedy="one participant alone is not private"
    )
    fitting = [row for row in _usable(epsilon) if row.users + curious <= everyone]
    row = max(fitting, key=lambda row: row.users)
    count, left = divmod(everyone, row.users + curious)
    cut = (Group(count - bool(left), row, row.users + curious),)
    rest = (Group(1, row, row.users + curious + left),) if left else ()
    return [group for group in (*cut, *rest) if group.count]


def one_group(users: int, honest: int, epsilon: float | Fraction) -> Group:
    """A batch as one group, with shares of the largest row for at most `honest` users.

    >>> one_group(100, 70, 1).row.users
    64
    """
    fitting = [row for row in _usable(epsilon) if row.users <= honest]
    return Group(1, max(fitting, key=lambda row: row.users), users)


def largest_group(epsilon: float | Fraction) -> int:
    """The largest certified batch at this epsilon.

    >>> largest_group(0.1), largest_group(1)
    (64, 1024)
    """
    return max(row.users for row in _usable(epsilon))


def certified(epsilon: float | Fraction) -> float:
    """The epsilon that groups of every size satisfy at this target."""
    return max(float(row.certificate.epsilon) for row in _usable(epsilon))


def _usable(epsilon: float | Fraction) -> list[TableRow]:
    """The rows of the largest target of at most `epsilon`."""
    limit = positive("epsilon", as_fraction("epsilon", epsilon))
    targets = {row.target for row in load_table()}
    smallest = min(targets)
    if limit < smallest:
        shown: float | Fraction = float(limit)
        if f"{shown:g}" == f"{float(smallest):g}":  # nearly the smallest: show it exactly
            shown = limit
        raise TacitError(
            f"epsilon is {shown}: must be at least {float(smallest):g}, the smallest certified. "
            "search(users, epsilon) finds parameters for others, or use secure aggregation, which "
            "is pure at every epsilon"
        )
    target = max(target for target in targets if target <= limit)
    return [row for row in load_table() if row.target == target]


def covered(users: int, kind: Kind) -> tuple[int, ...]:
    """The numbers of ones among the other users that a certificate of this kind covers."""
    return tuple(range(users)) if kind == "every-k" else tuple(sorted({0, users // 2, users - 1}))


def data_file() -> Path:
    """The path of the committed table."""
    return Path(str(resources.files("tacit.sampling"))) / "data" / "pure_shuffle_certificates.json"
