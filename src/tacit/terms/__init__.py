"""Signed terms of experiments, and the checks that devices and parties derive from them.

`Terms` is the document. `Pinned` are terms whose parties' keys a device has from a trusted source.
`Offer` holds the fields of a round description that concern a participant, and
`Pinned.check(offer)` rejects rounds weaker than the terms. `Account` adds up the spent privacy
budget. Nothing here imports NumPy.
"""

from tacit.terms.account import Account
from tacit.terms.canonical import canonical, parsed
from tacit.terms.context import (
    BY_POLICY,
    ContextField,
    ContextTerms,
    CornerTerms,
    FittedTerms,
    MomentTerms,
    NumberField,
)
from tacit.terms.document import (
    DIGEST_SIZE,
    LONGEST_GRACE,
    MOST_NO_SHOW,
    Terms,
    check_live,
)
from tacit.terms.models import (
    HPKE_SUITES,
    KINDS,
    LEADING,
    MASKING_SUITE,
    NOISES,
    POST_QUANTUM_SUITE,
    ROLES,
    VIEWS,
)
from tacit.terms.parts import (
    REHEARSED,
    Aggregation,
    Answer,
    Noise,
    Party,
    StatedGuarantee,
    check_text,
)
from tacit.terms.pinned import (
    AggregatedTerms,
    Offer,
    Pinned,
    PinnedTerms,
    approve_successor,
    check_party_key,
    check_successor,
    cosign,
    in_order,
)
from tacit.terms.words import OBEDIENT, in_words

__all__ = [
    "BY_POLICY",
    "DIGEST_SIZE",
    "HPKE_SUITES",
    "KINDS",
    "LEADING",
    "LONGEST_GRACE",
    "MASKING_SUITE",
    "MOST_NO_SHOW",
    "NOISES",
    "OBEDIENT",
    "POST_QUANTUM_SUITE",
    "REHEARSED",
    "ROLES",
    "VIEWS",
    "Account",
    "AggregatedTerms",
    "Aggregation",
    "Answer",
    "ContextField",
    "ContextTerms",
    "CornerTerms",
    "FittedTerms",
    "MomentTerms",
    "Noise",
    "NumberField",
    "Offer",
    "Party",
    "Pinned",
    "PinnedTerms",
    "StatedGuarantee",
    "Terms",
    "approve_successor",
    "canonical",
    "check_live",
    "check_party_key",
    "check_successor",
    "check_text",
    "cosign",
    "in_order",
    "in_words",
    "parsed",
]
