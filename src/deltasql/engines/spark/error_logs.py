"""Keep errors that are raised anyway out of PySpark's log, which would show stack traces of the JVM on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.logger import PySparkLogger

_NAMES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_raised: ContextVar[bool] = ContextVar("_raised", default=False)


class _OnlyOthers(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _raised.get()


_filter = _OnlyOthers()


@contextmanager
def without_error_logs() -> Iterator[None]:
    """Drop what PySpark logs about the errors of queries in this context; the errors are raised."""
    for name in _NAMES:
        PySparkLogger.getLogger(name).addFilter(_filter)  # adds it once
    before = _raised.set(True)
    try:
        yield
    finally:
        _raised.reset(before)


def disable_error_logs() -> None:
    """Drop what PySpark logs about the errors of queries, in a process whose session deltasql creates."""
    for name in _NAMES:
        PySparkLogger.getLogger(name).disabled = True
