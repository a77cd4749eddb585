"""The Spark session of a lake."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import deltasql
from deltasql.engines.spark.session import SparkSource


class _StoppedSession:
    """What is left of a session after `stop`."""

    _sc = SimpleNamespace(_jsc=None)

    def createDataFrame(self) -> None: ...


def test_a_stopped_session_is_named() -> None:
    source = SparkSource(_StoppedSession())  # type: ignore[arg-type]
    with pytest.raises(deltasql.UsageError, match="the Spark session of this lake was stopped: connect again"):
        source.get()
