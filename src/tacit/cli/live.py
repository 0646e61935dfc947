"""The command groups of live experiments: experiment, terms, party, invitations.

The experimenter writes an experiment (`new`), checks it (`check`), publishes it (`create`) and
monitors it. The helper's operator reads its terms and signs them (`terms cosign`).
"""

from __future__ import annotations

from collections.abc import Callable

from tacit.cli.defining import check, new
from tacit.cli.parties import found, make, rotate, show, sign
from tacit.cli.running import create, estimates, export, listing, pause, resume, status, stop

GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "experiment": (
        "Live experiments: define, publish, monitor, end.",
        {
            "new": new,
            "check": check,
            "create": create,
            "list": listing,
            "status": status,
            "estimates": estimates,
            "pause": pause,
            "resume": resume,
            "stop": stop,
            "export": export,
        },
    ),
    "terms": ("Terms of live experiments: read and sign.", {"show": show, "cosign": sign}),
    "party": (
        "The two servers of live experiments: create, rotate keys.",
        {"new": found, "rotate": rotate},
    ),
    "invitations": ("Invitations to live experiments.", {"make": make}),
}
"""Groups of commands: help text, and the commands by name."""
