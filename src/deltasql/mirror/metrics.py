"""Metrics of publishing, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltasql.mirror.prometheus_metrics import PrometheusMetrics
    from deltasql.store.outbox import Outbox


class Metrics:
    """Counters of this process, and the lag of every table, read from the database at each scrape."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    @cached_property
    def _prometheus(self) -> PrometheusMetrics:
        from deltasql.mirror.prometheus_metrics import PrometheusMetrics  # loads an HTTP server and client

        return PrometheusMetrics(self._outbox)

    def text(self) -> str:
        """Return all metrics for a scrape."""
        return self._prometheus.text()

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Measure the time to publish one version."""
        with self._prometheus.publish_seconds.time():
            yield

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Measure the time to write one checkpoint."""
        with self._prometheus.checkpoint_seconds.time():
            yield

    def published(self, count: int) -> None:
        """Count published versions."""
        self._prometheus.published.inc(count)

    def failed(self, *, conflict: bool) -> None:
        """Count a failed attempt to publish."""
        self._prometheus.failures.inc()
        if conflict:
            self._prometheus.conflicts.inc()

    def checkpoint_failed(self) -> None:
        """Count a checkpoint that could not be written."""
        self._prometheus.checkpoint_failures.inc()
