"""Fixtures of several acceptance tests."""

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
    """Make `deltasql.connect()` open the embedded lake of the test run, and drop the tables that a page creates."""
    monkeypatch.chdir(workdir)
    before = {table.name for table in lake.tables()}
    yield
    for table in lake.tables():
        if table.name not in before:
            lake.drop_table(table.name, purge=True)
