"""Value types of a device and its ledger: terms, slots, participations, receipts and spending."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tacit.aggregation import ReportSlot
from tacit.client.exports import REPORT_SIZE
from tacit.client.report_schedule import Attempt
from tacit.rounding import no_less, spelt, up
from tacit.terms import Account, Pinned, Terms


@dataclass(frozen=True)
class TermsForConsent:
    """Terms to show to the participant who decides.

    Attributes
    ----------
    terms : Terms
        The verified terms.
    words : list of str
        The terms in plain sentences.
    agreed : bool
        Whether the participant agreed to them and has not withdrawn.

    Examples
    --------
    >>> from tacit.aggregation.rehearsal import rehearse
    >>> from tacit.terms.parts import Aggregation
    >>> from tacit.trust import TrustModel
    >>> terms = rehearse(TrustModel.TWO_SERVERS, Aggregation(2)).pinned.terms
    >>> TermsForConsent(terms, ["The question: Which?"], agreed=False).terms.options
    ('one', 'other')
    """

    terms: Terms
    words: list[str]
    agreed: bool


@dataclass(frozen=True)
class Slot:
    """Assignment of a participant.

    Attributes
    ----------
    option : str
        The assigned option.
    asked : bool
        Whether the device reports an answer.
    reports_at : float or None
        Time of the report in seconds since 1970, fixed at assignment; None if `asked` is false.
    terms : bytes
        Digest of the terms of the assignment.
    plays : tuple of str
        The options to try one after the other, where the device reports a parameter fitted to all
        answers; empty where it is one option.

    Examples
    --------
    >>> Slot("A", asked=False, reports_at=None, terms=bytes(32)).option
    'A'
    """

    option: str
    asked: bool
    reports_at: float | None
    terms: bytes
    plays: tuple[str, ...] = ()


@dataclass(frozen=True)
class DueTimes:
    """Times of the next report and the next outcome query; None if nothing is pending."""

    reports: float | None
    outcomes: float | None

    def next(self, *, outcomes: bool = True) -> float | None:
        """The earlier of both times; None if nothing is pending.

        Without `outcomes`, it is None once no report is pending.
        """
        if self.reports is None and not outcomes:
            return None
        times = [when for when in (self.reports, self.outcomes) if when is not None]
        return min(times, default=None)


class ParticipationOutcome(StrEnum):
    """How a participation ended; the value is in receipts and in the ledger."""

    RELEASED = "opened"
    ABORTED = "refused"
    UNKNOWN = "unknown"
    MISSED = "missed"
    WITHDRAWN = "withdrawn"
    STOPPED = "broken"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class KnownTerms:
    """Terms known on this device, and the participant's budget and assignment under them.

    `named` are the terms that were looked up, `pinned` the last in their line of successors.
    `agreed` is None if the participant agreed to no terms of the line. `reports_at` is None if no
    answer is reported for the assigned option.
    """

    pinned: Pinned
    state: str
    agreed: bool | None
    checked: float
    account: Account
    pending: Fraction
    aborted: int
    withdrawn: bool
    option: str | None
    until: float
    reports_at: float | None
    named: Terms


@dataclass(frozen=True, repr=False)
class AcceptedSlot:
    """An assigned slot that passed every check, to be stored in the ledger."""

    identity: bytes
    terms: bytes
    option: str
    cost: Fraction
    announcement: bytes
    slot: ReportSlot
    seed: bytes
    joined: float
    sends: float
    until: float
    levels: tuple[int, ...]
    invitation: str | None = None
    delta: Fraction = Fraction(0)

    @property
    def report(self) -> bytes:
        """Name of this participation in exports, from the device's own random seed.

        Two devices of one participant have different names in one round, whatever slots the
        coordinator assigns.
        """
        named = b"tacit report v1\x00" + self.identity + self.seed
        return hashlib.sha256(named).digest()[:REPORT_SIZE]


@dataclass(frozen=True, repr=False)
class Delivery:
    """One server's side of a participation: the report share while pending, and its result."""

    identity: bytes
    role: int
    address: str
    size: int
    digest: str
    encrypted: bytes | None
    sent: float | None
    rejected: str | None
    outcome: bytes | None
    attempts: Mapping[Attempt, tuple[int, float]]


@dataclass(frozen=True, repr=False)
class OpenParticipation:
    """A participation that is not over."""

    identity: bytes
    pinned: Pinned
    announcement: bytes
    slot: ReportSlot
    seed: bytes
    joined: float
    invitation: str | None
    levels: tuple[int, ...] | None
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True)
class ExperimentSpending:
    """Privacy budget spent on one experiment and its successors.

    Attributes
    ----------
    terms : tuple of str
        Digests of the terms and their successors, hexadecimal.
    question : str or None
        The question of the experiment; None if only another device took part in it.
    spent : Fraction
        ε of all charged and pending rounds.
    taken : int
        Number of charged and pending rounds.
    epsilon : Fraction
        Smallest ε ever shown for these terms.
    participations : int
        Fewest participations ever shown for these terms.

    Examples
    --------
    >>> one = ExperimentSpending(("7f",), "Which?", Fraction(1, 2), 1, Fraction(1), 2)
    >>> one.epsilon - one.spent
    Fraction(1, 2)
    """

    terms: tuple[str, ...]
    question: str | None
    spent: Fraction
    taken: int
    epsilon: Fraction
    participations: int


@dataclass(frozen=True)
class PartySpending:
    """Privacy budget spent on all experiments that share a server's key.

    Attributes
    ----------
    keys : tuple of str
        Long-term keys of the servers, hexadecimal.
    experiments : tuple of ExperimentSpending
        The experiments of these servers.
    spent : Fraction
        Sum of ε over the experiments.

    Examples
    --------
    >>> PartySpending(("ab",), (), Fraction(0)).to_dict()
    {'keys': ['ab'], 'experiments': [], 'spent': '0'}
    """

    keys: tuple[str, ...]
    experiments: tuple[ExperimentSpending, ...]
    spent: Fraction

    def to_dict(self) -> dict[str, object]:
        """The entry as plain data of an export."""
        terms = [list(one.terms) for one in self.experiments]
        return {"keys": list(self.keys), "experiments": terms, "spent": spelt(self.spent)}


@dataclass(frozen=True)
class SentShare:
    """Receipt of one report share.

    Attributes
    ----------
    address : str
        Address of the server.
    size : int
        Size of the encrypted share in bytes.
    digest : str
        SHA-256 of the encrypted share, hexadecimal.
    attempts : int
        Attempts to send it.
    sent : float or None
        Time of acceptance in seconds since 1970; None if the server has not accepted it.
    rejected : str or None
        Reason of a final rejection.

    Examples
    --------
    >>> share = SentShare("https://helper.example", 122, "1b" * 32, 1, None, None)
    >>> share.sent is None
    True
    """

    address: str
    size: int
    digest: str
    attempts: int
    sent: float | None
    rejected: str | None


ENDINGS: dict[str | None, str] = {
    None: "the round is not over yet",
    ParticipationOutcome.RELEASED: "the round's sum was released",
    ParticipationOutcome.ABORTED: "the round was aborted",
    ParticipationOutcome.UNKNOWN: "how the round ended is unknown",
    ParticipationOutcome.MISSED: "the deadline passed before anything was sent",
    ParticipationOutcome.WITHDRAWN: "you withdrew",
    ParticipationOutcome.STOPPED: "this device stopped it",
    ParticipationOutcome.ELSEWHERE: "another device of yours took part",
}
"""How a participation ended, for its participant."""


@dataclass(frozen=True)
class Receipt:
    """Receipt of one participation: what it was about, and exactly which bytes left the device.

    Attributes
    ----------
    round : str
        Identifier of the round, hexadecimal.
    question, option : str
        Question of the experiment and the assigned option.
    joined, reports_at : float
        Times of joining and of sending, in seconds since 1970.
    cost, delta : Fraction
        ε and δ of the round.
    charged : bool
        Whether the cost counts as spent.
    outcome : str or None
        None while the participation runs; else `opened` (the aggregate was released), `refused`
        (the round was aborted), `unknown`, `missed` (deadline passed before sending), `withdrawn`
        or `broken` (the device stopped it).
    shares : tuple of SentShare
        The report shares, one per server; empty before they are encrypted.

    Examples
    --------
    >>> receipt = Receipt("7f", "Which?", "A", 0.0, 9.0, Fraction(1), True, "opened", ())
    >>> receipt.charged, receipt.delta
    (True, Fraction(0, 1))
    """

    round: str
    question: str
    option: str
    joined: float
    reports_at: float
    cost: Fraction
    charged: bool
    outcome: str | None
    shares: tuple[SentShare, ...]
    delta: Fraction = Fraction(0)

    def in_words(self) -> list[str]:
        """Sentences to show to the participant.

        Examples
        --------
        >>> receipt = Receipt("7f", "Which?", "A", 0.0, 9.0, Fraction(1), False, "missed", ())
        >>> receipt.in_words()[1]
        'Nothing about your answer has left this device.'
        """
        sentences = [f"For “{self.question}” you were given: {self.option}."]
        for share in self.shares:
            fate = "was taken" if share.sent else share.rejected or "has not been taken yet"
            times = "once" if share.attempts == 1 else f"{share.attempts} times"
            alone = " Alone they say nothing about your answer." if len(self.shares) > 1 else ""
            sentences.append(
                f"{share.size} encrypted bytes, SHA-256 {share.digest}, went to {share.address}, "
                f"tried {times}: {fate}.{alone}"
            )
        if not self.shares:
            sentences.append("Nothing about your answer has left this device.")
        delta = f" and δ = {up(no_less(self.delta))}" if self.delta else ""
        both = f"ε = {self.cost}{delta}"
        spent = both if self.charged else "nothing"
        return [*sentences, f"It costs {spent}; {ENDINGS[self.outcome]}."]
