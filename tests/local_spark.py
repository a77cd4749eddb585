"""A local Spark session with Delta's jars, or the reason why Spark cannot run."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

import deltasql
from deltasql.engines.spark.java import java_environment
from tests import jars
from tests.effort import LONG

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""Options for short processes: fast compilation, and garbage collection in one thread."""
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for small data: interpreted expressions. Long runs, and all tests that start a separate
process with Spark (README, demo, kills, Connect), use the defaults of Spark."""
PLAIN = os.environ.get("TEST_PLAIN_SPARK") == "1"
"""Run Spark without Delta's jars, which support only one release of Spark."""


def obstacle() -> str | None:
    """Return why Spark cannot run, or None."""
    return (None if PLAIN else jars.obstacle(jars.DELTA)) or java_obstacle()


def java_obstacle() -> str | None:
    """Return why Java cannot run Spark, or None."""
    try:
        java()
    except deltasql.UsageError as error:
        return str(error)
    return None


@cache
def java() -> dict[str, str]:
    """Return the environment variables with which Spark finds Java."""
    return java_environment(Path(tempfile.mkdtemp(prefix="deltasql-java-")))


def process_environment() -> dict[str, str]:
    """Return the environment for a process that starts its own Spark."""
    return {
        **os.environ,
        **java(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
    }


def _delta() -> dict[str, str]:
    return {
        "spark.jars": jars.paths(jars.DELTA),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark with two threads, no UI and UTC; all its files are below `folder`."""
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **java()}
    settings = {
        **({} if PLAIN else _delta()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        **({} if LONG else _QUICK),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.home={folder / 'derby'}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # a Python worker may need more than the default of 15 s to start on a busy machine
        "spark.python.authenticate.socketTimeout": "60s",
    }
    with patch.dict(os.environ, environment):
        spark = SparkSession.builder.master("local[2]").appName("deltasql tests").config(map=settings).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
