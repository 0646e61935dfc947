"""Structured logs: one JSON object per line, without bodies, addresses, or names of people.

Requests are not logged at all: when somebody reports is nobody's business. What went wrong is
logged with the route's template and the places in the code, never with values.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

QUIET = ("httpx", "httpcore", "alembic", "asyncio")  # they would print URLs and statements


class JsonLines(logging.Formatter):
    """A record as one line of JSON; of an exception, its kind and where it was raised."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        where = getattr(record, "where", None)
        if where is None and record.exc_info and record.exc_info[1] is not None:
            where = traced(record.exc_info[1])["where"]
        if where:
            line["where"] = where
        for name in ("route", "status", "role"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        return json.dumps(line, ensure_ascii=False)


def traced(problem: BaseException) -> dict[str, Any]:
    """For a log's `extra`: which exception was raised where, and nothing of its words or values."""
    frames = traceback.extract_tb(problem.__traceback__)
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[-6:]]
    return {"where": [type(problem).__name__, *places]}


def configure(level: str) -> None:
    """All logs of the process go to standard error, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
