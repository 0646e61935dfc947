"""Cost of 100,000,000 participants a day per role: CPU, bytes, database writes, machines.

Costs of one participant are measured here, with the parties of `benchmarks/service.py` on
PostgreSQL and the aggregations of `benchmarks/aggregation.py`, and multiplied. Databases count
what they write themselves. `--page docs/explanation/scale.md` writes the table into the page.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sql

import service
import tacit
from aggregation import masking, shuffling
from lines import Headers, Line
from machine import Row, emit
from service import ROLES, Deployment, deployed, people, postgresql, shipped
from tacit.aggregation import neighbourhood

PEOPLE = 100_000_000  # a day
DAY = 86_400  # seconds
PEAK = 3.0  # times the mean, at the busiest hour
CORES, USED = 16, 0.5  # of a machine, and the part of them that is in use at the peak
LEAST = 2  # machines of a role: one may fail
COUNTED = ("xact_commit", "tup_inserted", "tup_updated", "tup_deleted")
HEADS = (
    "role",
    "CPU ms each",
    "CPU hours a day",
    "cores at the peak",
    "bytes in / out each",
    "TB in / out a day",
    "rows written each",
    "rows a second at the peak",
    "machines",
)


@dataclass(frozen=True)
class Cost:
    """What one participant costs a role."""

    role: str
    seconds: float
    received: float = 0.0
    sent: float = 0.0
    rows: float = 0.0
    log: float = 0.0  # bytes of a database's log
    own: bool = False  # participants bring it themselves

    @property
    def cores(self) -> float:
        """In use at the peak."""
        return self.seconds * PEOPLE / DAY * PEAK

    @property
    def machines(self) -> int:
        """Enough of them for the peak."""
        return max(LEAST, math.ceil(self.cores / (CORES * USED)))

    @property
    def capacity(self) -> float:
        """Participants per second of one machine."""
        return CORES * USED / self.seconds


# Measuring

TRAFFIC: Counter[tuple[int, str]] = Counter()  # bytes by a party's port and the way, with HTTP


class CountedLine(Line):
    """A connection whose bytes are counted."""

    async def ask(
        self, method: str, path: str, kind: str, body: bytes, more: Headers = ()
    ) -> tuple[int, bytes]:
        """Status and body of the answer."""
        front = f"{method} {path} HTTP/1.1 Host: x Content-Type: application/{kind} "
        length = len(front) + len(f"Content-Length: {len(body)}") + 6  # line ends are two bytes
        length += sum(len(key) + len(value) + 4 for key, value in more)
        TRAFFIC[self._port, "received"] += length + len(body)
        return await super().ask(method, path, kind, body, more)

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        TRAFFIC[self._port, "sent"] += len(data)
        super().data_received(data)


@dataclass(frozen=True)
class Databases:
    """Both parties' databases, on one server."""

    urls: tuple[str, str]

    @contextmanager
    def _connected(self, url: str) -> Iterator[sql.Connection]:
        engine = sql.create_engine(
            url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            yield connection
        engine.dispose()

    def read(self) -> dict[str, float]:
        """Rows written, transactions, bytes of log and seconds of processors, so far."""
        found: dict[str, float] = {}
        for role, url in zip(ROLES, self.urls, strict=True):
            with self._connected(url) as connection:
                row = connection.execute(
                    sql.text(
                        f"SELECT {', '.join(COUNTED)}, pg_backend_pid(), "
                        "pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') "
                        "FROM pg_stat_database WHERE datname = current_database()"
                    )
                ).one()
            found[f"{role} commits"] = float(row[0])
            found[f"{role} rows"] = float(sum(row[1:4]))
            found["log"] = float(row[5])
            found["seconds"] = computed_by_server(int(row[4]))
        return found


def fields_of(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def computed_by_server(backend: int) -> float:
    """Seconds that a database server's processes have computed, those that are gone included."""
    tick = os.sysconf("SC_CLK_TCK")
    server = fields_of(backend)[1]
    ticks = sum(map(int, fields_of(server)[11:15]))
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = fields_of(path.name)
        except OSError:
            continue
        if fields[1] == server:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / tick


def served(there: Deployment, databases: Databases, seconds: float) -> tuple[list[Cost], float]:
    """The costs of both parties and their databases, and transactions per participant."""
    pinned = there.begin("Raw?")
    TRAFFIC.clear()
    vars(service)["Line"] = CountedLine
    before, began = databases.read(), [one.computed() for one in there.members]
    count = asyncio.run(people(there, pinned, seconds))["people"]
    time.sleep(2)  # databases count a moment later
    ended, after = [one.computed() for one in there.members], databases.read()
    rounds = there.coordinator.status(pinned.terms.digest)["rounds"]
    released = sum(one["reports"] or 0 for one in rounds if one["stage"] == "opened")
    if released < count / 2:
        raise SystemExit(
            f"{released:.0f} of {count:.0f} reports were released: give more --seconds"
        )
    each = {name: (value - before[name]) / count for name, value in after.items()}
    there.stop(pinned)
    costs = []
    rows = sum(each[f"{role} rows"] for role in ROLES)
    for one, start, end in zip(there.members, began, ended, strict=True):
        role = one.role
        bytes_ = [TRAFFIC[one.port, way] / count for way in ("received", "sent")]
        costs.append(Cost(role, (end - start) / count, *bytes_))
        part = each[f"{role} rows"] / rows
        written = each[f"{role} rows"], part * each["log"]
        costs.append(Cost(f"{role}'s database", part * each["seconds"], 0.0, 0.0, *written))
    return costs, sum(each[f"{role} commits"] for role in ROLES)


def on_devices(there: Deployment, seconds: float) -> float:
    """Seconds that a shipped device computes for one participation."""
    pinned = there.begin("Shipped?", window=0, margin=4)
    _, cost = shipped(there, pinned, seconds)
    there.stop(pinned)
    return cost


def measured(seconds: float) -> tuple[list[Cost], float]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with postgresql(directory) as urls, deployed(directory, urls) as there:
            costs, commits = served(there, Databases(urls), seconds)
            device = on_devices(there, seconds / 2)
    sent, received = (
        sum(getattr(cost, way) for cost in costs) for way in ("received", "sent")
    )  # what the parties receive is what a device sends
    costs.insert(0, Cost("a person's device", device, received, sent, own=True))
    speed = masking(500, 0.1, neighbourhood(500))[1]
    costs.append(Cost("instead: a masking server", 1 / speed))
    costs.append(Cost("instead: a shuffler", 1 / shuffling(2000)[0]))
    return costs, commits


# Telling


def line(cost: Cost) -> list[str]:
    """A role's row in the table."""
    moved = cost.received or cost.sent
    day = PEOPLE / 1e12
    return [
        cost.role,
        f"{1e3 * cost.seconds:.2f}",
        "–" if cost.own else f"{cost.seconds * PEOPLE / 3600:,.0f}",
        "–" if cost.own else f"{cost.cores:.1f}",
        f"{cost.received:,.0f} / {cost.sent:,.0f}" if moved else "–",
        f"{cost.received * day:.2f} / {cost.sent * day:.2f}" if moved else "–",
        f"{cost.rows:.2f}" if cost.rows else "–",
        f"{cost.rows * PEOPLE / DAY * PEAK:,.0f}" if cost.rows else "–",
        "their own" if cost.own else str(cost.machines),
    ]


def page(costs: list[Cost], simulated: str) -> str:
    """What stands between the marks of the page."""
    rows = [HEADS, ["---"] * len(HEADS), *map(line, costs)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    written = ", ".join(
        f"{cost.role} {cost.log:,.0f} bytes ({cost.log * PEOPLE / 1e12:.2f} TB a day)"
        for cost in costs
        if cost.log
    )
    logs = f"Written to logs for each participant: {written}."
    return "\n\n".join([table, logs, full(costs), simulated])


def full(costs: list[Cost]) -> str:
    """What is full first, in words."""
    process = max((cost for cost in costs if cost.sent and not cost.own), key=lambda c: c.seconds)
    base, peak = bottleneck(costs), PEOPLE / DAY * PEAK
    return (
        f"**The first to be full is one {process.role} process**: it computes on one core, which "
        f"carries {1 / process.seconds:,.0f} participants a second; the peak is {peak:,.0f}, so "
        f"{math.ceil(process.cores)} of them would be busy all the time. Of what more processes do "
        f"not multiply, it is the **{base.role}**: {CORES} cores, {USED:.0%} of them in use, carry "
        f"{base.capacity:,.0f} a second, {base.capacity / peak:.1f} times the peak, while "
        f"{base.log * peak / 1e6:.1f} MB a second go to its log."
    )


def bottleneck(costs: list[Cost]) -> Cost:
    """Of what cannot be multiplied by starting more processes, the dearest: a database."""
    return max((cost for cost in costs if cost.rows), key=lambda cost: cost.seconds)


def simulated() -> tuple[str, list[Row]]:
    """A day's participants in the fast simulator."""
    runs = 5
    start = time.process_time()
    result = tacit.simulate(
        "private-med",
        means=(0.031, 0.030, 0.029, 0.028),
        horizon=PEOPLE,
        trust="two-servers",
        runs=runs,
        workers=1,
    )
    took = (time.process_time() - start) / runs
    best = sum(run["winner"] == "1" or run["best"] == 0 for run in result.runs)
    told = (
        f"Simulated at that size (`private-med`, two servers, ε = 1, four options whose rates are "
        f"3.1%, 3.0%, 2.9% and 2.8%): {result.mean('rounds'):.0f} rounds, a regret of "
        f"{result.regret_mean:,.0f} ± {result.regret_sem:,.0f} answers in {PEOPLE:,}, the best "
        f"option found in {best} of {runs} runs, {took:.2g} seconds of one core for a day."
    )
    rows: list[Row] = [
        {"name": "a day simulated", "value": round(took, 3), "unit": "CPU s"},
        {"name": "rounds of a day", "value": round(result.mean("rounds"), 1), "unit": "rounds"},
        {"name": "regret of a day", "value": round(result.regret_mean), "unit": "answers"},
    ]
    return told, rows


def main() -> None:
    """Prints one JSON object."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=30.0, help="of people who come")
    words.add_argument("--page", type=Path, help="write the table into this page")
    said = words.parse_args()
    told, rows = simulated()
    costs, commits = measured(said.seconds)
    for cost in costs:
        rows.append(
            {"name": cost.role, "value": round(1e3 * cost.seconds, 3), "unit": "CPU ms each"}
        )
        if not cost.own:
            rows.append({"name": cost.role, "value": cost.machines, "unit": "machines"})
        if cost.rows:
            rows.append({"name": cost.role, "value": round(cost.rows, 2), "unit": "rows each"})
    rows.append({"name": "transactions", "value": round(commits, 3), "unit": "each"})
    first = bottleneck(costs)
    rows.append(
        {"name": f"one {first.role}", "value": round(first.capacity), "unit": "people per second"}
    )
    rows += [
        {"name": f"one {cost.role} process", "value": round(1 / cost.seconds), "unit": "people/s"}
        for cost in costs
        if cost.sent and not cost.own
    ]
    if said.page:
        text = said.page.read_text(encoding="utf-8")
        made = f"<!-- measured -->\n{page(costs, told)}\n<!-- end -->"
        marked = r"<!-- measured -->.*?<!-- end -->"  # the first: others have their own commands
        text = re.sub(marked, lambda _: made, text, count=1, flags=re.S)
        said.page.write_text(text, encoding="utf-8")
    emit(rows)


if __name__ == "__main__":
    main()
