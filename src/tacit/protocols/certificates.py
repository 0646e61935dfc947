"""Which pure shuffle batches are private, and by how much: certificates, a search for parameters,
the committed table.

A certificate bounds the likelihood ratio of everything the server sees of one batch: the number of
ones among the shuffled bits (`count_ratios` has the law and the two computations). It holds for
**exactly** the number of users it names: if some of them drop out, the number of bits itself is
seen, and only a certificate for the number that arrived says anything.

    python -m tacit.protocols.certificates --check        # proves every row of the committed table
    again python -m tacit.protocols.certificates --regenerate   # searches all parameters anew and
    rewrites the table
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tacit.checks import TacitError, as_fraction, integer, positive, probability
from tacit.protocols.count_ratios import (
    PureShuffleParameters,
    integer_ratio,
    round_up,
    tilted_ratio,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "Certificate",
    "PureShuffleParameters",
    "TableRow",
    "certify",
    "groups",
    "load_table",
    "lookup",
    "search",
]

Kind = Literal["every-k", "extreme-k"]
Method = Literal["integers", "tilted"]

LARGEST_INTEGERS = 64
LARGEST_INTEGER_BITS = 100
LARGEST_EVERY_K = 1024
TABLE_USERS = tuple(2**power for power in range(11))
TABLE_TARGETS = (Fraction(1, 2), Fraction(1), Fraction(2))
TABLE_DECIMALS = 6
SPOIL = Fraction(1, 10**6)
STEPS = 1000  # noise_epsilon is searched among the multiples of epsilon / STEPS
FEWER_BITS = Fraction(5, 1000)  # how much of noise_epsilon the search gives away for fewer bits


@dataclass(frozen=True)
class Certificate:
    """A proven bound on the privacy loss of one batch of exactly `parameters.users` users.

    `kind` says how much is proven: "every-k" covers every data set and is (epsilon, 0)-differential
    privacy under replacement of one user; "extreme-k" covers only data sets in which the number of
    ones among the other users is in `ks_checked`.
    """

    epsilon: Fraction
    kind: Kind
    parameters: PureShuffleParameters
    ks_checked: tuple[int, ...]
    method: Method

    @property
    def statement(self) -> str:
        """What exactly is proven, in one sentence, and what is not, in another."""
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
            f"{proven} If fewer messages arrive, the number of bits itself is seen and this "
            "certificate says nothing."
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
        """The batch size that the row is for."""
        return self.certificate.parameters.users

    def to_dict(self) -> dict[str, int | str]:
        """The row as it stands in the data file: fractions as strings, the certified epsilon
        rounded up.
        """
        parameters = self.certificate.parameters
        epsilon = round_up(self.certificate.epsilon, TABLE_DECIMALS)
        return {
            "users": parameters.users,
            "target": str(self.target),
            "epsilon": f"{float(epsilon):.{TABLE_DECIMALS}f}",
            "kind": self.certificate.kind,
            "method": self.certificate.method,
            "precision": parameters.precision,
            "noise_epsilon": str(parameters.noise_epsilon),
            "tau": parameters.tau,
            "mixture": str(parameters.mixture),
            "bits_per_user": parameters.bits,
        }

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> TableRow:
        """Reads what `to_dict` wrote."""
        parameters = PureShuffleParameters(
            users=row["users"],
            precision=row["precision"],
            noise_epsilon=Fraction(row["noise_epsilon"]),
            tau=row["tau"],
            mixture=Fraction(row["mixture"]),
        )
        ks = _ks(parameters.users, row["kind"])
        certificate = Certificate(
            Fraction(row["epsilon"]), row["kind"], parameters, ks, row["method"]
        )
        return cls(Fraction(row["target"]), certificate)


def certify(
    parameters: PureShuffleParameters, kind: Kind | None = None, method: Method | None = None
) -> Certificate:
    """The epsilon that these parameters provably have, rounded up to nine decimals.

    By default every k up to 1024 users and the extreme ks (none, half, all of the others hold a
    one) beyond; exact integers up to 64 users of 100 bits and tilted polynomials beyond. Naming a
    kind or a method overrides that, at its price in time.

    >>> from fractions import Fraction
    >>> certificate = certify(PureShuffleParameters(4, 1, Fraction(4, 5), 20, Fraction(1, 10**6)))
    >>> certificate.kind, float(certificate.epsilon)
    ('every-k', 0.844951962)
    """
    if parameters.precision != 1:
        raise TacitError(
            f"precision is {parameters.precision}; certificates are for precision 1: round rewards "
            "to bits at random, "
            "which keeps their mean"
        )
    users = parameters.users
    kind = kind or ("every-k" if users <= LARGEST_EVERY_K else "extreme-k")
    method = method or (
        "integers"
        if users <= LARGEST_INTEGERS and parameters.bits <= LARGEST_INTEGER_BITS
        else "tilted"
    )
    ks = _ks(users, kind)
    worst = (integer_ratio if method == "integers" else tilted_ratio)(parameters, ks)
    return Certificate(round_up(worst, 9), kind, parameters, ks, method)


def search(users: int, epsilon: float | Fraction, spoil: float | Fraction = SPOIL) -> Certificate:
    """Parameters for this batch size whose certificate is at most `epsilon`, with that certificate.

    The mixture is the largest power of two that spoils a batch with probability at most `spoil`.
    The noise is the least that the certificate permits, up to half a percent, which is given away
    for fewer bits. The search looks at k = 0, the worst as far as we have seen; what it finds is
    then certified in full, with more noise if need be.
    """
    users = integer("users", users, at_least=1)
    target = positive("epsilon", epsilon)
    mixture = Fraction(1, 2 ** math.ceil(math.log2(users / probability("spoil", spoil))))

    def candidate(tau: int, steps: int) -> PureShuffleParameters:
        return PureShuffleParameters(users, 1, target * steps / STEPS, tau, mixture)

    def fits(tau: int, steps: int) -> bool:
        return tilted_ratio(candidate(tau, steps), (0,)) <= target

    def wide(steps: int) -> int:
        return math.ceil((math.log(1 / mixture) + 12) * STEPS / (target * steps))

    possible = next(
        (steps for steps in (1000, 950, 850, 700, 500, 300) if fits(wide(steps), steps)), None
    )
    if possible is None:
        raise TacitError(
            f"epsilon is {float(target):g}; no parameters were found for {users} users, even with "
            "three times the "
            "noise: take a larger batch or a larger epsilon"
        )
    best = _last(possible, 2 * STEPS, lambda steps: fits(wide(steps), steps))
    enough = math.floor(best * (1 - FEWER_BITS))
    widest = wide(enough)
    tau = widest - _last(0, widest - 1, lambda fewer: fits(widest - fewer, enough))
    steps = _last(enough, 2 * STEPS, lambda steps: fits(tau, steps))
    while (certificate := certify(candidate(tau, steps))).epsilon > target:
        steps -= 1
    return certificate


@cache
def load_table() -> tuple[TableRow, ...]:
    """The committed certificates, by target epsilon and then by number of users.

    Needs no python-flint.
    """
    rows = json.loads(_data_file().read_text())["rows"]
    return tuple(TableRow.from_dict(row) for row in rows)


def lookup(users: int, epsilon: float | Fraction) -> TableRow:
    """The row for a batch of exactly this many users with the largest target that is no larger than
    `epsilon`.

    >>> row = lookup(1024, 1.3)
    >>> row.target, row.certificate.kind
    (Fraction(1, 1), 'every-k')
    >>> lookup(100, 1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.checks.TacitError: users is 100; certified batches are of 1, 2, ... with groups(100, 1)
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


def groups(users: int, epsilon: float | Fraction) -> list[tuple[int, TableRow]]:
    """Cuts a batch of any size into as few certified groups as possible: (how many, their row),
    largest first.

    Every group is a batch of its own, with its own noise and its own count of ones; nobody is in
    two of them, so the epsilon of the whole is that of the worst group. A user left alone is a
    group of one, whose message is private by itself.

    >>> [(count, row.users) for count, row in groups(2500, 1)]
    [(2, 1024), (1, 256), (1, 128), (1, 64), (1, 4)]
    """
    left = integer("users", users, at_least=1)
    cut = []
    for row in sorted(_usable(epsilon), key=lambda row: -row.users):
        count, left = divmod(left, row.users)
        if count:
            cut.append((count, row))
    return cut


def _usable(epsilon: float | Fraction) -> list[TableRow]:
    """The rows of the largest target that is no larger than `epsilon`."""
    limit = positive("epsilon", as_fraction("epsilon", epsilon))
    targets = {row.target for row in load_table()}
    if limit < min(targets):
        raise TacitError(
            f"epsilon is {float(limit):g}; the smallest certified is {float(min(targets)):g}: "
            "search(users, epsilon) "
            "finds parameters for others, or use secure aggregation, which is pure at every epsilon"
        )
    target = max(target for target in targets if target <= limit)
    return [row for row in load_table() if row.target == target]


def _ks(users: int, kind: Kind) -> tuple[int, ...]:
    """The numbers of ones among the other users that a certificate of this kind covers."""
    return tuple(range(users)) if kind == "every-k" else tuple(sorted({0, users // 2, users - 1}))


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last number of low..high up to which `holds` holds, given that it holds at `low`; by
    bisection.
    """
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _data_file() -> Path:
    return Path(str(resources.files("tacit.protocols"))) / "data" / "pure_shuffle_certificates.json"


def _regenerate(console: Console) -> None:
    """Searches the parameters of every row again and rewrites the data file."""
    from rich.progress import track

    wanted = list(itertools.product(TABLE_TARGETS, TABLE_USERS))
    rows = [
        TableRow(target, search(users, target))
        for target, users in track(wanted, description="searching", console=console)
    ]
    content = {
        "about": "Certified parameters of the pure shuffle; epsilon is what is proven, rounded up.",
        "regenerate": "python -m tacit.protocols.certificates --regenerate",
        "check": "python -m tacit.protocols.certificates --check",
        "rows": [row.to_dict() for row in rows],
    }
    _data_file().write_text(json.dumps(content, indent=1) + "\n")
    load_table.cache_clear()


def _check(row: TableRow) -> dict[str, int | str | float | bool]:
    """Proves a row from its parameters alone; it holds if the epsilon found is no larger than the
    one in the row.
    """
    stored = row.certificate
    start = time.perf_counter()
    found = certify(stored.parameters, stored.kind, stored.method)
    return {
        **row.to_dict(),
        "found": float(found.epsilon),
        "holds": found.epsilon <= stored.epsilon <= row.target,
        "seconds": round(time.perf_counter() - start, 3),
    }


def _as_table(checked: Sequence[dict[str, Any]]) -> Table:
    """The results for a person, narrow enough for a terminal."""
    from rich.table import Table

    table = Table(title="Pure shuffle certificates, proven again")
    for name in ("users", "target", "certified", "noise", "bits", "kind", "seconds", "holds"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in checked:
        table.add_row(
            str(result["users"]),
            f"{float(Fraction(result['target'])):g}",
            result["epsilon"],
            f"{float(Fraction(result['noise_epsilon'])):.4f}",
            str(result["bits_per_user"]),
            result["kind"],
            f"{result['seconds']:.2f}",
            "yes" if result["holds"] else "NO",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the committed table of pure shuffle certificates again; the exit status is 1 when a row
    does not hold.
    """
    from rich.console import Console
    from rich.progress import track

    parser = argparse.ArgumentParser(
        prog="python -m tacit.protocols.certificates", description=main.__doc__
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="prove every committed row again")
    action.add_argument(
        "--regenerate",
        action="store_true",
        help="search all parameters, rewrite the table, then check it",
    )
    parser.add_argument(
        "--largest",
        type=int,
        default=TABLE_USERS[-1],
        help="check only rows of at most this many users",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    try:
        if options.regenerate:
            _regenerate(console)
        chosen = [row for row in load_table() if row.users <= options.largest]
        checked = [_check(row) for row in track(chosen, description="proving", console=console)]
    except TacitError as error:
        console.print(f"tacit: {error}", markup=False, highlight=False)
        return 2
    if options.json:
        print(json.dumps(checked, indent=1))
    else:
        Console().print(_as_table(checked))
    return 0 if all(result["holds"] for result in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
