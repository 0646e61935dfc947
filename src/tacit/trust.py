"""Trust models, adversary views and neighbouring relations: enums with stable identifiers.

One `TrustModel` serves registry, command line, signed terms and service. A `View` names what the
adversary of a guarantee observes, `Neighbours` the relation between data sets. Values are stored
and signed; the rendered sentences are for readers and decide nothing.
"""

from __future__ import annotations

import math
from enum import Enum, StrEnum
from fractions import Fraction
from typing import Self

from tacit.errors import integer

SHUFFLE_SECURITY = 60
"""σ: shuffled additive shares reveal only their sum, up to a statistical distance of 2^-σ."""

MASKING_SECURITY = 40
"""Bits: a masked round reveals more than its sum with a probability of at most 2^-40."""


FEWEST_SPLIT = 19
"""Fewest honest participants for which splitting and mixing shares is proven."""


def split_shares(users: int, modulus: int, security: int = SHUFFLE_SECURITY) -> int:
    """k = ⌈2 + (2σ + log₂ m) / (log₂ n - log₂ e)⌉ shares of a number modulo m, for n >= 19 honest
    participants (Balle, Bell, Gascón & Nissim 2020).

    >>> split_shares(10_000, 2**32, security=40)
    12
    """
    integer(
        "users",
        users,
        at_least=FEWEST_SPLIT,
        remedy="split-and-mix is proven from 19 users on; use secure aggregation for fewer",
    )
    exponent = (2 * security + math.log2(modulus)) / (math.log2(users) - math.log2(math.e))
    return max(3, math.ceil(2 + exponent))


class TrustModel(StrEnum):
    """Which parties must be trusted, and with what.

    ========================  ======================================================================
    ``none``                  no privacy: a baseline
    ``central``               one server sees every answer and adds the noise
    ``local``                 only the participant's own device
    ``silo``                  the participant's silo
    ``shuffler``              a shuffler that does not collude with the analyzer
    ``secure-aggregation``    an aggregator that follows the protocol and releases nothing but sums
    ``two-servers``           one of two servers, either one; both, where devices add the noise
    ========================  ======================================================================

    Examples
    --------
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
        """Whether each participant adds a share of the noise, which suffices only in the sum."""
        return self in (TrustModel.SHUFFLER, TrustModel.SECURE_AGGREGATION)


MISSING, DISHONEST = Fraction(1, 5), Fraction(1, 10)
"""Fractions of a round that definitions tolerate by default where devices share the noise."""

DEPLOYABLE = (
    TrustModel.TWO_SERVERS,
    TrustModel.LOCAL,
    TrustModel.SHUFFLER,
    TrustModel.SECURE_AGGREGATION,
)
"""Trust models that the live service serves (`tacit.service.trust_models`)."""

DEPLOYABLE_WITH_CONTEXTS = (
    TrustModel.TWO_SERVERS,
    TrustModel.SECURE_AGGREGATION,
    TrustModel.LOCAL,
    TrustModel.SHUFFLER,
)
"""Trust models under which it serves contextual experiments; the last two small tables only."""


DEPLOYABLE_WITH_FITS = (TrustModel.TWO_SERVERS, TrustModel.SECURE_AGGREGATION)
"""Trust models under which participants try several options and report a fitted parameter."""


class _Worded(Enum):
    """Stable identifiers, each with the words that readers see."""

    _words: str

    def __new__(cls, identifier: str, words: str = "") -> Self:
        one = object.__new__(cls)
        one._value_, one._words = identifier, words
        return one

    def text(self) -> str:
        """The words for readers, as a part of a sentence."""
        return self._words


class Neighbours(_Worded):
    """The neighbouring relation of a guarantee: how two neighbouring data sets differ."""

    REPLACE_ONE = "replace-one", "replacing one participant's data"
    ADD_OR_REMOVE_ONE = "add-or-remove-one", "adding or removing one participant's data"


class View(_Worded):
    """The adversary's view: everything that the adversary of a guarantee observes of a run."""

    RELEASED_SUM = "opened-sum", "an adversary who sees the released sums"
    SERVER_OUTPUT = "server-output", "an adversary who sees what the trusted server publishes"
    MESSAGE = "message", "an adversary who sees the participant's own message"
    SHUFFLED = "shuffled", "an adversary who sees the shuffled messages"
    SILO = (
        "silo",
        "an adversary who sees what the participant's silo sends, the server and the other silos "
        "included",
    )
    OTHER_SERVER = (
        "other-server",
        "the other server, the collector and all other participants together",
    )
