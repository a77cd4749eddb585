"""Read the files of object stores that Spark has no file system for: its Python workers run the Arrow scan.

Spark's wheel supports local files and HDFS only. With the jars of a store's file system, Spark reads natively.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltasql.engines.arrow.read.scan import split_into_tasks
from deltasql.engines.spark.scan.hadoop_paths import hadoop_root
from deltasql.engines.spark.scan.row_ids import FILE, URI_FIELDS, file_id
from deltasql.engines.spark.session import is_classic, java_class
from deltasql.engines.spark.worker.scan_task import read_rows, read_rows_with_ids, read_tasks
from deltasql.protocol.schema_fit import nullable, parse_struct
from deltasql.protocol.table_changes import Snapshot
from deltasql.storage import is_local

_log = logging.getLogger(__name__)


def has_file_system(spark: SparkSession, location: str, options: Mapping[str, str]) -> bool:
    """Return whether the session has a file system for a location. A Connect session cannot be inspected, so it counts
    as having one unless there are storage options, which it does not receive."""
    if is_local(location):
        return True
    if not is_classic(spark):
        return not options
    scheme = hadoop_root(location).partition(":")[0]
    gateway: Any = spark
    try:
        configuration = gateway._jsc.hadoopConfiguration()
        java_class(spark, "org.apache.hadoop.fs.FileSystem").getFileSystemClass(scheme, configuration)
    except Exception as error:
        # Reading by workers does not depend on the cause, whatever it is.
        _log.debug("Spark has no file system for %s: %r", location, error)
        return False
    return True


def read_by_workers(
    spark: SparkSession, snapshot: Snapshot, options: Mapping[str, str], *, row_ids: bool = False
) -> DataFrame:
    """Return the rows of a snapshot, with their row ids if `row_ids` is set."""
    schema = StructType.fromJson(nullable(parse_struct(snapshot.metadata.schema_string)))
    schema = StructType([*schema, *URI_FIELDS]) if row_ids else schema
    tasks = split_into_tasks(replace(snapshot, predicate=None))  # Spark filters the rows
    if tasks:
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        read = read_rows_with_ids if row_ids else read_rows
        rows = numbers.mapInArrow(partial(read_tasks, read, tasks, dict(options)), schema)
    else:
        rows = spark.createDataFrame([], schema)
    return rows.withColumn(FILE, file_id(F.col(FILE))) if row_ids else rows
