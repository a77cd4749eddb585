"""`format("deltasql")`: a lake's tables for sessions that know nothing else of deltasql."""

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
    """Let a session read and write the tables of a lake by `format("deltasql")`, in batches and as streams."""
    from deltasql.datasource.source import TableSource
    from deltasql.datasource.tasks import LakeAddress

    address = LakeAddress(url, dict(config or {}), dict(storage_options or {}))
    spark.dataSource.register(type("DeltaSqlSource", (TableSource,), {"address": address}))
