"""Alembic migrations of a party's database."""
