"""Rows that Spark holds are released once nobody refers to them, never by the thread that collects the garbage."""

from __future__ import annotations

import gc
import threading
import time
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltasql.engines.spark.held_rows import hold
from tests.spark.conftest import ON_CONNECT


@pytest.mark.skipif(not ON_CONNECT, reason="a classic session releases rows in its JVM")
def test_a_thread_releases_rows(session: SparkSession) -> None:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import CachedRemoteRelation

    cycle = [hold(session.range(3))]
    cycle.append(cycle)  # type: ignore[arg-type]
    assert cycle[0].count() == 3
    again = DataFrame(CachedRemoteRelation(cycle[0]._plan._relation_id, None), session)  # type: ignore[attr-defined, arg-type]
    assert again.count() == 3
    requests = []

    def note_thread(*args: object, **kwargs: object) -> object:
        requests.append(threading.current_thread().name)
        return unary(*args, **kwargs)

    channel = session.client._channel
    unary = channel.unary_unary
    with patch.object(channel, "unary_unary", note_thread):
        del cycle
        collector = threading.Thread(target=gc.collect, name="collector")
        collector.start()
        collector.join()
    assert "collector" not in requests
    deadline = time.monotonic() + 30
    with pytest.raises(PySparkException, match=r"(?i)No DataFrame|cached"):
        while time.monotonic() < deadline:
            again.count()
            time.sleep(0.1)
