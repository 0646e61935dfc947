"""Prover of the certificates of the pure shuffle protocol, and search for certified parameters.

    python -m tacit.papers.certificates --check        # prove every row of the committed table
    python -m tacit.papers.certificates --regenerate   # search all parameters, rewrite the table

`count_ratios` has the distribution of the adversary's view and two methods to bound its ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError, integer, positive, probability, require
from tacit.papers.count_ratios import integer_ratio, round_up, tilted_ratio
from tacit.sampling.certificates import (
    Certificate,
    Kind,
    Method,
    PureShuffleParameters,
    TableRow,
    covered,
    data_file,
    load_table,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LARGEST_INTEGERS = 64
LARGEST_INTEGER_BITS = 100
LARGEST_EVERY_K = 1024
TABLE_USERS = tuple(2**power for power in range(11))
LARGEST_GROUPS = ((1, 10, 64), (1, 4, 64), (1, 2, 1024), (1, 1, 1024), (2, 1, 1024))
TABLE_TARGETS = {Fraction(over, under): most for over, under, most in LARGEST_GROUPS}
TABLE_DECIMALS = 6
SPOIL = Fraction(1, 10**6)
STEPS = 1000  # noise_epsilon is searched among the multiples of epsilon / STEPS
FEWER_BITS = Fraction(5, 1000)  # fraction of noise_epsilon that the search trades for fewer bits


def as_row(row: TableRow) -> dict[str, int | str]:
    """The row of the data file: fractions as strings, the certified epsilon rounded up."""
    parameters = row.certificate.parameters
    epsilon = round_up(row.certificate.epsilon, TABLE_DECIMALS)
    return {
        "users": parameters.users,
        "target": str(row.target),
        "epsilon": f"{float(epsilon):.{TABLE_DECIMALS}f}",
        "kind": row.certificate.kind,
        "method": row.certificate.method,
        "precision": parameters.precision,
        "noise_epsilon": str(parameters.noise_epsilon),
        "tau": parameters.tau,
        "mixture": str(parameters.mixture),
        "bits_per_user": parameters.bits,
    }


def certify(
    parameters: PureShuffleParameters, kind: Kind | None = None, method: Method | None = None
) -> Certificate:
    """The proven epsilon of these parameters, rounded up to nine decimals.

    By default it covers every k up to 1024 users and the extreme ks (none, half, all of the others
    hold a one) beyond. It uses exact integers up to 64 users of 100 bits and tilted polynomials
    beyond. Naming a kind or a method overrides that, at a cost in time.

    >>> from fractions import Fraction
    >>> certificate = certify(PureShuffleParameters(4, 1, Fraction(4, 5), 20, Fraction(1, 10**6)))
    >>> certificate.kind, float(certificate.epsilon)
    ('every-k', 0.844951962)
    """
    rule = "1 for a certificate. Round rewards to bits at random, which keeps their mean."
    require(parameters.precision == 1, "precision", parameters.precision, rule)
    users = parameters.users
    kind = kind or ("every-k" if users <= LARGEST_EVERY_K else "extreme-k")
    method = method or (
        "integers"
        if users <= LARGEST_INTEGERS and parameters.bits <= LARGEST_INTEGER_BITS
        else "tilted"
    )
    ks = covered(users, kind)
    worst = (integer_ratio if method == "integers" else tilted_ratio)(parameters, ks)
    return Certificate(round_up(worst, 9), kind, parameters, ks, method)


def search(users: int, epsilon: float | Fraction, spoil: float | Fraction = SPOIL) -> Certificate:
    """Find parameters for this batch size whose certified epsilon is at most `epsilon`.

    The mixture is the largest power of two that spoils a batch with probability at most `spoil`.
    The noise is the least that the certificate permits, up to half a percent, which is traded for
    fewer bits. The search evaluates k = 0, the worst k observed so far; the result is then
    certified in full, with more noise if necessary.
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
            f"epsilon is {float(target):g}: no parameters were found for {users} users, even with "
            "three times the noise. Use a larger batch or a larger epsilon."
        )
    best = _last_true(possible, 2 * STEPS, lambda steps: fits(wide(steps), steps))
    enough = math.floor(best * (1 - FEWER_BITS))
    widest = wide(enough)
    tau = widest - _last_true(0, widest - 1, lambda fewer: fits(widest - fewer, enough))
    steps = _last_true(enough, 2 * STEPS, lambda steps: fits(tau, steps))
    while (certificate := certify(candidate(tau, steps))).epsilon > target:
        steps -= 1
    return certificate


def _last_true(low: int, high: int, condition: Callable[[int], bool]) -> int:
    """The last number of low..high up to which a condition holds, by bisection from `low`."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if condition(middle) else (low, middle - 1)
    return low


def _regenerate(console: Console) -> None:
    """Search the parameters of every row again and rewrite the data file."""
    from rich.progress import track

    wanted = [
        (target, users)
        for target, most in TABLE_TARGETS.items()
        for users in TABLE_USERS
        if users <= most
    ]
    rows = [
        TableRow(target, search(users, target))
        for target, users in track(wanted, description="searching", console=console)
    ]
    content = {
        "about": "Certified parameters of the pure shuffle; epsilon is what is proven, rounded up.",
        "regenerate": "python -m tacit.papers.certificates --regenerate",
        "check": "python -m tacit.papers.certificates --check",
        "rows": [as_row(row) for row in rows],
    }
    data_file().write_text(json.dumps(content, indent=1) + "\n")
    load_table.cache_clear()


def _check(row: TableRow) -> dict[str, int | str | float | bool]:
    """Prove a row from its parameters alone; the epsilon found must not exceed the row's."""
    stored = row.certificate
    start = time.perf_counter()
    found = certify(stored.parameters, stored.kind, stored.method)
    return {
        **as_row(row),
        "found": float(found.epsilon),
        "holds": found.epsilon <= stored.epsilon <= row.target,
        "seconds": round(time.perf_counter() - start, 3),
    }


def _as_table(checked: Sequence[dict[str, Any]]) -> Table:
    """The results as a table that fits a terminal."""
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
        prog="python -m tacit.papers.certificates", description=main.__doc__
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
