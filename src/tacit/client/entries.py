"""What a ledger keeps, as values: where a person stands, a participation, and its receipt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tacit.aggregation import Place
from tacit.client.report_schedule import Attempt
from tacit.terms import Account, Pinned, Terms


@dataclass(frozen=True)
class Known:
    """Terms that were shown on this device, and where this person stands with them.

    `pinned` are the last in the line of those that are `named`. `agreed` is None where nothing of
    the line was ever agreed to; `reports_at` where the person is not asked about the option.
    """

    pinned: Pinned
    state: str
    agreed: bool | None
    checked: float
    account: Account
    pending: Fraction
    refused: int
    withdrawn: bool
    option: str | None
    until: float
    reports_at: float | None
    named: Terms


@dataclass(frozen=True, repr=False)
class Joining:
    """A place in a round that passed every check, as the ledger is to keep it."""

    identity: bytes
    terms: bytes
    option: str
    cost: Fraction
    announcement: bytes
    place: Place
    seed: bytes
    joined: float
    sends: float
    until: float
    levels: tuple[int, ...]
    invitation: str | None = None


@dataclass(frozen=True, repr=False)
class Post:
    """One server's part of a participation: the sealed half while it waits, and what came of it."""

    role: int
    address: str
    size: int
    digest: str
    sealed: bytes | None
    sent: float | None
    refused: str | None
    outcome: bytes | None
    attempts: Mapping[Attempt, tuple[int, float]]


@dataclass(frozen=True, repr=False)
class Running:
    """A participation that is not over."""

    identity: bytes
    pinned: Pinned
    announcement: bytes
    place: Place
    seed: bytes
    joined: float
    invitation: str | None
    levels: tuple[int, ...] | None
    posts: tuple[Post, ...]


@dataclass(frozen=True)
class ExperimentSpending:
    """What one experiment and its successors used of the privacy budget; `question` is None where
    another device took part in it.
    """

    terms: tuple[str, ...]
    question: str | None
    spent: Fraction
    taken: int
    epsilon: Fraction
    participations: int


@dataclass(frozen=True)
class PartySpending:
    """Experiments that share a party's key, and what they used together."""

    keys: tuple[str, ...]
    experiments: tuple[ExperimentSpending, ...]
    spent: Fraction

    def to_dict(self) -> dict[str, object]:
        """As an export has it."""
        terms = [list(one.terms) for one in self.experiments]
        return {"keys": list(self.keys), "experiments": terms, "spent": str(self.spent)}


@dataclass(frozen=True)
class Sent:
    """One half, as a receipt shows it."""

    address: str
    size: int
    digest: str
    attempts: int
    sent: float | None
    refused: str | None


@dataclass(frozen=True)
class Receipt:
    """What one participation was about, and exactly what left the device for whom.

    `outcome` is None while it runs; else opened, refused, unknown, missed, withdrawn or broken.
    """

    round: str
    question: str
    option: str
    joined: float
    reports_at: float
    cost: Fraction
    charged: bool
    outcome: str | None
    halves: tuple[Sent, ...]

    def in_words(self) -> list[str]:
        """Sentences for the person."""
        told = [f"For “{self.question}” you were given: {self.option}."]
        for half in self.halves:
            fate = "was taken" if half.sent else half.refused or "has not been taken yet"
            told.append(
                f"{half.size} sealed bytes, SHA-256 {half.digest}, went to {half.address} "
                f"({half.attempts} attempts): {fate}. Alone they say nothing about your answer."
            )
        if not self.halves:
            told.append("Nothing about your answer has left this device.")
        spent = f"{self.cost} of ε" if self.charged else "nothing"
        return [*told, f"It costs {spent}; the round is {self.outcome or 'not over yet'}."]
