"""`format("deltasql")`: tables of a lake for Spark's own reader and writer API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(
    spark: SparkSession,
    url: str | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Register `format("deltasql")` on a Spark session, for batches and streams.

    Args:
        spark: The session.
        url: The lake, as in `connect`. Executors do not need access to the database.
        config: Configuration keys and values.
        storage_options: Options of the object store.
    """
    from deltasql.datasource.source import TableSource
    from deltasql.datasource.tasks import LakeAddress

    address = LakeAddress(url, dict(config or {}), dict(storage_options or {}))
    spark.dataSource.register(type("DeltaSqlSource", (TableSource,), {"address": address}))
