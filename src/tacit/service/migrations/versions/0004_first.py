"""Initial schema. Databases of development versions (0002 and 0003) have no way to it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sql
from alembic import op

revision = "0004"
down_revision = None

BYTES, TEXT, WORD = sql.LargeBinary, sql.Text, sql.String(16)
COUNT, LARGE = sql.Integer, sql.BigInteger
INDEXED = {"terms.lineage", "rounds.terms", "rounds.stage"}
OPTIONAL = {"terms.participants", "rounds.reports", "rounds.total"}


def _table(name: str, keys: dict[str, Any], /, **columns: Any) -> None:
    """Create a table with these primary keys and further columns."""
    op.create_table(
        name,
        *(sql.Column(key, kind, primary_key=True) for key, kind in keys.items()),
        *(
            sql.Column(
                column,
                kind,
                nullable=f"{name}.{column}" in OPTIONAL,
                index=f"{name}.{column}" in INDEXED,
            )
            for column, kind in columns.items()
        ),
    )


def upgrade() -> None:
    """Create all tables."""
    documents = dict.fromkeys(("lineage", "document", "signatures", "approvals"), BYTES)
    _table("terms", {"digest": BYTES}, **documents, participants=LARGE)
    texts = dict.fromkeys(("learner", "timing", "definition", "history"), TEXT)
    _table("experiments", {"lineage": BYTES}, digest=BYTES, state=WORD, leader=COUNT, **texts)
    _table(
        "rounds",
        {"identity": BYTES},
        terms=BYTES,
        stage=WORD,
        **dict.fromkeys(("number", "arm", "option", "slots", "assigned", "reports"), COUNT),
        **dict.fromkeys(("started", "assigned_until", "closes", "expires"), LARGE),
        announcement=BYTES,
        total=TEXT,
    )
    shard = {"round": BYTES, "shard": COUNT}
    _table("slot_shards", shard, first=COUNT, slots=COUNT, assigned=COUNT)
    _table("shares", {"round": BYTES, "name": BYTES}, content=BYTES)
    _table("joins", {"round": BYTES, "name": BYTES}, slot=COUNT)
    _table("spent", {"invitation": BYTES}, name=BYTES)
    _table("served", {"lineage": BYTES, "option": COUNT}, waiting=LARGE, total=LARGE)
    _table("leases", {"name": BYTES}, holder=BYTES, until=LARGE)
