"""The Prometheus collectors behind `Metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

    from deltasql.store.outbox import Outbox

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class PrometheusMetrics:
    """The counters and histograms of one registry."""

    def __init__(self, outbox: Outbox) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Lag(outbox))
        self.publish_seconds = self._histogram("mirror_publish_seconds", "Time to publish one version.")
        self.checkpoint_seconds = self._histogram("mirror_checkpoint_seconds", "Time to write one checkpoint.")
        self.published = self._counter("mirror_published", "Versions published.")
        self.failures = self._counter("mirror_failures", "Attempts to publish that failed.")
        self.conflicts = self._counter("mirror_conflicts", "Attempts that found another commit in place.")
        self.checkpoint_failures = self._counter("mirror_checkpoint_failures", "Checkpoints that could not be written.")

    def text(self) -> str:
        """Return all metrics for a scrape."""
        return generate_latest(self._registry).decode()

    def _histogram(self, name: str, help: str) -> Histogram:
        return Histogram(name, help, registry=self._registry, buckets=_BUCKETS)

    def _counter(self, name: str, help: str) -> Counter:
        return Counter(name, help, registry=self._registry)


class _Lag(Collector):
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        seconds = GaugeMetricFamily("mirror_lag_seconds", "Age of the oldest open version.", labels=["table"])
        versions = GaugeMetricFamily("mirror_lag_versions", "Versions not published yet.", labels=["table"])
        failed = GaugeMetricFamily("mirror_failed", "1 if publishing has failed for good.", labels=["table"])
        for status in self._outbox.status():
            if status.mode != "off":
                seconds.add_metric([status.table], status.lag_seconds)
                versions.add_metric([status.table], status.lag_versions)
                failed.add_metric([status.table], float(status.status == "FAILED"))
        return [seconds, versions, failed]
