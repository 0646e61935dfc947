"""Single fields of terms of two servers, and values of each that every reader rejects.

Both `tests/terms` (Python) and the vectors of the browser's device use this table.
"""

from __future__ import annotations

import json
from typing import Any

from tacit.terms import HPKE_SUITES, LONGEST_GRACE, MASKING_SUITE, Terms

HONEST = {"count": 1, "id": "honest-servers", "of": 2}
BOUNDED, PINNED = {"id": "bounded-adversary"}, {"id": "pinned-keys"}

MUTATIONS: dict[tuple[Any, ...], tuple[Any, ...]] = {
    ("version",): (1, 2, 4, "3", True),
    ("admission",): ("closed", "", "invitation"),  # an issuer is missing
    ("aggregation", "claim"): ("two-fates", "", "Semi-honest", 1),
    ("aggregation", "dishonest_count"): (1, -1, "0", 1 << 32),
    ("aggregation", "dishonest_fraction"): ("1/10", "-1/10", "1", 0),
    ("aggregation", "minimum_batch_size"): (0, 1 << 32, "1"),
    ("aggregation", "missing_fraction"): ("1/10", "-1/10", "1", 0),
    ("answer", "labels"): (["no"], ["no", "yes", "maybe"], ["no", "no"], ["no", " yes"], "no", [0]),
    ("assumptions",): (
        [],
        {},
        "none",
        [BOUNDED, HONEST],
        [HONEST, PINNED],
        [BOUNDED, PINNED],
        [HONEST, BOUNDED, PINNED],
        [BOUNDED, HONEST, PINNED, PINNED],
        [BOUNDED, HONEST, PINNED, {"id": "trusted-server"}],
        [BOUNDED, {**HONEST, "count": 2}, PINNED],
        [BOUNDED, {**HONEST, "of": 3}, PINNED],
        [BOUNDED, {"id": "honest-servers"}, PINNED],
        [BOUNDED, {**HONEST, "text": "one is honest"}, PINNED],
    ),
    ("contact",): (" a", "a\tb", 1, ["a"]),
    ("grace",): (-1, LONGEST_GRACE + 1, 4294967295, "3600"),
    ("guarantee", "delta"): ("1/10", "1"),
    ("guarantee", "epsilon"): ("0", "-1", "1/100", "x", 1),
    ("guarantee", "neighbours"): ("add-one", ""),
    ("guarantee", "participations"): (0, 1000, "2"),
    ("guarantee", "view"): ("opened-sum", "shuffled", "message", ""),
    ("issuer",): ("ab" * 32, "00", "AB" * 32, 0),  # admission is open
    ("no_show",): ("19/20", "1", "-1", 0),
    ("noise", "by"): ("devices", "nobody"),
    ("noise", "distribution"): ("gauss", "skellam", ""),
    ("noise", "minimum"): ([1, 100], [0, 1], [-2, 1], [1], [96, 2], [10**6, 1], ["2", "1"], "2"),
    ("noise", "scale"): ("1/100", "0", "-2", "96/2"),
    ("noise", "share_divisor"): ("all", "", 1),
    ("organisation",): (" a", "a\u202eb", 1),
    ("proofs",): (2, -1, "0"),
    ("purpose",): ("a ", "a\nb", 0),
    ("suite",): (*HPKE_SUITES[1:], MASKING_SUITE, "", "none", 3),
    ("trust",): ("secure-aggregation", "shuffler", "local", "central", "none", "silo", "", 2),
}
ACCEPTED_BY_PYTHON = {("suite",): HPKE_SUITES[1:]}
"""What is sound, but not for the browser's device, which has one suite."""


def mutated(terms: Terms, path: tuple[Any, ...], value: Any) -> str:
    """Canonical text of terms with another value in one place, whether it makes sense or not."""
    document: Any = json.loads(terms.encode())
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
