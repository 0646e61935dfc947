"""Trust models that a device can take part in, by the wire name of their rounds.

A new trust model is a module with a `Reporter` and an entry here. `tacit.service.trust_models` has
the servers' side.
"""

from __future__ import annotations

from tacit.client.trust_models.contract import Reporter
from tacit.client.trust_models.local import LocalReporter
from tacit.client.trust_models.masking import MaskingReporter
from tacit.client.trust_models.shuffler import ShufflerReporter
from tacit.client.trust_models.two_servers import TwoServerReporter
from tacit.errors import Rejected
from tacit.terms import Terms

REPORTERS: dict[str, Reporter] = {
    "two-servers": TwoServerReporter(),
    "verified": TwoServerReporter(),
    "local": LocalReporter(),
    "mixing": ShufflerReporter(),
    "masking": MaskingReporter(),
}


def reporter(terms: Terms) -> Reporter:
    """The device's part in rounds under these terms; rejects kinds of rounds it does not know."""
    found = REPORTERS.get(terms.kind)
    if found is None:
        raise Rejected(
            f"kind of the terms is {terms.kind}: must be one of {', '.join(REPORTERS)}. This "
            "device takes part in no others"
        )
    return found
