"""Several processes per party: slot shards and leases; participants of successor terms."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0003"
down_revision = "0002"

UNFINISHED = ("preparing", "open", "closing")


def upgrade() -> None:
    """Create the tables; the slots of unfinished rounds become one shard each."""
    shards = op.create_table(
        "slot_shards",
        sql.Column("round", sql.LargeBinary, primary_key=True),
        sql.Column("shard", sql.Integer, primary_key=True),
        sql.Column("first", sql.Integer, nullable=False),
        sql.Column("slots", sql.Integer, nullable=False),
        sql.Column("assigned", sql.Integer, nullable=False),
    )
    op.create_table(
        "leases",
        sql.Column("name", sql.LargeBinary, primary_key=True),
        sql.Column("holder", sql.LargeBinary, nullable=False),
        sql.Column("until", sql.BigInteger, nullable=False),
    )
    op.add_column("terms", sql.Column("participants", sql.BigInteger))
    rounds = sql.table(
        "rounds",
        sql.column("identity", sql.LargeBinary),
        sql.column("stage", sql.String),
        sql.column("slots", sql.Integer),
        sql.column("assigned", sql.Integer),
    )
    live = rounds.c.stage.in_(UNFINISHED[1:])
    found = sql.select(
        rounds.c.identity,
        sql.literal(0),
        sql.literal(0),
        rounds.c.slots,
        rounds.c.assigned,
    )
    op.execute(shards.insert().from_select(list(shards.c.keys()), found.where(live)))
    op.execute(rounds.update().where(live).values(assigned=0))


def downgrade() -> None:
    """Return the assigned slots to their rounds and drop the tables."""
    op.execute(
        "UPDATE rounds SET assigned = assigned + coalesce((SELECT sum(slot_shards.assigned) "
        "FROM slot_shards WHERE slot_shards.round = rounds.identity), 0)"
    )
    with op.batch_alter_table("terms") as terms:
        terms.drop_column("participants")
    op.drop_table("leases")
    op.drop_table("slot_shards")
