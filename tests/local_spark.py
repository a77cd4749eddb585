"""A local Spark with Delta's own reader and writer, or the reason why there is none."""

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

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that runs minutes, not days: compile quickly rather than well, and collect garbage in one thread."""
PLAIN = os.environ.get("TEST_PLAIN_SPARK") == "1"
"""Without Delta's jars, which know one release of Spark only: for tests of our own reading and writing on others."""


def obstacle() -> str | None:
    """Why Spark cannot run here, if it cannot."""
    return (None if PLAIN else jars.obstacle(jars.DELTA)) or java_obstacle()


def java_obstacle() -> str | None:
    """Why Java cannot run Spark here, if it cannot."""
    try:
        java()
    except deltasql.UsageError as error:
        return str(error)
    return None


@cache
def java() -> dict[str, str]:
    """What to set for Spark to find a Java."""
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
    """Two threads, no UI, UTC; all that it leaves behind is below `folder`."""
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **java()}
    settings = {
        **({} if PLAIN else _delta()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.home={folder / 'derby'}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # How long a Python worker may take to start: 15 s are few on a machine that does much else.
        "spark.python.authenticate.socketTimeout": "60s",
    }
    with patch.dict(os.environ, environment):
        spark = SparkSession.builder.master("local[2]").appName("deltasql tests").config(map=settings).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
