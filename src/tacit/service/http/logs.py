"""Structured logs: one JSON object per line, without bodies, addresses or identities.

Requests are not logged at all, because the time of a report is private. Errors are logged with the
route template and code locations, never with values.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

QUIET = ("httpx", "httpcore", "alembic", "asyncio")  # they would log URLs and SQL statements
SERVER = "uvicorn.error"  # it would log a line or two per malformed request of a stranger
EXTRA = ("where", "route", "status", "role")  # attributes of a record that are logged


class JsonLines(logging.Formatter):
    """Formatter of one JSON object per line; of an exception, only type and location."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = vars(record)
        if "where" not in extra and record.exc_info and record.exc_info[1] is not None:
            extra = extra | traced(record.exc_info[1])
        line |= {name: extra[name] for name in EXTRA if name in extra}
        return json.dumps(line, ensure_ascii=False)


def traced(problem: BaseException) -> dict[str, Any]:
    """`extra` for a log call: type and location of an exception, without its message and values."""
    frames = traceback.extract_tb(problem.__traceback__)
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[-6:]]
    return {"where": [type(problem).__name__, *places]}


def configure(level: str) -> None:
    """Send all logs of the process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(SERVER).setLevel(logging.ERROR)
