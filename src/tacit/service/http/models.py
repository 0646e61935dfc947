"""Pydantic models of the JSON API: bytes are lowercase hexadecimal, unknown fields are rejected.

The docstrings of the models are descriptions in the OpenAPI documents.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LONGEST_TERMS = 1 << 16
LONGEST_TEXT = 1 << 18
MOST_KEYS = 1 << 17

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256, hexadecimal")]
Identity = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="random name of a round")]
Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$", description="Ed25519, hexadecimal")]
Nonce = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="16 random bytes, hexadecimal")]
Hex = Annotated[str, Field(pattern="^([0-9a-f][0-9a-f])*$", description="bytes, hexadecimal")]
STATES = ("unsigned", "running", "paused", "stopped", "finished")
State = Annotated[str, Field(json_schema_extra={"enum": list(STATES)})]


def _whole(value: object) -> object:
    """Convert a float such as 3.0, which JSON Schema counts as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Strict(BaseModel):
    """Base of request models: strict types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Health(BaseModel):
    """The party is in order."""

    status: Literal["ok"] = "ok"


class ExperimentSummary(BaseModel):
    """Name, question and state of an experiment."""

    digest: Digest
    question: str
    state: State


class Successor(BaseModel):
    """Successor terms, with the signatures of the parties of both terms."""

    terms: str
    signatures: list[Signature]
    approvals: list[Signature]


class TermsAnswer(BaseModel):
    """Terms with both signatures; with the coordinator's alone until the helper signs."""

    terms: Annotated[str, Field(description="the canonical text")]
    signatures: list[Signature]
    state: State
    successor: Successor | None


class TicketRequest(Strict):
    """Request for a slot. The same nonce gets the same slot."""

    nonce: Annotated[Nonce, Field(repr=False)]
    invitation: Annotated[str | None, Field(max_length=2048, repr=False)] = None


class AssignedSlot(BaseModel):
    """A slot in a round. The option is null where the device chooses by the round's policy."""

    asked: Literal[True]
    option: str | None
    announcement: Hex
    place: Annotated[int, Field(ge=0, lt=1 << 32)]
    token: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class NotAsked(BaseModel):
    """The best option so far, without a slot: no report is expected. The option is null where the
    device chooses, by the policy of the announced round.
    """

    asked: Literal[False]
    option: str | None
    announcement: Hex | None = None


class CreateRequest(Strict):
    """The text of a definition file."""

    definition: Annotated[str, Field(max_length=LONGEST_TEXT)]


class Created(BaseModel):
    """Published terms, which need the helper's signature."""

    digest: Digest
    terms: str


class CosignRequest(Strict):
    """The helper's signature of the terms; for successor terms also its approval as a party of
    the predecessor.
    """

    signature: Signature
    approval: Signature | None = None


class SucceedRequest(Strict):
    """The text of successor terms; `participants` is the new number of planned participants, in
    all.
    """

    terms: Annotated[str, Field(max_length=LONGEST_TERMS)]
    participants: Annotated[int, Field(ge=1, le=10**15)] | None = None


class AdmitRequest(Strict):
    """Terms with the signatures of both parties; for successor terms also the approvals of the
    parties of the predecessor.
    """

    terms: Annotated[str, Field(max_length=LONGEST_TERMS)]
    signatures: Annotated[list[Signature], Field(min_length=2, max_length=2)]
    approvals: Annotated[list[Signature], Field(max_length=2)] = []


class Admitted(BaseModel):
    """The name of the admitted experiment."""

    digest: Digest


class KeysRequest(Strict):
    """Request for the helper's keys for a new round of this experiment."""

    experiment: Digest
    sealing: Annotated[int, Field(ge=0, lt=256), BeforeValidator(_whole)]


class KeysAnswer(BaseModel):
    """The helper's public keys for this round."""

    keys: Hex


class DescribeRequest(Strict):
    """The description of a round of this experiment, with the coordinator's signature."""

    experiment: Digest
    description: Annotated[str, Field(pattern="^([0-9a-f][0-9a-f])*$", max_length=MOST_KEYS)]
    signature: Signature


class SignedRound(BaseModel):
    """The description with both signatures."""

    announcement: Hex


class ExchangeRequest(Strict):
    """The coordinator's list of reports; empty until available."""

    listing: Hex


class ExchangeAnswer(BaseModel):
    """The helper's list of reports and its answer for the collector; each empty until available."""

    listing: Hex
    answer: Hex
