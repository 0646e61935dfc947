"""The regret curves of every named algorithm, two seeds each, at a small size, as the command line
writes them.

`python tests/curves/record.py WORD…` rewrites in `curves.json` the cases whose names contain one of
the words (all without words) and drops those that are no more; the test beside it compares. A curve
that changes must change for a reason that is named in the commit which records it anew.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("curves.json")
PRINTED = RECORD.with_name("printed.json")
ARMS = "--arms 5 --horizon 30000 --epsilon 1"
FREE_LINEAR = "--dimension 4 --actions 30 --horizon 6000"
LINEAR = f"{FREE_LINEAR} --epsilon 5 --delta 0.1"
FREE_SILOS = "--silos 4 --dimension 4 --actions 10 --sync 10 --horizon 205"
SILOS = f"{FREE_SILOS} --epsilon 5 --delta 0.1"
TINY = "--silos 30 --dimension 3 --actions 5 --sync 10 --horizon 40"

CASES: dict[str, str] = {
    **dict.fromkeys(
        ("dist-dp-se", "cdp-se", "ldp-se", "shuffle-dp-se", "split-dp-se"),
        f"{ARMS} --constants tight",
    ),
    **{f"{name} paper": f"{ARMS} --constants paper" for name in ("dist-dp-se", "cdp-se", "ldp-se")},
    **{f"{name} gaussian": f"{ARMS} --rewards gaussian" for name in ("dist-dp-se", "split-dp-se")},
    **{f"{name}": f"{ARMS} --delta 1e-5" for name in ("dist-rdp-se", "dist-cdp-se", "sdp-ae")},
    "vb-sdp-ae": f"{ARMS} --delta 1e-5",
    "dist-rdp-se paper": f"{ARMS} --constants paper",
    "dist-cdp-se paper": f"{ARMS} --constants paper",
    "vb-sdp-ae paper": "--arms 5 --horizon 30000 --epsilon 0.5 --delta 1e-5 --constants paper",
    "sdp-ae paper": "--arms 5 --horizon 300000 --epsilon 0.9 --delta 1e-2 --constants paper",
    "dp-se": ARMS,
    **dict.fromkeys(("ucb1", "klucb", "thompson"), "--arms 5 --horizon 30000"),
    "successive-elimination": "--arms 5 --horizon 30000",
    "klucb beta": "--arms 3 --horizon 3000 --rewards beta",
    **{
        f"private-klucb {trust}": f"{ARMS} --trust {trust}"
        for trust in ("secure-aggregation", "central", "local", "shuffler")
    },
    "private-klucb shuffler delta": f"{ARMS} --trust shuffler --delta 1e-5",
    "private-klucb variance": f"{ARMS} --index variance",
    "private-klucb gaussian": f"{ARMS} --rewards gaussian",
    "private-klucb dropout": f"{ARMS} --dropout 0.2",
    "private-klucb means": "--means 0.02,0.025,0.03 --horizon 30000 --epsilon 1",
    "dist-dp-se anytime": f"{ARMS} --anytime",
    "dist-dp-se user": "--arms 3 --horizon 2000 --epsilon 1 --user-by-user",
    "split-dp-se user": "--arms 3 --horizon 3000 --epsilon 1 --user-by-user",
    **dict.fromkeys(("dpe", "dpe-fixed", "pe"), FREE_LINEAR),
    **dict.fromkeys(("cdp-dpe", "ldp-dpe", "sdp-dpe", "secagg-dpe"), LINEAR),
    **dict.fromkeys(("cdp-pe", "ldp-pe", "sdp-pe", "secagg-pe"), LINEAR),
    **{f"{name} paper": f"{FREE_LINEAR} --constants paper" for name in ("dpe", "pe")},
    **{
        f"{name} paper": f"{LINEAR} --constants paper"
        for name in ("cdp-dpe", "ldp-dpe", "sdp-dpe", "cdp-pe", "ldp-pe", "sdp-pe")
    },
    "secagg-dpe pure": LINEAR.replace("0.1", "0"),
    "cdp-dpe pure": LINEAR.replace("0.1", "0"),
    "fedlinucb": FREE_SILOS,
    **dict.fromkeys(("ldp-fedlinucb", "sdp-fedlinucb-vec", "secagg-fedlinucb"), SILOS),
    **{f"{name} eager": f"{SILOS} --no-lazy" for name in ("ldp-fedlinucb", "secagg-fedlinucb")},
    **{f"{name} paper": f"{SILOS} --constants paper" for name in ("ldp-fedlinucb",)},
    "jdp-linucb": SILOS,
    "sdp-fedlinucb-vec paper": f"{SILOS} --constants paper",
    "sdp-fedlinucb": f"{TINY} --epsilon 0.001 --delta 1e-4",
    "sdp-fedlinucb paper": f"{TINY} --epsilon 0.001 --delta 1e-4 --constants paper",
    **{
        f"private-med {trust}": f"{ARMS} --trust {trust}"
        for trust in ("secure-aggregation", "central", "local", "shuffler", "two-servers")
    },
    "vb-sdp-ae paper anytime": "--arms 3 --horizon 30000 --epsilon 0.9 --delta 1e-2 "
    "--constants paper --anytime",
    **dict.fromkeys(("adap-klucb", "lazy-dp-ts"), ARMS),
    "private-med chernoff": f"{ARMS} --index chernoff",
    "private-med gaussian": f"{ARMS} --rewards gaussian",
}


def simulated(case: str) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Regret at the checkpoints, by seed, with the printed guarantee, identifiers and bits."""
    from tacit.cli import main

    algorithm = case.split()[0]
    with tempfile.TemporaryDirectory() as folder:
        words = [*CASES[case].split(), "--runs", "2", "--seed", "3", "--json", "--out", folder]
        given, printed = sys.argv, io.StringIO()
        sys.argv = ["tacit", "simulate", "--algorithm", algorithm, *words]
        try:
            with contextlib.redirect_stdout(printed):
                main()
        finally:
            sys.argv = given
        found: dict[str, list[float]] = {}
        with (Path(folder) / f"{algorithm}.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found.setdefault(row["seed"], []).append(float(row["regret"]))
    told = json.loads(printed.getvalue())
    guarantee = told["guarantee"]
    if guarantee is not None:
        guarantee.pop("text")
    bits = [run.get("bits", run.get("bits_per_silo")) for run in told["runs"]]
    return found, {"guarantee": guarantee, "bits": bits}


if __name__ == "__main__":
    before = json.loads(RECORD.read_text(encoding="utf-8"))
    told = json.loads(PRINTED.read_text(encoding="utf-8")) if PRINTED.exists() else {}
    recorded, printed, words = {}, {}, sys.argv[1:] or [""]
    for case in CASES:
        if case in before and case in told and not any(word in case for word in words):
            recorded[case], printed[case] = before[case], told[case]
            continue
        recorded[case], printed[case] = simulated(case)
        print(f"{case}: {[values[-1] for values in recorded[case].values()]}", file=sys.stderr)
    RECORD.write_text(json.dumps(recorded, indent=0) + "\n", encoding="utf-8")
    PRINTED.write_text(json.dumps(printed, indent=0) + "\n", encoding="utf-8")
