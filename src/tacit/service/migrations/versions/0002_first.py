"""Initial schema."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = None


def upgrade() -> None:
    """Create the initial tables."""
    op.create_table(
        "terms",
        sql.Column("digest", sql.LargeBinary, primary_key=True),
        sql.Column("lineage", sql.LargeBinary, nullable=False, index=True),
        sql.Column("document", sql.LargeBinary, nullable=False),
        sql.Column("signatures", sql.LargeBinary, nullable=False),
        sql.Column("approvals", sql.LargeBinary, nullable=False),
    )
    op.create_table(
        "experiments",
        sql.Column("lineage", sql.LargeBinary, primary_key=True),
        sql.Column("digest", sql.LargeBinary, nullable=False),
        sql.Column("state", sql.String(16), nullable=False),
        sql.Column("learner", sql.Text, nullable=False),
        sql.Column("timing", sql.Text, nullable=False),
        sql.Column("definition", sql.Text, nullable=False),
        sql.Column("leader", sql.Integer, nullable=False),
        sql.Column("history", sql.Text, nullable=False),
    )
    op.create_table(
        "rounds",
        sql.Column("identity", sql.LargeBinary, primary_key=True),
        sql.Column("terms", sql.LargeBinary, nullable=False, index=True),
        sql.Column("stage", sql.String(16), nullable=False, index=True),
        sql.Column("number", sql.Integer, nullable=False),
        sql.Column("arm", sql.Integer, nullable=False),
        sql.Column("option", sql.Integer, nullable=False),
        sql.Column("slots", sql.Integer, nullable=False),
        sql.Column("assigned", sql.Integer, nullable=False),
        sql.Column("started", sql.BigInteger, nullable=False),
        sql.Column("assigned_until", sql.BigInteger, nullable=False),
        sql.Column("closes", sql.BigInteger, nullable=False),
        sql.Column("expires", sql.BigInteger, nullable=False),
        sql.Column("announcement", sql.LargeBinary, nullable=False),
        sql.Column("reports", sql.Integer),
        sql.Column("total", sql.Text),
    )
    op.create_table(
        "shares",
        sql.Column("round", sql.LargeBinary, primary_key=True),
        sql.Column("name", sql.LargeBinary, primary_key=True),
        sql.Column("content", sql.LargeBinary, nullable=False),
    )
    op.create_table(
        "joins",
        sql.Column("round", sql.LargeBinary, primary_key=True),
        sql.Column("name", sql.LargeBinary, primary_key=True),
        sql.Column("slot", sql.Integer, nullable=False),
    )
    op.create_table(
        "spent",
        sql.Column("invitation", sql.LargeBinary, primary_key=True),
        sql.Column("name", sql.LargeBinary, nullable=False),
    )
    op.create_table(
        "served",
        sql.Column("lineage", sql.LargeBinary, primary_key=True),
        sql.Column("option", sql.Integer, primary_key=True),
        sql.Column("waiting", sql.BigInteger, nullable=False),
        sql.Column("total", sql.BigInteger, nullable=False),
    )
