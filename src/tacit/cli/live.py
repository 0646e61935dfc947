"""The command groups of live experiments: experiment, terms, party, invitations.

The experimenter writes an experiment (`new`), checks it (`check`), publishes it (`create`) and
monitors it. The helper's operator reads its terms and signs them (`terms cosign`).
"""

from __future__ import annotations

from tacit.cli.defining import check, new
from tacit.cli.options import CommandGroup
from tacit.cli.parties import found, issue, make, rotate, show, sign
from tacit.cli.running import create, estimates, export, listing, pause, resume, status, stop

GROUPS = {
    "experiment": CommandGroup(
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
    "terms": CommandGroup(
        "Terms of live experiments: read and sign.", {"show": show, "cosign": sign}
    ),
    "party": CommandGroup(
        "The two servers of live experiments: create, rotate keys.",
        {"new": found, "rotate": rotate},
    ),
    "invitations": CommandGroup(
        "Invitations to live experiments.", {"issuer": issue, "make": make}
    ),
}
