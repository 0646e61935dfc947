"""Trust models, adversary views and neighbouring relations: enums with stable identifiers.

One `TrustModel` serves registry, command line, signed terms and service. A `View` names what the
adversary of a guarantee observes, `Neighbours` the two data sets that must look alike. Values are
stored and signed; the sentences beside them are rendered for readers and decide nothing.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class TrustModel(StrEnum):
    """Who must be trusted with what.

    >>> TrustModel("two-servers"), str(TrustModel.SHUFFLER)
    (<TrustModel.TWO_SERVERS: 'two-servers'>, 'shuffler')
    """

    NONE = "none"
    CENTRAL = "central"
    LOCAL = "local"
    SILO = "silo"
    SHUFFLER = "shuffler"
    SECURE_AGGREGATION = "secure-aggregation"
    TWO_SERVERS = "two-servers"

    @property
    def shares_noise(self) -> bool:
        """Whether participants add shares of the noise, which only together suffice."""
        return self in (TrustModel.SHUFFLER, TrustModel.SECURE_AGGREGATION)


class Neighbours(Enum):
    """Which two data sets must look alike."""

    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE_ONE = "add-or-remove-one"

    def text(self) -> str:
        """The change between neighbours, as the subject of a sentence."""
        return {
            Neighbours.REPLACE_ONE: "replacing one participant's data",
            Neighbours.ADD_OR_REMOVE_ONE: "adding or removing one participant's data",
        }[self]


class View(Enum):
    """What the adversary of a guarantee observes: everything that it ever sees of a run."""

    OPENED_SUM = "opened-sum"
    SERVER_OUTPUT = "server-output"
    MESSAGE = "message"
    SHUFFLED = "shuffled"
    SILO = "silo"
    OTHER_SERVER = "other-server"

    def text(self) -> str:
        """The adversary, in words."""
        return {
            View.OPENED_SUM: "an adversary who sees the released sums",
            View.SERVER_OUTPUT: "an adversary who sees what the trusted server publishes",
            View.MESSAGE: "an adversary who sees the participant's own message",
            View.SHUFFLED: "an adversary who sees the shuffled messages",
            View.SILO: "an adversary who sees what the participant's silo sends, the server and "
            "the other silos included",
            View.OTHER_SERVER: "the other server, the collector and all other participants "
            "together",
        }[self]
