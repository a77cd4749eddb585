"""What operators watch, in Prometheus' form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

    from deltasql.store.outbox import Outbox

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of this process, and the lag of every table as the database has it when it is asked."""

    def __init__(self, outbox: Outbox) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Lag(outbox))
        self._publish = Histogram(
            "mirror_publish_seconds", "Time to publish one version.", registry=self._registry, buckets=_BUCKETS
        )
        self._checkpoint = Histogram(
            "mirror_checkpoint_seconds", "Time to write one checkpoint.", registry=self._registry, buckets=_BUCKETS
        )
        self._published = Counter("mirror_published", "Versions published.", registry=self._registry)
        self._failures = Counter("mirror_failures", "Attempts to publish that failed.", registry=self._registry)
        self._conflicts = Counter(
            "mirror_conflicts", "Attempts that found another commit in place.", registry=self._registry
        )
        self._checkpoint_failures = Counter(
            "mirror_checkpoint_failures", "Checkpoints that could not be written.", registry=self._registry
        )

    def text(self) -> str:
        """All of them, for a scrape."""
        return generate_latest(self._registry).decode()

    @contextmanager
    def publishing(self) -> Iterator[None]:
        with self._publish.time():
            yield

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        with self._checkpoint.time():
            yield

    def published(self, count: int) -> None:
        self._published.inc(count)

    def failed(self, *, conflict: bool) -> None:
        self._failures.inc()
        if conflict:
            self._conflicts.inc()

    def checkpoint_failed(self) -> None:
        self._checkpoint_failures.inc()


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
