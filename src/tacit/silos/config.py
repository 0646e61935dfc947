"""Files of a federation: `silo.toml` of a silo, `federation.toml` of the coordinator, and cards.

A silo's file declares contexts, actions, outcome and budget on its own; `tacit silo check` compares
them with the terms before the silo signs. Paths are relative to the file. All errors are reported
together.
"""

from __future__ import annotations

import secrets
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.algorithms.silos_problem import LARGEST_BUDGET
from tacit.errors import InvalidFile, TacitError
from tacit.keyfiles import KeyFile, load_signing_key, save_signing_key
from tacit.readers import Number, places, problems, quoted, read_toml, shown, to_text
from tacit.records import RecordDirectory
from tacit.signatures import fingerprint, public_key
from tacit.silos.agent import RecordedEvaluations, SiloAgent, SiloIdentity
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.silos.database import SiloDatabase
from tacit.silos.federation import (
    FederationTerms,
    PinnedFederation,
    RewardSpec,
    SiloParty,
    SyncSchedule,
    pin_federation,
)
from tacit.silos.recorded import read_recorded
from tacit.terms import check_text

TOKENS = ("application-token", "engine-token")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


Epsilon = Annotated[Number, Field(gt=0, le=LARGEST_BUDGET)]
Delta = Annotated[Number, Field(gt=0, lt=1)]


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class ColumnEntry(_Entries):
    """A declared column of contexts."""

    name: str
    kind: str = "number"
    low: Number = Fraction(0)
    high: Number = Fraction(1)
    levels: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """The entries without bounds and levels that a column of this kind does not need."""
        found = dict(self)
        if self.kind != "number" and self.low == 0 and self.high == 1:
            del found["low"], found["high"]
        if not self.levels:
            del found["levels"]
        return found


class OutcomeEntry(_Entries):
    """How an outcome becomes a reward in [0, 1]."""

    meaning: str
    worst: Number = Fraction(0)
    best: Number = Fraction(1)


class BudgetEntry(_Entries):
    """The largest (ε, δ) that the silo's participants may be exposed to."""

    epsilon: Epsilon
    delta: Delta


class Declarations(_Entries):
    """What all silos of a federation declare alike."""

    actions: tuple[str, ...]
    columns: tuple[ColumnEntry, ...]
    outcome: OutcomeEntry

    @property
    def context(self) -> ContextSpec:
        """The declared contexts and actions."""
        columns = tuple(ContextColumn(**dict(column)) for column in self.columns)
        return ContextSpec(columns, self.actions)

    @property
    def reward(self) -> RewardSpec:
        """The declared outcome."""
        return RewardSpec(self.outcome.meaning, self.outcome.worst, self.outcome.best)


class SiloConfig(Declarations):
    """The configuration of a silo's agent."""

    name: str
    budget: BudgetEntry
    recorded: Path | None = None
    evaluations: BudgetEntry | None = None
    terms: Path = Path("terms.json")
    key: Path = Path("silo.key")
    lock_file: Path = Path("lock")
    database: Path = Path("silo.sqlite")
    records: Path = Path("records")
    host: str = "127.0.0.1"
    port: int = Field(8710, ge=1, le=65_535)

    def token(self, folder: Path, kind: str) -> str:
        """One of the two tokens, from a file that only its owner can read."""
        path = folder / kind
        if not path.exists():
            raise TacitError(f"{path} is missing: put a random text of 32 or more characters there")
        if path.stat().st_mode & 0o077:
            raise TacitError(f"{path} can be read by others: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()


class ScheduleEntry(_Entries):
    """When silos synchronise: see `SyncSchedule`."""

    horizon: int = Field(ge=1)
    sync: int = Field(25, ge=1)
    kind: str = "geometric"
    starts: int = Field(0, ge=0)
    pace: int = Field(0, ge=0)
    patience: int = Field(86_400, ge=0)


class FederationConfig(Declarations):
    """The definition of a federation, by its coordinator."""

    question: str
    schedule: ScheduleEntry
    algorithm: str = "secagg-fedlinucb"
    mode: str = "calibrated"
    norm: Number = Fraction(2)
    missing: int = Field(0, ge=0)
    key: Path = Path("coordinator.key")
    lock_file: Path = Path("lock")
    records: Path = Path("records")
    terms: Path = Path("terms.json")

    def make_terms(self, coordinator: bytes, silos: tuple[SiloParty, ...]) -> FederationTerms:
        """The terms of this definition with these parties."""
        return FederationTerms(
            question=self.question,
            algorithm=self.algorithm,
            context=self.context,
            reward=self.reward,
            schedule=SyncSchedule(**dict(self.schedule)),
            coordinator=coordinator,
            silos=silos,
            mode=self.mode,
            norm=self.norm,
            missing=self.missing,
        )


class SiloCard(_Entries):
    """The public data of a silo, for the coordinator."""

    name: str
    key: str
    epsilon: Number
    delta: Number

    def party(self) -> SiloParty:
        """The silo as the terms name it."""
        return SiloParty(self.name, bytes.fromhex(self.key), self.epsilon, self.delta)


Entries = TypeVar("Entries", bound=_Entries)


def read_entries(kind: type[Entries], path: Path) -> Entries:
    """Read a file of this kind; report all of its errors together."""
    return _parsed(kind, read_toml(path, "name another file"), path)


def _parsed(kind: type[Entries], data: dict[str, Any], path: Path) -> Entries:
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        known = {place: place for place in places(kind)}
        raise InvalidFile(str(path), list(problems(problem, kind, known))) from None


def read_card(path: Path) -> SiloCard:
    """Read the card of a silo; another file is rejected as such."""
    remedy = "name the card.toml that tacit silo new wrote"
    missing = SiloCard.model_fields.keys() - read_toml(path, remedy).keys()
    if missing:
        raise TacitError(
            f"{path} has no {min(missing)}: must be a silo's card. {remedy.capitalize()}"
        )
    return read_entries(SiloCard, path)


def load_key(path: Path, config: SiloConfig | FederationConfig) -> Ed25519PrivateKey:
    """The long-term key beside a configuration file."""
    folder = path.parent
    return load_signing_key(folder / config.key, KeyFile(folder / config.lock_file))


def load_terms(path: Path, config: SiloConfig | FederationConfig) -> PinnedFederation:
    """The terms beside a configuration file, signed by everybody."""
    file = path.parent / config.terms
    if not file.exists():
        raise TacitError(f"{file} is missing: put the terms there that everybody has signed")
    return pin_federation(file.read_text(encoding="utf-8"))


def context_differences(declared: ContextSpec, stated: ContextSpec) -> list[str]:
    """Differences between the columns and actions of terms and of a silo, as sentences."""
    found = []
    if stated.actions != declared.actions:
        found.append(
            f"actions of the terms is {shown(stated.actions)}: must be {shown(declared.actions)}, "
            "as in silo.toml"
        )
    ours = {column.name: column for column in declared.columns}
    theirs = {column.name: column for column in stated.columns}
    for name in dict.fromkeys([*theirs, *ours]):
        if theirs.get(name) != ours.get(name):
            found.append(
                f"column {name} of the terms is {_column_words(theirs.get(name))}: must be "
                f"{_column_words(ours.get(name))}, as in silo.toml"
            )
    return found or ["columns of the terms are in another order than in silo.toml: use one order"]


def _column_words(column: ContextColumn | None) -> str:
    if column is None:
        return "absent"
    if column.kind == "number":
        return f"a number from {shown(column.low)} to {shown(column.high)}"
    return f"{column.kind} {', '.join(column.levels)}".strip()


def differences(config: SiloConfig, terms: FederationTerms) -> list[str]:
    """Sentences on differences between terms and a silo's declaration or budget."""
    found = []
    if terms.context != config.context:
        found += context_differences(config.context, terms.context)
    if terms.reward != config.reward:
        found.append("outcome of the terms differs from the one declared in silo.toml")
    number = terms.number(config.name)
    if not terms.private:
        found.append("algorithm of the terms protects nothing: fedlinucb is for tests")
        return found
    stated = terms.silos[number]
    for name in ("epsilon", "delta"):
        most, wanted = vars(config.budget)[name], vars(stated)[name]
        if wanted > most:
            found.append(f"{name} of the terms is {wanted}: must be at most {most}, the budget")
    return found


def open_agent(path: Path) -> SiloAgent:
    """The agent of a configuration file; reject terms weaker than the file."""
    config = read_entries(SiloConfig, path)
    if config.host not in LOOPBACK:
        raise TacitError(
            f"host is {config.host}: must be one of {', '.join(LOOPBACK)}; an agent listens to "
            "processes of its own machine only"
        )
    pinned = load_terms(path, config)
    found = differences(config, pinned.terms)
    if found:
        raise InvalidFile(str(path.parent / config.terms), found)
    identity = SiloIdentity(pinned, config.name, load_key(path, config))
    database = SiloDatabase(path.parent / config.database, pinned.terms.digest)
    used = bool(database.rows() or database.evaluations())
    records = RecordDirectory(path.parent / config.records, used=used)
    return SiloAgent(identity, database, records, recorded=_recorded(path, config))


def _recorded(path: Path, config: SiloConfig) -> RecordedEvaluations | None:
    """The recorded data that may be evaluated; both a table and a budget are needed."""
    if config.recorded is None or config.evaluations is None:
        if (config.recorded is None) != (config.evaluations is None):
            raise TacitError(
                f"{path} has only one of recorded and evaluations: give a table and its budget"
            )
        return None
    table = read_recorded(path.parent / config.recorded, config.context, config.reward)
    budget = config.evaluations
    return RecordedEvaluations(table, budget.epsilon, budget.delta)


DECLARED = """\
actions = ["drug", "surgery"]

# How an outcome becomes a reward: worst is 0, best is 1, in between linearly.
[outcome]
meaning = "days in hospital"
worst = 30
best = 0

# Bounds are declared, never taken from data. Values beyond them are clipped.
[[columns]]
name = "age"
kind = "number"
low = 18
high = 90

[[columns]]
name = "severe"
kind = "boolean"
"""

SILO = """\
# The agent of one silo: tacit silo serve {path}
name = {name}
terms = "terms.json"     # the signed terms, from the coordinator
host = "127.0.0.1"
port = {port}

# NEVER include `records` in a backup: a restored agent could draw a row's noise a second time.
database = "silo.sqlite"
records = "records"

{declared}
# The most that participants of this silo may be exposed to, by all reports together.
[budget]
epsilon = 1
delta = "1/100000"

# Recorded data that may be evaluated, besides, and the budget of all evaluations together:
# put `recorded = "log.csv"` above the first section, and here
# [evaluations]
# epsilon = 1
# delta = "1/100000"
"""

FEDERATION = """\
# A federation and its coordinator: tacit federation terms {path} --card …
question = "Which treatment shortens the stay?"
algorithm = "secagg-fedlinucb"
# Silos that may be missing from a synchronisation. 0: all wait for everybody.
missing = 0

{declared}
[schedule]
horizon = 2500   # records of each silo
starts = 0       # seconds since 1970
pace = 0         # milliseconds per record; 0: when the coordinator asks
patience = 86400 # seconds to wait for an absent silo before the federation ends
"""


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    if path.exists():
        raise TacitError(f"{path} exists and is not overwritten: choose another directory")
    path.touch(mode=mode)
    path.write_text(text, encoding="utf-8")


def _new_key(folder: Path, name: str) -> Ed25519PrivateKey:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    _write(folder / "lock", secrets.token_hex(32) + "\n")
    save_signing_key(folder / name, key, KeyFile(folder / "lock"))
    return key


def create_silo(folder: Path, name: str, port: int, declared: str = DECLARED) -> SiloCard:
    """Make a silo's directory: configuration, key, tokens and public card."""
    check_text("name of a silo", name)
    path = folder / "silo.toml"
    text = SILO.format(path=path, name=quoted(name), port=port, declared=declared)
    if path.exists():
        raise TacitError(f"{folder} has a silo already: choose another directory")
    config = _parsed(SiloConfig, tomllib.loads(text), path)  # before anything is written
    key = _new_key(folder, "silo.key")
    _write(path, text)
    for token in TOKENS:
        _write(folder / token, secrets.token_urlsafe(32) + "\n")
    return write_card(folder, config, key)


def write_card(folder: Path, config: SiloConfig, key: Ed25519PrivateKey) -> SiloCard:
    """Write a silo's public card; an older one is replaced."""
    public, budget = public_key(key), config.budget
    card = SiloCard(name=config.name, key=public.hex(), epsilon=budget.epsilon, delta=budget.delta)
    lines = [
        f"# Public data of a silo; compare the key over another channel: {fingerprint(public)}",
        f"name = {quoted(card.name)}",
        f'key = "{card.key}"',
        f'epsilon = "{card.epsilon}"',
        f'delta = "{card.delta}"',
    ]
    (folder / "card.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return card


def create_federation(folder: Path, declared: str = DECLARED) -> bytes:
    """Make a coordinator's directory; return its public key."""
    if (folder / "federation.toml").exists():
        raise TacitError(f"{folder} has a federation already: choose another directory")
    key = _new_key(folder, "coordinator.key")
    text = FEDERATION.format(path=folder / "federation.toml", declared=declared)
    _write(folder / "federation.toml", text)
    return public_key(key)


def declared_in(path: Path) -> str:
    """The declarations of a federation, as text for a silo's file."""
    config = read_entries(FederationConfig, path)
    lines = [f"actions = {to_text(config.actions)}"]
    for heading, part in (
        ("[outcome]", dict(config.outcome)),
        *(("[[columns]]", one.given()) for one in config.columns),
    ):
        lines += ["", heading, *(f"{name} = {to_text(value)}" for name, value in part.items())]
    return "\n".join(lines) + "\n"
