"""Prometheus metrics of one process: requests by route, commits, rounds; none per participant."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from tacit.errors import TacitError

METHODS = frozenset(("GET", "PUT", "POST", "OPTIONS"))
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Gauges = Mapping[str, Mapping[str, float]]
"""Gauge values by metric and label."""


class Buckets:
    """Counts of values by bucket, and the sum of the values."""

    def __init__(self, ends: Sequence[float]) -> None:
        self._ends = ends
        self._counts = [0] * (len(ends) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._ends, value)] += 1
        self._sum += value

    def put(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add the cumulative counts to a family."""
        names = [*map(floatToGoString, self._ends), "+Inf"]
        family.add_metric(
            labels, list(zip(names, accumulate(self._counts), strict=True)), self._sum
        )


class Metrics(Collector):
    """Metrics of one process; `gauges` is called at every scrape, for rounds by stage and the
    like.
    """

    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self._gauges = gauges
        self._requests = Counter[tuple[str, str, int]]()
        self._seconds = defaultdict[str, Buckets](partial(Buckets, SECONDS))
        self._group, self._commit = Buckets(SIZES), Buckets(SECONDS)
        self._failures = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests[route, method if method in METHODS else "other", status] += 1
        self._seconds[route].add(seconds)

    def group(self, size: int, seconds: float) -> None:
        """Count a committed group."""
        self._group.add(size)
        self._commit.add(seconds)

    def failure(self) -> None:
        """Count a failed step."""
        self._failures += 1

    def page(self) -> bytes:
        """The metrics in Prometheus text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics; gauges only while the database is available."""
        labels = ("route", "method", "status")
        said = "Requests by route template, method and status"
        requests = CounterMetricFamily("tacit_requests", said, labels=labels)
        for (route, method, status), count in list(self._requests.items()):
            requests.add_metric((route, method, str(status)), count)
        said = "Response time by route template"
        seconds = HistogramMetricFamily("tacit_request_seconds", said, labels=labels[:1])
        for route, took in list(self._seconds.items()):
            took.put(seconds, (route,))
        group = HistogramMetricFamily("tacit_group_size", "Requests per commit")
        self._group.put(group)
        commit = HistogramMetricFamily("tacit_commit_seconds", "Time per commit")
        self._commit.put(commit)
        said = "Background steps that failed and are retried"
        yield from (requests, seconds, group, commit)
        yield CounterMetricFamily("tacit_step_failures", said, self._failures)
        try:
            found = self._gauges()
        except TacitError:
            return
        for name, values in found.items():
            family = GaugeMetricFamily(f"tacit_{name}", name.replace("_", " "), labels=["kind"])
            for kind, value in values.items():
                family.add_metric([kind], value)
            yield family
