"""The guarantee that signed terms state to participants, as a value for commands and pages."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tacit.assumptions import RangeProofs
from tacit.privacy import ApproximateDP, Arithmetic, Guarantee, PureDP
from tacit.privacy.guarantees import state_arithmetic
from tacit.rounding import no_less
from tacit.terms import REHEARSED, Terms


def stated_guarantee(terms: Terms, rounds: Guarantee | None = None) -> Guarantee | None:
    """The guarantee of terms; None for rehearsals, whose noise is not verified.

    That of `rounds` is about sums that nothing else reveals. Terms add what their aggregation
    costs, and that it withstands bounded adversaries only.

    Parameters
    ----------
    terms : Terms
        Numbers, view and assumptions.
    rounds : Guarantee, optional
        The guarantee of the experiment's mechanism: arithmetic and remarks are taken from it.

    Returns
    -------
    Guarantee or None
    """
    if terms.noise.distribution == REHEARSED:
        return None
    remarks = {one for one in (rounds.assumptions if rounds else ()) if not one.needed}
    proofs = {RangeProofs()} if terms.proofs else set()
    about: dict[str, Any] = {
        "view": terms.view,
        "participations": terms.guarantee.participations,
        "assumptions": terms.assumptions | remarks | proofs,
    }
    epsilon: Any = terms.guarantee.epsilon  # a fraction; rounded when printed
    delta = terms.guarantee.delta
    made: Guarantee = PureDP(epsilon, **about)
    if delta:
        made = ApproximateDP(_as_read(epsilon), _as_read(delta), **about)
    return state_arithmetic(made, rounds.arithmetic if rounds else Arithmetic.UNSTATED)


def _as_read(exact: Fraction) -> float:
    """The number whose shortest decimals, as readers see them, are not below a fraction."""
    near = float(exact)
    return near if Fraction(repr(near)) >= exact else no_less(exact)
