"""What several acceptance tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltasql


@pytest.fixture
def shared_lake(
    lake: deltasql.Lake, spark_session: SparkSession, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let `deltasql.connect()` open the embedded lake of the test run, and drop the tables that a page leaves there."""
    monkeypatch.chdir(workdir)
    before = {table.name for table in lake.tables()}
    yield
    for table in lake.tables():
        if table.name not in before:
            lake.drop_table(table.name, purge=True)
