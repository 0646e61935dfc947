"""Prints docs/explanation/walks.md: the modules on the stack when a protocol's `simulate` runs.

`python docs/explanation/walks.py > docs/explanation/walks.md` renews it; a test compares. Each
family is walked in a process of its own, by the command line, in one run, which is done in the
process that asked.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import subprocess
import sys
from typing import Any

WALKS = {
    "arms": "--algorithm dist-dp-se --arms 3 --horizon 2000",
    "linear": "--algorithm cdp-dpe --dimension 3 --actions 8 --horizon 400",
    "federated": "--algorithm secagg-fedlinucb --silos 3 --horizon 50",
}
PAGE = """\
# The path of a command

Which modules a command passes, from its words to a private estimate. This page is printed by
`python docs/explanation/walks.py` and compared with it by a test.

## The stack at `protocol.simulate`

One round of each family, at the call of its protocol. {most} modules of tacit lead there, none
comes twice, and the three families take the same path.

{walks}

## `tacit simulate`, step by step

1. The **command line** finds the algorithm by name and rejects options that its problem does not
   have. Nothing has been loaded or drawn yet.
2. The **study** builds the experiment once, so that errors come before any work, and gives a trial
   and the **seeds** to workers.
3. A **trial** is one run: the problem creates an environment from the seed, and the registered
   function returns an experiment: options, learner, mechanism, guarantee.
4. The **driver** asks the experiment for rounds. For each one to be released the mechanism gives
   the protocol, the environment plays the round, `protocol.simulate` returns an estimate, and the
   experiment observes it if it was made under its own guarantee. Other rounds are skipped.
5. A **ledger** sums regret, bits and rounds. Records become a **result**, which is printed, written
   as a table, or plotted.
"""


def watch() -> list[list[str]]:
    """Every protocol's `simulate` notes the modules of tacit that led to its first call."""
    import tacit.protocols

    seen: list[list[str]] = []
    for info in pkgutil.walk_packages(tacit.protocols.__path__, "tacit.protocols."):
        for thing in vars(importlib.import_module(info.name)).values():
            if isinstance(thing, type) and "simulate" in vars(thing):
                replace(thing, seen)
    return seen


def replace(kind: Any, seen: list[list[str]]) -> None:
    inner = kind.simulate
    if hasattr(inner, "watched"):
        return

    def simulate(self: Any, *arguments: Any, **named: Any) -> Any:
        seen.append(stack())
        return inner(self, *arguments, **named)

    simulate.watched = True  # type: ignore[attr-defined]
    kind.simulate = simulate


def stack() -> list[str]:
    """Modules of tacit from the outermost caller to the innermost, neighbours joined."""
    frame, names = sys._getframe(2), list[str]()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] == "tacit" and names[-1:] != [name]:
            names.append(name)
        frame = frame.f_back  # type: ignore[assignment]
    return names[::-1]


def walk(words: list[str]) -> list[str]:
    """The stack of one command, in this process."""
    seen = watch()
    from tacit.cli import main

    sys.argv = ["tacit", "simulate", *words, "--runs", "1", "--json"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
    return seen[0]


def page() -> str:
    """The whole page, from fresh walks."""
    lines, walks = [], []
    for family, words in WALKS.items():
        command = [sys.executable, __file__, *words.split()]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        walks.append(json.loads(ended.stdout))
        way = " → ".join(f"`{name}`" for name in walks[-1])
        lines += [f"**{family}**, `tacit simulate {words}`:", "", way, ""]
    for found in walks:
        if found != walks[0] or len(set(found)) < len(found):
            raise SystemExit(f"families walk differently, or a module comes twice: {walks}")
    return PAGE.format(most=max(map(len, walks)), walks="\n".join(lines).strip())


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(walk(sys.argv[1:])))
    else:
        print(page(), end="")
