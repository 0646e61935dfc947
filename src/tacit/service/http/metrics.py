"""Prometheus metrics of one process: requests by route, commits, rounds; none per participant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tacit.errors import TacitError

METHODS = frozenset(("GET", "PUT", "POST", "OPTIONS"))
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call]  # would reveal the time of the first event

Gauges = Mapping[str, Mapping[str, float]]
"""Gauge values by metric and label."""


class Metrics:
    """Metrics of one process; `gauges` is called at every scrape, for rounds by stage and the
    like.
    """

    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tacit_requests",
            "Requests by route template, method and status",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tacit_request_seconds",
            "Response time by route template",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._by_request: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._group = Histogram(
            "tacit_group_size", "Requests per commit", buckets=SIZES, registry=self.registry
        )
        self._commit = Histogram(
            "tacit_commit_seconds", "Time per commit", buckets=SECONDS, registry=self.registry
        )
        self._failures = Counter(
            "tacit_step_failures",
            "Background steps that failed and are retried",
            registry=self.registry,
        )
        self.registry.register(_Now(gauges))

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        asked = route, method if method in METHODS else "other", status
        found = self._by_request.get(asked)
        if found is None:
            found = self._requests.labels(*asked), self._seconds.labels(route)
            self._by_request[asked] = found
        requests, took = found
        requests.inc()
        took.observe(seconds)

    def group(self, size: int, seconds: float) -> None:
        """Count a committed group."""
        self._group.observe(size)
        self._commit.observe(seconds)

    def failure(self) -> None:
        """Count a failed step."""
        self._failures.inc()

    def page(self) -> bytes:
        """The metrics in Prometheus text format."""
        return generate_latest(self.registry)


class _Now(Collector):
    """Collector of gauges that are computed at scrape time."""

    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """The gauges; none while the database is unavailable."""
        try:
            found = self._gauges()
        except TacitError:
            return
        for name, values in found.items():
            family = GaugeMetricFamily(f"tacit_{name}", name.replace("_", " "), labels=["kind"])
            for kind, value in values.items():
                family.add_metric([kind], value)
            yield family
