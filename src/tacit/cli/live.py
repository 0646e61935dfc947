"""The command groups of live experiments: experiment, terms, party, invitations.

The experimenter writes an experiment (`new`), checks it (`check`), publishes it (`create`) and
monitors it. The helper's operator reads its terms and signs them (`terms cosign`).
"""

from __future__ import annotations

from tacit.cli.defining import check, new
from tacit.cli.options import CommandGroup
from tacit.cli.parties import found, make, rotate, show, sign
from tacit.cli.running import create, estimates, export, pause, resume, status, stop

GROUPS = {
    "experiment": CommandGroup(
        "Live experiments: define, publish, watch, end.",
        {
            "new": new,
            "check": check,
            "create": create,
            "status": status,
            "estimates": estimates,
            "pause": pause,
            "resume": resume,
            "stop": stop,
            "export": export,
        },
    ),
    "terms": CommandGroup(
        "The terms of an experiment: read and sign them.", {"show": show, "cosign": sign}
    ),
    "party": CommandGroup("The two servers of live experiments.", {"new": found, "rotate": rotate}),
    "invitations": CommandGroup("Invitations to take part.", {"make": make}),
}
