"""Signed terms of a federation: what is learned, from whom, under which guarantee and schedule.

Terms are one canonical JSON document (`tacit.terms.canonical`). The coordinator and every silo sign
it, and every message names its digest. Silos' keys are pinned here and nowhere else: an engine's
identities decide nothing. `PinnedFederation` checks announced rounds against the terms, as
`tacit.terms.Pinned` does for experiments with participants.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.announcements import SharedNoise
from tacit.aggregation.graph import Neighbourhood
from tacit.algorithms.registry import lookup
from tacit.algorithms.silos_problem import LARGEST_BUDGET, SilosProblem
from tacit.assumptions import BoundedAdversary, PublicMembership
from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.errors import Rejected, TacitError, did_you_mean, integer, require
from tacit.experiment import Experiment
from tacit.privacy import ApproximateDP
from tacit.privacy.silos import SilosDP
from tacit.protocols.mechanism import Releases
from tacit.protocols.prefix_messages import MODULUS_BITS
from tacit.protocols.prefix_sums import PrefixSums
from tacit.rounding import no_more
from tacit.signatures import KEY_SIZE, Signed, fingerprint, public_key, sign, verify
from tacit.silos.context import ContextSpec, as_double, finite_number
from tacit.terms import MASKING_SUITE, Aggregation, Offer, canonical, check_text, parsed
from tacit.terms.canonical import from_plain, invalid_terms, to_plain
from tacit.trust import TrustModel

VERSION = 1
TRUST = {
    "secagg-fedlinucb": TrustModel.SECURE_AGGREGATION,
    "ldp-fedlinucb": TrustModel.SILO,
    "fedlinucb": TrustModel.NONE,
}
"""The trust model of each algorithm that a federation runs."""

NOT_RUN = {
    "sdp-fedlinucb-vec": "a message of sdp-fedlinucb-vec has one bit per level and per noise bit "
    "of every number, and a shuffler moves each of them: 178 s for 3 silos of 2 features; use "
    "secagg-fedlinucb"
}
"""Why a federation does not run an algorithm that simulations have."""


@dataclass(frozen=True)
class SiloParty:
    """A silo of a federation: its name, its long-term Ed25519 key and its budget (ε, δ)."""

    name: str
    key: bytes
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        check_text("name of a silo", self.name)
        size = len(self.key)
        require(size == KEY_SIZE, f"size of the key of {self.name}", size, f"{KEY_SIZE} bytes")
        rule = f"at most {LARGEST_BUDGET:,}, and > 0. For no privacy use fedlinucb, in tests only"
        within = 0 < self.epsilon <= LARGEST_BUDGET
        require(within, f"epsilon of {self.name}", self.epsilon, rule)
        require(0 < self.delta < 1, f"delta of {self.name}", self.delta, "above 0 and below 1")


@dataclass(frozen=True)
class RewardSpec:
    """How an outcome becomes a reward in [0, 1]: linearly from `worst` to `best`, then clipped.

    >>> RewardSpec("days in hospital", worst=Fraction(30), best=Fraction(0)).reward(6)
    0.8
    """

    meaning: str
    worst: Fraction = Fraction(0)
    best: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        check_text("meaning of the outcome", self.meaning)
        width = abs(as_double(self.best) - as_double(self.worst))
        rule = f"another than the best, {self.best}, and both within the range of doubles"
        require(0 < width < math.inf, "worst outcome", self.worst, rule)

    def reward(self, outcome: float) -> float:
        """The reward of an outcome."""
        number = finite_number("outcome", outcome)
        worst, best = float(self.worst), float(self.best)
        return min(max((number - worst) / (best - worst), 0.0), 1.0)

    def outside(self, outcome: float) -> bool:
        """Whether an outcome is beyond the declared bounds, so that its reward is clipped."""
        return not min(self.worst, self.best) <= outcome <= max(self.worst, self.best)


@dataclass(frozen=True)
class SyncSchedule:
    """When silos synchronise, fixed beforehand, so that the time of a report leaks nothing.

    Parameters
    ----------
    horizon, sync, kind
        Records per silo, and the batches between synchronisations: "geometric", or "fixed" with
        `sync` records each. A batch is the capacity of a synchronisation: later records wait.
    starts, pace
        Seconds since 1970, and milliseconds per record: synchronisation k is due when so many
        milliseconds as all batches up to it have passed. A pace of 0 leaves the time to the
        coordinator, who sees released sums only.
    patience
        Seconds that all wait for an absent silo before the federation ends.
    """

    horizon: int
    sync: int = 25
    kind: str = "geometric"
    starts: int = 0
    pace: int = 0
    patience: int = 86_400


@dataclass(frozen=True)
class FederationTerms:
    """The terms of a federation; the constructor rejects contradictions.

    Parameters
    ----------
    question, algorithm : str
        What is to be learned, in words, and by what: "secagg-fedlinucb", "ldp-fedlinucb" or,
        without privacy and for tests, "fedlinucb".
    context, reward
        The declared contexts and actions, and how an outcome becomes a reward.
    schedule : SyncSchedule
        When silos synchronise, and with how many records.
    coordinator : bytes
        The coordinator's long-term Ed25519 key.
    silos : tuple of SiloParty
        The silos, in the order of their numbers.
    mode, norm
        Confidence of decisions, and a public bound on the parameter's norm: as in `SilosProblem`.
    missing : int
        Silos that may be missing from a released row. 0 is the rule *wait*: every row needs every
        silo. A silo that has masked its message must stay, or come back, until all have signed the
        survivors: a row has one set of them.
    corrupted : int
        Silos that may collude with the coordinator: their noise does not count.

    Raises
    ------
    TacitError
        If a field is invalid or contradicts another.
    """

    question: str
    algorithm: str
    context: ContextSpec
    reward: RewardSpec
    schedule: SyncSchedule
    coordinator: bytes
    silos: tuple[SiloParty, ...]
    mode: str = "calibrated"
    norm: Fraction = Fraction(2)
    missing: int = 0
    corrupted: int = 1

    def __post_init__(self) -> None:
        check_text("question", self.question)
        if self.algorithm in NOT_RUN:
            raise TacitError(f"algorithm is {self.algorithm}: {NOT_RUN[self.algorithm]}")
        rule = f"one of {', '.join(TRUST)}{did_you_mean(self.algorithm, TRUST)}"
        require(self.algorithm in TRUST, "algorithm", self.algorithm, rule)
        require(len(self.coordinator) == KEY_SIZE, "coordinator's key", "missing", "32 bytes")
        names, keys = [s.name for s in self.silos], [s.key for s in self.silos]
        fewest = 3 if self.masked else 2
        rule = (
            f"{fewest} or more with {self.algorithm}: of two masked numbers one reveals "
            "the other. Give another --card"
        )
        require(len(self.silos) >= fewest, "number of silos", len(self.silos), rule)
        require(len(set(names)) == len(names), "silos", ", ".join(names), "distinct names")
        parties = {self.coordinator, *keys}
        require(len(parties) == len(keys) + 1, "a key", "used twice", "of one party only")
        require(self.corrupted == 1, "corrupted", self.corrupted, "1, as the noise is shared")
        rule = "above 0 and at most 1,000"
        require(0 < self.norm <= 1000, "norm", self.norm, rule)
        self._check_missing()
        limit = 1 << 15  # larger steps are evaluations
        steps = len(self.batches)
        require(steps < limit, "number of synchronisations", steps, f"below {limit}")

    def _check_missing(self) -> None:
        integer("missing", self.missing, at_least=0)
        if not self.missing:
            return
        rule = "0 with this algorithm: only shared noise of the tree tolerates missing silos"
        require(self.masked, "missing", self.missing, rule)
        most = largest_missing(len(self.silos))
        rule = f"at most {most} of {len(self.silos)} silos: no neighbourhood tolerates more"
        require(self.missing <= most, "missing", self.missing, rule)

    def __hash__(self) -> int:
        return hash(self.digest)

    def encode(self) -> bytes:
        """Return the canonical encoding."""
        return canonical({**to_plain(self), "version": VERSION})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding: identifies the federation."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, data: bytes) -> FederationTerms:
        """Decode and check terms; reject other documents and contradictions."""
        document = parsed(data)
        version = document.get("version") if isinstance(document, Mapping) else None
        require(version == VERSION, "version of the terms", repr(version), f"{VERSION}", Rejected)
        with invalid_terms():
            terms: FederationTerms = from_plain(cls, document)
        if terms.encode() != data:
            raise Rejected("terms have fields that this version does not define: update the older")
        return terms

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that sign rounds: the coordinator's."""
        return (self.coordinator,)

    @property
    def private(self) -> bool:
        """Whether anything protects the records."""
        return TRUST[self.algorithm] is not TrustModel.NONE

    @property
    def masked(self) -> bool:
        """Whether silos share the noise and mask what they send (secure aggregation)."""
        return TRUST[self.algorithm] is TrustModel.SECURE_AGGREGATION

    @property
    def aggregation(self) -> Aggregation:
        """The numbers of silos of a round that may be missing or corrupted."""
        count = len(self.silos)
        return Aggregation(
            count - self.missing, Fraction(self.missing, count), min(self.corrupted, count - 1)
        )

    @property
    def neighbourhood(self) -> Neighbourhood:
        """Every silo is a neighbour of every other; all that may not be missing are needed."""
        return Neighbourhood(len(self.silos) - 1, len(self.silos) - 1 - self.missing)

    @cached_property
    def problem(self) -> SilosProblem:
        """The problem of the algorithm."""
        schedule = self.schedule
        given: dict[str, Any] = {
            "silos": len(self.silos),
            "dimension": self.context.dimension,
            "horizon": schedule.horizon,
            "sync": schedule.sync,
        }
        if self.private:
            pairs = tuple((no_more(s.epsilon), no_more(s.delta)) for s in self.silos)
            same = len(set(pairs)) == 1
            given |= {"epsilon": pairs[0][0], "delta": pairs[0][1]} if same else {"budgets": pairs}
        if self.masked:
            given |= {"mode": self.mode, "schedule": schedule.kind, "missing": self.missing}
            given["norm"] = float(self.norm)
            return SilosProblem.of(**given).changed(constant=self.context.constant)
        return SilosProblem.of(**given)

    def experiment(self) -> Experiment:
        """A fresh experiment under these terms; every party builds the same one."""
        return lookup(self.algorithm).build(self.problem)

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """The capacity of every synchronisation, in records per silo."""
        if self.masked:
            return self.problem.batches
        return (self.problem.sync,) * self.problem.steps

    def due(self, step: int) -> float:
        """When a synchronisation is due, in seconds since 1970."""
        return self.schedule.starts + self.schedule.pace * sum(self.batches[: step + 1]) / 1000

    def number(self, silo: str) -> int:
        """The number of a silo, given by name."""
        names = [one.name for one in self.silos]
        require(silo in names, "silo", repr(silo), f"one of {', '.join(names)}")
        return names.index(silo)


def largest_missing(silos: int) -> int:
    """The most silos that may be missing: more than half of the neighbours must stay.

    >>> largest_missing(3), largest_missing(4), largest_missing(6)
    (0, 1, 2)
    """
    return max(0, (silos - 2) // 2)


@dataclass(frozen=True)
class FederationSums:
    """The private sums of a federation as every party derives them from the terms."""

    sums: PrefixSums
    guarantee: ApproximateDP | None
    policy: LinUCBPolicy

    @classmethod
    def of(cls, terms: FederationTerms) -> FederationSums:
        """Derive them: deterministic, the same for every party."""
        experiment = terms.experiment()
        mechanism, policy = experiment.mechanism, experiment.propose()[0].assignment
        assert isinstance(mechanism, Releases)
        assert isinstance(policy, LinUCBPolicy)
        guarantee = experiment.guarantee
        if guarantee is None:
            return cls(mechanism.sums, None, policy)
        assert isinstance(guarantee, ApproximateDP)
        # records wait in a queue: one more or one less would move all later ones
        assumed = {PublicMembership()} | ({BoundedAdversary()} if terms.masked else set())
        return cls(mechanism.sums, guarantee.assuming(*assumed), policy)

    @property
    def masked(self) -> bool:
        """Whether messages are masked: whether only their sum may be seen."""
        return self.sums.trust is TrustModel.SECURE_AGGREGATION

    @property
    def noise(self) -> SharedNoise:
        """The noise as a round announces it: shares and the variance of their sum, in units."""
        total = f"{float(self.sums.total.variance):.6g}"  # the same whatever the processor rounds
        return SharedNoise(self.sums.honest, Fraction(total))

    def of_silo(self, number: int) -> tuple[float, float]:
        """(ε, δ) of one silo's participants."""
        assert self.guarantee is not None
        if isinstance(self.guarantee, SilosDP):
            return self.guarantee.budgets[number]
        return float(self.guarantee.epsilon), float(self.guarantee.delta)


@dataclass(frozen=True)
class PinnedFederation:
    """Terms that the coordinator and every silo have signed.

    The constructor verifies all signatures, so holders need no further check.
    """

    terms: FederationTerms
    signatures: tuple[bytes, ...]

    def __post_init__(self) -> None:
        wanted = [("coordinator", self.terms.coordinator)]
        wanted += [(silo.name, silo.key) for silo in self.terms.silos]
        rule = f"{len(wanted)}: the coordinator's and every silo's"
        found = len(self.signatures)
        require(found == len(wanted), "number of signatures", found, rule, Rejected)
        encoded = self.terms.encode()
        for (name, key), signature in zip(wanted, self.signatures, strict=True):
            verify(Signed.FEDERATION, encoded, signature, key, name)

    @cached_property
    def derived(self) -> FederationSums:
        """The private sums under these terms."""
        return FederationSums.of(self.terms)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that sign rounds."""
        return self.terms.keys

    def check_signed_round(self, description: bytes, signatures: Sequence[bytes]) -> None:
        """Reject a description that the coordinator has not signed."""
        verify(Signed.ROUND, description, signatures[0], self.terms.coordinator, "the coordinator")

    def check(self, offer: Offer) -> Fraction:
        """Reject a round that is not exactly the one of the terms; its cost is in the budget."""
        terms, derived = self.terms, self.derived
        noise = derived.noise
        wanted: dict[str, object] = {
            "terms": terms.digest,
            "kind": "masking",
            "slots": len(terms.silos),
            "minimum": len(terms.silos) - terms.missing,
            "levels": 1,
            "metrics": derived.sums.size,
            "window": 0,
            "suite": MASKING_SUITE,
            "modulus": 1 << MODULUS_BITS,
            "divisor": noise.divisor,
            "total": noise.total,
        }
        for name, value in wanted.items():
            found = vars(offer)[name]
            require(found == value, f"{name} of the round", found, f"{value}", Rejected)
        self.check_step(offer.option)
        return Fraction(0)

    def check_step(self, step: int) -> None:
        """Reject a round of a row that the terms do not have."""
        steps = len(self.terms.batches)
        require(0 <= step < steps, "step of the round", step, f"below {steps}", Rejected)


def sign_federation(terms: FederationTerms, key: Ed25519PrivateKey) -> bytes:
    """Sign terms that name this key."""
    own, named = public_key(key), {terms.coordinator, *(silo.key for silo in terms.silos)}
    require(own in named, "key", fingerprint(own), "one that the terms name")
    return sign(Signed.FEDERATION, terms.encode(), key)


def write_federation(terms: FederationTerms, signatures: Mapping[str, bytes]) -> str:
    """Terms and the signatures so far, by name of the party, as a file."""
    signed = {name: signature.hex() for name, signature in signatures.items()}
    document = {"terms": json.loads(terms.encode()), "signatures": signed}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def read_federation(text: str) -> tuple[FederationTerms, dict[str, bytes]]:
    """Read the terms and the signatures of `write_federation`; signatures are not verified."""
    try:
        document = json.loads(text)
        terms = FederationTerms.decode(canonical(document["terms"]))
        signed = {str(k): bytes.fromhex(v) for k, v in document["signatures"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, TacitError):
            raise
        raise Rejected(f"file has no terms of a federation ({problem!r}): name another") from None
    return terms, signed


def pin_federation(text: str) -> PinnedFederation:
    """Read terms that everybody has signed."""
    terms, signed = read_federation(text)
    names = ["coordinator", *(silo.name for silo in terms.silos)]
    missing = [name for name in names if name not in signed]
    if missing:
        raise Rejected(f"signatures of {', '.join(missing)} are missing: let everybody sign first")
    return PinnedFederation(terms, tuple(signed[name] for name in names))
