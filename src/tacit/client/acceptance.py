"""Trust models that a participant accepts: the device joins no experiment under a weaker one."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import Rejected
from tacit.terms import Terms
from tacit.trust import TrustModel


@dataclass(frozen=True)
class Acceptance:
    """Trust models that a participant accepts, beyond the terms of one experiment.

    Attributes
    ----------
    trusts : tuple of TrustModel
        Accepted trust models; all by default.
    obedient_coordinator : bool
        Whether the participant accepts to be protected only against a coordinator that follows the
        protocol. It is needed where devices share the noise and no helper checks invitations, as
        with open admission or secure aggregation: another coordinator could invent all other
        participants.

    Examples
    --------
    >>> careful = Acceptance((TrustModel.LOCAL, TrustModel.TWO_SERVERS))
    >>> careful.obedient_coordinator
    False
    """

    trusts: tuple[TrustModel, ...] = tuple(TrustModel)
    obedient_coordinator: bool = False

    def check(self, terms: Terms) -> None:
        """Reject terms that are weaker than the participant accepts."""
        if terms.trust not in self.trusts:
            raise Rejected(
                f"trust is {terms.trust.value}: must be one of {', '.join(self.trusts)}, which the "
                "participant accepts. The device does not join"
            )
        if terms.may_be_invented and not self.obedient_coordinator:
            raise Rejected(
                f"admission is {terms.admission} with trust {terms.trust.value}, where no helper "
                "checks invitations: a coordinator could invent all other participants. Join only "
                "if the participant accepts to be protected against a coordinator that follows the "
                "protocol: Device(…, accept=Acceptance(obedient_coordinator=True))"
            )
