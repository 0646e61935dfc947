"""What people are promised, in one spelling, and what a device derives from it.

Light: nothing here needs NumPy. `Terms` is the document, `Pinned` are terms whose parties' keys a
device has from where it trusts them, `Offer` is what a round says that concerns a person, and
`Pinned.check(offer)` refuses what is weaker than promised. `Account` adds up what was spent.
"""

from tacit.terms.account import Account
from tacit.terms.document import (
    CLAIM,
    DIGEST_SIZE,
    ROLES,
    VIEWS,
    Answer,
    Middle,
    Noise,
    Party,
    Promise,
    Terms,
    canonical,
    check_text,
    parsed,
)
from tacit.terms.pinned import Offer, Pinned, approve_successor, check_successor, cosign
from tacit.terms.words import in_words

__all__ = [
    "CLAIM",
    "DIGEST_SIZE",
    "ROLES",
    "VIEWS",
    "Account",
    "Answer",
    "Middle",
    "Noise",
    "Offer",
    "Party",
    "Pinned",
    "Promise",
    "Terms",
    "approve_successor",
    "canonical",
    "check_successor",
    "check_text",
    "cosign",
    "in_words",
    "parsed",
]
