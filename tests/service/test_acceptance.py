"""A device joins under no weaker trust model than its user accepted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tests.terms.examples import KEYS, masked, terms
from tests.terms.test_noise import local, shuffled

from tacit.client import Acceptance
from tacit.errors import Rejected
from tacit.signatures import public_key
from tacit.terms import Terms
from tacit.trust import TrustModel

INVITED: dict[str, Any] = {"admission": "invitation", "issuer": public_key(KEYS[3])}


@pytest.mark.parametrize(
    "made", [masked(), shuffled("binomial", Fraction(5)), shuffled("discrete-laplace", Fraction(1))]
)
def test_open_admission_with_shared_noise_needs_the_users_consent(made: Terms) -> None:
    with pytest.raises(Rejected, match="a coordinator could invent all other participants"):
        Acceptance().check(made)
    Acceptance(obedient_coordinator=True).check(made)


def test_invitations_checked_by_a_shuffler_need_no_consent() -> None:
    Acceptance().check(shuffled("binomial", Fraction(5), **INVITED))


def test_invitations_checked_by_the_coordinator_alone_need_consent() -> None:
    with pytest.raises(Rejected, match="a coordinator could invent all other participants"):
        Acceptance().check(masked(**INVITED))
    Acceptance(obedient_coordinator=True).check(masked(**INVITED))


def test_weaker_trust_models_are_rejected() -> None:
    careful = Acceptance((TrustModel.LOCAL,), obedient_coordinator=True)
    careful.check(local("randomized-response", Fraction(6)))
    for made in (terms(), masked(), shuffled("binomial", Fraction(5))):
        with pytest.raises(Rejected, match=f"trust is {made.trust.value}: must be one of local"):
            careful.check(made)
