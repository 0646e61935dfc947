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
# Walks

How a command finds its way through the modules. This page is printed by
`python docs/explanation/walks.py` and compared with it by a test.

## The stack at `protocol.simulate`

One round of each family, caught at the moment in which its protocol is asked for an estimate.
{most} modules of tacit lead there, none comes twice, and the three families walk the same way:
nothing between the command and the protocol knows which family it serves.

{walks}

## `tacit simulate`, in words

1. The **command line** finds the algorithm by name, gives it the options that were said, and is
   refused there if the algorithm's problem has no such option. Nothing was loaded or drawn yet.
2. The **study** builds the experiment once, so that whatever cannot be is refused before any work,
   and hands a trial and the **seeds** to what runs them, here or in workers.
3. A **trial** is one run: the problem begins a world from the seed, is fitted to it, and the
   registry's function makes an experiment of it: options, learner, mechanism, guarantee.
4. The **driver** asks the experiment for rounds. For each that is released, the mechanism gives the
   round's protocol, the world plays the round, `protocol.simulate` says what is learned of it, and
   the experiment observes that, if it was made under its own promise. Others are skipped.
5. A **ledger** adds up regret, bits and rounds on the way; the problem says which columns its
   family adds. Records become a **result**, which is printed, written as a table, or drawn.
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
