"""What the server counts, for Prometheus at /metrics and for the page at /facts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCH_SIZES = (1, 10, 100, 300, 1000, 3000, 10_000)
_REMEMBERED = 2000  # latencies that the page's percentiles are taken from


class Metrics:
    """Counters of one server, in a registry of their own. The page shows the latency of `model_routes` alone."""

    def __init__(self, *, model_routes: frozenset[str]) -> None:
        self._model_routes = model_routes
        self.registry = CollectorRegistry()
        labels = ("route", "status")
        self._requests = Counter("tableless_requests", "Requests answered.", labels, registry=self.registry)
        self._seconds = Histogram(
            "tableless_request_seconds",
            "From the head of a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("tableless_requests_in_flight", "Requests being answered.", registry=self.registry)
        self._ids = Counter("tableless_ids_embedded", "Ids embedded.", ("side",), registry=self.registry)
        self._batch_size = Histogram(
            "tableless_batch_size", "Ids computed at once.", ("side",), buckets=_BATCH_SIZES, registry=self.registry
        )
        self.reloads = Counter("tableless_reloads", "Runs loaded in place of another.", registry=self.registry)
        self.num_requests = 0
        self._latencies: deque[float] = deque(maxlen=_REMEMBERED)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)
        self.num_requests += 1
        if route in self._model_routes and status == 200:
            self._latencies.append(seconds)

    def count_batch(self, side: str, num_ids: int) -> None:
        """Before a batch is computed."""
        self._ids.labels(side).inc(num_ids)
        self._batch_size.labels(side).observe(num_ids)

    def watch_hot_ids(self, count: Callable[[], tuple[int, int]]) -> None:
        """Ask `count` (hits, asked) whenever the metrics are read."""
        self.registry.register(_HotIds(count))

    def latency_ms(self) -> dict[str, float | None]:
        """The middle and the 99th percentile of the last answers."""
        if not self._latencies:
            return {"p50": None, "p99": None}
        middle, high = np.percentile(np.array(self._latencies) * 1000, [50, 99]).tolist()
        return {"p50": round(middle, 3), "p99": round(high, 3)}

    def as_text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


class _HotIds(Collector):
    def __init__(self, count: Callable[[], tuple[int, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[Metric]:
        """After a reload they start from 0 again, which Prometheus allows for counters."""
        hits, asked = self._count()
        yield CounterMetricFamily("tableless_hot_ids_hits", "Ids whose vectors were kept ready.", value=hits)
        yield CounterMetricFamily("tableless_hot_ids_asked", "Ids looked for among the hot ones.", value=asked)

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of the model at registration."""
        return []
