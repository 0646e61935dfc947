"""Assumptions of privacy guarantees, as frozen values with stable identifiers.

`stated.implies(needed)` holds if `needed` is true whenever `stated` is. Guarantees, stored
experiments and signed terms hold these values; `text()` renders a sentence for readers, which is
never stored and never compared.

Counts bound the participants who may be missing, curious or corrupted, not the honest ones, so they
stay valid as rounds grow. The module does not import NumPy: devices read assumptions, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, get_type_hints

from tacit.errors import TacitError, integer, probability
from tacit.rounding import exactly, percent, up
from tacit.trust import View


@dataclass(frozen=True)
class Assumption:
    """One assumption that a guarantee needs.

    A subclass sets `identifier` and `clause` (or overrides `text`), has fields that are integers,
    fractions, floats or string enums, and overrides `implies` where one of its values is stronger
    than another.
    """

    identifier: ClassVar[str]
    clause: ClassVar[str]
    needed: ClassVar[bool] = True  # False for remarks, which a guarantee does not depend on
    # True if it says more about the release instead of restricting when the guarantee holds
    descriptive: ClassVar[bool] = False
    _known: ClassVar[dict[str, type[Assumption]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "identifier" in cls.__dict__:
            if cls.identifier in Assumption._known:
                raise TacitError(f"the assumption {cls.identifier} is defined twice")
            Assumption._known[cls.identifier] = cls

    def implies(self, other: Assumption) -> bool:
        """Whether `other` is true whenever this assumption is."""
        return self == other

    def text(self) -> str:
        """The assumption as a clause of a sentence: `clause` with the values of the fields."""
        return self.clause.format_map(vars(self))

    def to_dict(self) -> dict[str, Any]:
        """Return identifier and parameters; fractions as strings such as "1/3"."""
        return {"id": self.identifier} | {
            field.name: _plain(getattr(self, field.name)) for field in fields(self)
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Assumption:
        """Restore the assumption that `to_dict` wrote.

        >>> Assumption.from_dict({"id": "complete-groups"})
        CompleteGroups()
        """
        kind = Assumption._known.get(str(data.get("id")))
        if kind is None:
            raise TacitError(
                f"assumption is {data.get('id')!r}: must be one of "
                f"{', '.join(sorted(Assumption._known))}"
            )
        wanted = {field.name for field in fields(kind)}
        given = set(data) - {"id"}
        if wanted != given:
            raise TacitError(
                f"assumption {kind.identifier} has {sorted(given)}; it needs {sorted(wanted)}"
            )
        hints = _hints(kind)
        return kind(**{name: _typed(hints[name], data[name]) for name in wanted})

    def sort_key(self) -> tuple[int, str]:
        """The order in which assumptions are listed: by kind, then by parameters."""
        return list(Assumption._known).index(self.identifier), repr(self)


@dataclass(frozen=True)
class Remark(Assumption):
    """Information for readers that restricts nothing: no stated assumption has to imply it.

    It is a claim about one release, unless it `warns` of something. `repeats` is True if the claim
    is as true of several such releases together: numbers are not.
    """

    needed = False
    descriptive = True
    warns: ClassVar[bool] = False
    repeats: ClassVar[bool] = False


class Scope(StrEnum):
    """The set within which participants are counted.

    `ROUND` is one `Round`: the batch of reports of one released sum. Batches of several options
    that run side by side are different rounds.
    """

    ROUND = "round"
    GROUP = "group"
    SILOS = "silos"


@dataclass(frozen=True)
class DishonestAtMost(Assumption):
    """At most max(count, ⌊fraction·n⌋) others of n are curious, corrupted or invented (Sybils).

    n counts the participants of a round or a group, or the silos. Noise of dishonest ones protects
    nobody.

    >>> DishonestAtMost(Scope.ROUND, 1).implies(DishonestAtMost(Scope.ROUND, 5))
    True
    >>> DishonestAtMost(Scope.ROUND, 1, Fraction(1, 10)).limit(64)
    6
    """

    identifier = "dishonest-at-most"
    scope: Scope
    count: int = 0
    fraction: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", Scope(self.scope))
        object.__setattr__(self, "count", integer("count", self.count, at_least=0))
        part = probability("fraction", self.fraction, zero=True)
        object.__setattr__(self, "fraction", part)

    def limit(self, members: int) -> int:
        """The largest number of dishonest participants among `members`; at least one is honest."""
        return min(max(self.count, int(self.fraction * members)), max(0, members - 1))

    def implies(self, other: Assumption) -> bool:
        """Fewer dishonest ones in the same scope."""
        return (
            isinstance(other, DishonestAtMost)
            and self.scope is other.scope
            and self.count <= other.count
            and self.fraction <= other.fraction
        )

    def text(self) -> str:
        """Render as a clause: at most 1 participant of a batch is curious, …."""
        if self.scope is Scope.SILOS:
            if not self.count and not self.fraction:
                return "every silo adds its noise, and no silo is curious"
            one = self.count == 1 and not self.fraction
            act = "withholds noise or colludes" if one else "withhold noise or collude"
            return f"at most {self._counted('other silo', 'other silos')} {act} with the server"
        where = "a group" if self.scope is Scope.GROUP else "a batch"
        if not self.count and not self.fraction:
            return f"no participant of {where} is curious, corrupted or invented"
        many = self._counted(f"participant of {where}", f"participants of {where}")
        one = self.count == 1 and not self.fraction
        return f"at most {many} {'is' if one else 'are'} curious, corrupted or invented"

    def _counted(self, singular: str, plural: str) -> str:
        counted = f"{self.count:,} {singular if self.count == 1 else plural}"
        if not self.fraction:
            return counted
        part = f"{percent(self.fraction)} of the {plural}"
        return f"{part} ({self.count:,} if that is more)" if self.count else part


@dataclass(frozen=True)
class ReleasedOnlyAbove(Assumption):
    """A batch is released only if at least ⌈fraction·n⌉ of its n reports arrive."""

    identifier = "released-only-above"
    fraction: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", probability("fraction", self.fraction, one=True))

    def implies(self, other: Assumption) -> bool:
        """At least the same fraction of reports."""
        return isinstance(other, ReleasedOnlyAbove) and self.fraction >= other.fraction

    def text(self) -> str:
        """Render as a clause, with the fraction as a percentage, rounded up: no fewer reports."""
        if self.fraction == 1:
            return "a batch is released only if all of its reports arrive"
        part = percent(self.fraction, ROUND_CEILING)
        return f"a batch is released only if at least {part} of its reports arrive"


@dataclass(frozen=True)
class CompleteGroups(Assumption):
    """A group is released only if every member reports."""

    identifier = "complete-groups"
    clause = "a group is released only if all of its members report"


@dataclass(frozen=True)
class HonestServers(Assumption):
    """At least `count` of `of` servers follow the protocol and keep their secrets."""

    identifier = "honest-servers"
    count: int = 1
    of: int = 2

    def __post_init__(self) -> None:
        if not 1 <= integer("count", self.count, 1) <= integer("of", self.of, 1):
            raise TacitError(f"{self.count} of {self.of} servers cannot be honest: count <= of")

    def implies(self, other: Assumption) -> bool:
        """At least as many honest servers, of equally many."""
        return (
            isinstance(other, HonestServers) and self.of == other.of and self.count >= other.count
        )

    def text(self) -> str:
        """Render as a clause of a sentence."""
        if self.count == self.of:
            return f"all {self.of} servers are honest"
        return f"at least {self.count} of the {self.of} servers is honest, whichever"


@dataclass(frozen=True)
class SemiHonestServer(Assumption):
    """The aggregator follows the protocol: it releases the sum of a round and nothing else."""

    identifier = "semi-honest-server"
    clause = "the aggregator follows the protocol and releases nothing but the sum"


@dataclass(frozen=True)
class TrustedServer(Assumption):
    """The trusted server of the central model sees every answer and adds the noise."""

    identifier = "trusted-server"
    clause = "the server is trusted with every answer and adds the noise"


@dataclass(frozen=True)
class TrustedSilo(Assumption):
    """The silos that a participant visits see the participant's records and collude with nobody."""

    identifier = "trusted-silo"
    clause = "the silos that a participant visits are trusted with the participant's data"


@dataclass(frozen=True)
class NonColludingShuffler(Assumption):
    """The shuffler permutes messages and does not collude with the analyzer."""

    identifier = "non-colluding-shuffler"
    clause = "the shuffler permutes the messages and does not collude with the analyzer"


@dataclass(frozen=True)
class HonestDevice(Assumption):
    """The participant's device runs honest code; in the local model no other party is trusted."""

    identifier = "honest-device"
    clause = "no server is trusted, only the code on the participant's own device"


@dataclass(frozen=True)
class PinnedKeys(Assumption):
    """Devices get the servers' keys and their own code from a source that is neither server."""

    identifier = "pinned-keys"
    clause = (
        "devices have both servers' keys pinned from a source that is neither server and run "
        "code (page included) served by neither; a server that supplies keys or code must be "
        "the honest one"
    )


@dataclass(frozen=True)
class BoundedAdversary(Assumption):
    """The guarantee is computational: the adversary cannot break the cryptography."""

    identifier = "bounded-adversary"
    clause = "the adversary is computationally bounded"


@dataclass(frozen=True)
class DistinctRounds(Assumption):
    """A participant's participations fall into different rounds, so that their losses compose as
    those of independent releases.
    """

    identifier = "distinct-rounds"
    clause = "all participations of a participant are in different rounds"


@dataclass(frozen=True)
class MetricsPerParticipation(Assumption):
    """Each participation reports at most `count` numbers, which the guarantee covers together."""

    identifier = "metrics-per-participation"
    clause = "a participation reports at most {count} metrics, all of them covered together"
    needed = False  # it says how much is covered: `Guarantee.metrics` compares it
    count: int

    def __post_init__(self) -> None:
        integer("count", self.count, at_least=1)

    def implies(self, other: Assumption) -> bool:
        """At most as many metrics."""
        return isinstance(other, MetricsPerParticipation) and self.count <= other.count


class Spread(StrEnum):
    """How one participant's visits may be spread over batches."""

    PER_BATCH = "per-batch"
    ANYWHERE = "anywhere"


@dataclass(frozen=True)
class VisitsAtMost(Assumption):
    """One participant visits silos in at most `batches` batches, up to `visits` times in each.

    Spread `ANYWHERE`, `visits` bounds the total instead.
    """

    identifier = "visits-at-most"
    batches: int = 1
    visits: int = 1
    spread: Spread = Spread.PER_BATCH

    def __post_init__(self) -> None:
        integer("batches", self.batches, at_least=1)
        integer("visits", self.visits, at_least=1)
        if self.spread is Spread.ANYWHERE:  # `batches` is unused: normalize it
            object.__setattr__(self, "batches", 1)

    def implies(self, other: Assumption) -> bool:
        """At most as many visits, spread no further."""
        if not isinstance(other, VisitsAtMost):
            return False
        if other.spread is Spread.ANYWHERE:
            total = self.visits * (1 if self.spread is Spread.ANYWHERE else self.batches)
            return total <= other.visits
        return (
            self.spread is Spread.PER_BATCH
            and self.batches <= other.batches
            and self.visits <= other.visits
        )

    def text(self) -> str:
        """Render as a clause of a sentence."""
        if self.spread is Spread.ANYWHERE:
            return f"a participant comes up to {self.visits} times, to any silos in any batches"
        batches = "one batch" if self.batches == 1 else f"up to {self.batches} batches"
        each = "once" if self.visits == 1 else f"up to {self.visits} times"
        return f"a participant comes in {batches}, {each} in each, to any silos"


class Secret(StrEnum):
    """The part of a participant's data in which neighbours differ."""

    ONE_REWARD = "one-reward"
    AVERAGE_REWARDS = "average-rewards"
    FITTED_PARAMETER = "fitted-parameter"
    CONTEXT_AND_REWARDS = "context-and-rewards"


@dataclass(frozen=True)
class Protects(Assumption):
    """The secret in which neighbouring data sets differ."""

    identifier = "protects"
    descriptive = True
    secret: Secret

    def text(self) -> str:
        """Render as a clause of a sentence."""
        return {
            Secret.ONE_REWARD: "the protected secret is a participant's one reward",
            Secret.AVERAGE_REWARDS: "the protected secret is a participant's average reward for "
            "every played option, together",
            Secret.FITTED_PARAMETER: "the protected secret is all that a participant observed: "
            "the parameter fitted to it, and the data it was fitted to",
            Secret.CONTEXT_AND_REWARDS: "the protected secret is a participant's context, the "
            "rewards that every option would bring, and the device's random choices",
        }[self.secret]


@dataclass(frozen=True)
class PublicMembership(Assumption):
    """Who takes part in which round, and the rounds' sizes, are public and depend on no data."""

    identifier = "public-membership"
    clause = "who takes part in which round, and the size of rounds, does not depend on data"


@dataclass(frozen=True)
class PrivateMessages(Assumption):
    """Each message by itself is (epsilon, delta)-DP."""

    identifier = "private-messages"
    descriptive = True
    epsilon: float
    delta: float = 0.0

    def text(self) -> str:
        """Render as a clause of a sentence."""
        return f"each message alone is ({self.epsilon!r}, {self.delta or 0!r})-DP to the same view"


@dataclass(frozen=True)
class LocallyPrivateMessages(Assumption):
    """Each message is epsilon-DP to an adversary who sees it alone, before it is shuffled."""

    identifier = "locally-private-messages"
    descriptive = True
    epsilon: float
    clause = "each message is ({epsilon!r}, 0)-DP to an adversary who sees it unshuffled"


class Method(StrEnum):
    """The composition method for several participations."""

    GAUSSIAN = "gaussian-comparison"
    RENYI = "renyi"
    LOSS = "loss-distributions"
    ADDED = "added"
    ADVANCED = "advanced-composition"
    CONCENTRATED = "concentrated"


@dataclass(frozen=True)
class Accounting(Assumption):
    """All rounds of one participant are composed by the same method (Rényi: at the same order)."""

    identifier = "accounting"
    method: Method
    participations: int
    order: Fraction = Fraction(0)  # of a Rényi divergence

    def text(self) -> str:
        """Render as a clause of a sentence."""
        count = self.participations
        return {
            Method.GAUSSIAN: f"accounted for by {count} comparisons with Gaussian noise, composed "
            "exactly (Dong, Roth & Su 2022)",
            Method.RENYI: f"accounted for by {count} Rényi divergences"
            + (f" of order {exactly(float(self.order))}" if self.order else "")
            + " added up",
            Method.LOSS: f"accounted for by {count} privacy loss distributions, composed exactly",
            Method.ADDED: f"accounted for by {count} guarantees added up",
            Method.ADVANCED: f"accounted for by advanced composition of {count} guarantees",
            Method.CONCENTRATED: f"accounted for by {count} concentrated guarantees added up",
        }[self.method]


@dataclass(frozen=True)
class JointPrivacy(Assumption):
    """Joint DP: a participant's own recommendations are not part of the adversary's view."""

    identifier = "joint-privacy"
    clause = (
        "joint privacy: it bounds what all other participants together learn; what a "
        "participant is given may depend on that participant's own features"
    )


class Derivation(StrEnum):
    """The argument that derives a guarantee of prefix sums."""

    EXACT_JOINT = "exact-joint-accounting"
    STRICTEST = "strictest-budget"
    OWN_NOISE = "own-noise"
    AMPLIFIED = "amplified-by-shuffling"


@dataclass(frozen=True)
class DerivedBy(Remark):
    """How a guarantee over many releases was derived."""

    identifier = "derived-by"
    derivation: Derivation
    releases: int

    def text(self) -> str:
        """Render as a clause of a sentence."""
        how = {
            Derivation.EXACT_JOINT: "exact joint accounting of all releases",
            Derivation.STRICTEST: "exact joint accounting of all releases; noise is shared, so the "
            "strictest silo's budget sets it for all",
            Derivation.OWN_NOISE: "each silo's own noise, accounted for exactly; amplification "
            "proves nothing more here",
            Derivation.AMPLIFIED: "amplification by shuffling (ZC24 Lemma F.2), advanced "
            "composition",
        }[self.derivation]
        return f"for all {self.releases} releases together; {how}"


@dataclass(frozen=True)
class OwnRecords(Remark):
    """Silos act on raw data within a batch, so one visit may change up to `records` recorded pairs.

    Between streams that differ only in the participant's own pairs, the release is (epsilon,
    delta)-DP.
    """

    identifier = "own-records"
    records: int
    epsilon: float
    delta: float

    def text(self) -> str:
        """Render as a clause of a sentence."""
        return (
            f"silos act on raw data within a batch, so a visit may move up to {self.records} "
            "recorded pairs (x, y): between streams that differ in the participant's own pairs "
            f"only it is ({up(self.epsilon)}, {up(self.delta)})-DP, which lazy silos give to the "
            "participant"
        )


@dataclass(frozen=True)
class RangeProofs(Remark):
    """Reports out of range are dropped without being seen, if both servers are honest."""

    identifier = "range-proofs"
    repeats = True
    clause = (
        "a report out of range is dropped, unseen, as long as both servers are honest: a "
        "malicious server can spoil the sum, but not the privacy"
    )


@dataclass(frozen=True)
class TowardsOutsiders(Remark):
    """Adversaries who control neither server see both servers' noise: (epsilon, delta)-DP."""

    identifier = "towards-outsiders"
    epsilon: float
    delta: float

    def text(self) -> str:
        """Render as a clause of a sentence."""
        return (
            f"towards adversaries outside of both servers it is ({up(self.epsilon)}, "
            f"{up(self.delta)})-DP, because both servers' noise hides a participant from them"
        )


@dataclass(frozen=True)
class AskedFor(Remark):
    """The requested ε and δ, where the noise printed in a paper gives others."""

    identifier = "asked-for"
    epsilon: float
    delta: float = 0.0

    def text(self) -> str:
        """Render as a clause: asked for: (1, 1e-06)-DP."""
        return f"asked for: ({exactly(self.epsilon)}, {exactly(self.delta)})-DP"


@dataclass(frozen=True)
class Declared(Remark):
    """A protocol from outside the package declares its own guarantee.

    `draws` samples of its randomizer were compared with its stated distribution, in rounds of
    `participants`; 0 if unchecked.
    """

    identifier = "declared-by-author"
    warns = True
    draws: int = 0
    participants: int = 0

    def text(self) -> str:
        """Render as a clause of a sentence."""
        if not self.draws:
            return "declared by its author, not checked"
        digits = {"0": "⁰", "1": "¹", "2": "²", "3": "³", "4": "⁴", "5": "⁵", "6": "⁶", "7": "⁷"}
        power = len(str(self.draws)) - 1
        exact = self.draws == 10**power and str(power) in digits
        times = f"10{digits[str(power)]}" if exact else f"{self.draws:,}"
        return (
            "declared by its author; recomputed from its stated distribution; randomizer sampled "
            f"{times} times, in rounds of {self.participants:,}"
        )


@dataclass(frozen=True)
class Poisoned(Remark):
    """In this run more participants are corrupted than the guarantee assumes."""

    identifier = "poisoned"
    warns = True
    fraction: Fraction

    def text(self) -> str:
        """Render as a clause of a sentence."""
        part = f"{float(self.fraction):.4g}"
        return (
            f"{part} of all participants are corrupted here, more than is assumed: allow for them "
            f"with corrupt {part}"
        )


class Source(StrEnum):
    """Origin of the participants of a simulated run."""

    CELL = "table-cell"
    ROW = "log-row"
    RESAMPLED = "resampled"


@dataclass(frozen=True)
class ParticipantsFrom(Remark):
    """Participants are recorded; each occurs at most `occurrences` times, 0 for no limit."""

    identifier = "participants-from"
    warns = True
    source: Source
    occurrences: int = 1

    def text(self) -> str:
        """Render as a clause of a sentence."""
        if self.source is Source.RESAMPLED:
            return (
                "recorded participants are drawn again and again, so nothing is guaranteed to any "
                "of them"
            )
        if self.occurrences > 1:
            return (
                f"a recorded participant occurs up to {self.occurrences} times, and takes part as "
                "often"
            )
        where = "row of the log" if self.source is Source.ROW else "cell of the table"
        return f"each recorded participant takes part at most once (one per {where})"


TRUST_OF_VIEW: dict[View, Assumption] = {
    View.RELEASED_SUM: SemiHonestServer(),
    View.SERVER_OUTPUT: TrustedServer(),
    View.MESSAGE: HonestDevice(),
    View.SHUFFLED: NonColludingShuffler(),
    View.SILO: TrustedSilo(),
    View.OTHER_SERVER: HonestServers(1, of=2),
}
"""The trust assumption that a guarantee about each view needs."""


def uncovered(needed: Iterable[Assumption], stated: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """Return the needed assumptions, without remarks, that no stated assumption implies.

    >>> uncovered([CompleteGroups()], [])
    (CompleteGroups(),)
    """
    given = tuple(stated)
    left = (one for one in needed if one.needed and not any(_implied(has, one) for has in given))
    return tuple(sorted(left, key=Assumption.sort_key))


def together(*sets: Iterable[Assumption]) -> frozenset[Assumption]:
    """Return the union of these sets, without assumptions that another one implies.

    >>> sorted(a.count for a in together([DishonestAtMost(Scope.ROUND, n) for n in (1, 2)]))
    [1]
    """
    everything = sorted({one for part in sets for one in part}, key=Assumption.sort_key)
    kept: list[Assumption] = []
    for one in everything:  # of two that imply each other, keep the first
        if not any(_implied(other, one) for other in kept):
            kept = [other for other in kept if not _implied(one, other)] + [one]
    return frozenset(kept)


def of_several(assumptions: Iterable[Assumption]) -> frozenset[Assumption]:
    """Return these without claims about one release that are not true of several together.

    >>> of_several([CompleteGroups(), AskedFor(1.0)])
    frozenset({CompleteGroups()})
    """
    return frozenset(
        one for one in assumptions if not isinstance(one, Remark) or one.warns or one.repeats
    )


def of_each(sets: Iterable[frozenset[Assumption]]) -> frozenset[Assumption]:
    """Return all assumptions and warnings of these guarantees, but only claims of every one."""
    given = list(sets)
    shared = frozenset.intersection(*given)
    return frozenset(
        one for one in together(*given) if not isinstance(one, Remark) or one.warns or one in shared
    )


def _implied(stated: Assumption, needed: Assumption) -> bool:
    """Whether one assumption implies another.

    A value of a class from outside tacit implies, and is implied by, only values of the same class
    with equal fields, whatever that class says.
    """
    if _is_own(stated) and _is_own(needed):
        return stated.implies(needed)
    return type(stated) is type(needed) and vars(stated) == vars(needed)


def _is_own(assumption: Assumption) -> bool:
    """Whether the class of an assumption is one of this module."""
    return globals().get(type(assumption).__name__) is type(assumption)


def _plain(value: object) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    return str(value) if isinstance(value, Fraction) else value


# annotations are texts, and evaluating them is slow
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _typed(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError, ZeroDivisionError) as problem:
        raise TacitError(f"{value!r} is not a {kind.__name__}: {problem}") from None
