"""Trust models of the live service, by the wire name of their rounds.

A new trust model is a module with a `CoordinatorEngine`, a `HelperEngine` if it has a helper, and
an entry here. `tacit.client.trust_models` has the device's side.
"""

from __future__ import annotations

from tacit.service.trust_models.contract import CoordinatorEngine, HelperEngine, engine_in
from tacit.service.trust_models.local import LocalCoordinator
from tacit.service.trust_models.masking import MaskingCoordinator
from tacit.service.trust_models.shuffler import ShufflerCoordinator, ShufflerHelper
from tacit.service.trust_models.two_servers import TwoServerCoordinator, TwoServerHelper
from tacit.terms import Terms

COORDINATORS: dict[str, type[CoordinatorEngine]] = {
    "two-servers": TwoServerCoordinator,
    "verified": TwoServerCoordinator,
    "local": LocalCoordinator,
    "mixing": ShufflerCoordinator,
    "masking": MaskingCoordinator,
}
HELPERS: dict[str, type[HelperEngine]] = {
    "two-servers": TwoServerHelper,
    "verified": TwoServerHelper,
    "mixing": ShufflerHelper,
}


def coordinator_engine(terms: Terms) -> type[CoordinatorEngine]:
    """The coordinator's engine for rounds under these terms."""
    return engine_in(COORDINATORS, terms)
