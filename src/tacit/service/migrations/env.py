"""Alembic environment: runs pending migrations on the connection passed in the configuration."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
