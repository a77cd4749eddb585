"""The fast scan: read a snapshot through a Spark file index that holds the log's file list.

Spark lists no directories, sizes are exact, and filters prune partitions. The index is a small Java class that Janino
compiles once in the driver; Spark ships Janino for its generated code. The class uses Spark's internal API, so the scan
is optional: where it fails, `plain_scan` reads the same rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltasql.engines.spark.scan.row_ids import ROW
from deltasql.engines.spark.scan.scan_files import Json, SnapshotFiles
from deltasql.engines.spark.session import is_classic, java_class
from deltasql.protocol.constraints import quoted
from deltasql.protocol.partition_values import Stored
from deltasql.protocol.schema import struct_type
from deltasql.protocol.schema_fit import nullable

_log = logging.getLogger(__name__)
_CLASS = "deltasql.SnapshotFileIndex"
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_has_warned = threading.Event()


def read_with_index(
    spark: SparkSession, files: SnapshotFiles, options: Mapping[str, str], *, numbered: bool = False
) -> DataFrame | None:
    """Return the rows of a snapshot, or None if the session does not support the index. With `numbered`, the column
    `ROW` holds the row numbers, and `_metadata` is not available."""
    if not is_classic(spark):
        _log.debug("table %s: Spark Connect sessions do not support the fast scan", files.table)
        return None
    try:
        return _read(spark, files, options, numbered=numbered)
    except Exception as error:
        # The plain scan does not depend on the cause, whatever it is.
        _log.log(
            _warning_level(),
            "table %s: the fast scan failed on Spark %s, so the plain scan is used (%s: %s). Set spark.fast_scan to "
            "off to skip the fast scan; later failures are logged at DEBUG level",
            files.table,
            spark.version,
            type(error).__name__,
            _reason(error),
        )
        return None


def _reason(error: Exception) -> str:
    """Return the message of the Java exception behind an error, or else the error's own, in one line."""
    java = getattr(error, "java_exception", None)
    return str(java.toString() if java is not None else error).strip().partition("\n")[0]


def _warning_level() -> int:
    """Return WARNING for the first failure of the process, and DEBUG for all others."""
    if _has_warned.is_set():
        return logging.DEBUG
    _has_warned.set()
    return logging.WARNING


def _read(spark: SparkSession, files: SnapshotFiles, options: Mapping[str, str], *, numbered: bool) -> DataFrame:
    number = _number_column(spark) if numbered else ""
    more = [{"name": number, "type": "long", "nullable": True, "metadata": {}}] if numbered else []
    schema = _struct(spark, [*files.read_fields(), *more])
    partitions = _struct(spark, files.partition_fields)
    packed = pack(files)
    arguments = spark.sparkContext._gateway.new_array(java_class(spark, "java.lang.Object"), 3)
    arguments[0], arguments[1], arguments[2] = packed, partitions, hashlib.sha256(packed.encode()).hexdigest()
    index = _index_class(spark).getConstructors()[0].newInstance(arguments)
    relation = java_class(spark, "org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
        index,
        partitions,
        schema,
        java_class(spark, "scala.Option").empty(),
        java_class(spark, _PARQUET)(),
        java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(dict(options)),
        spark._jsparkSession,
    )
    rows = DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)
    if not numbered:
        return rows
    # One call into the JVM; each Column object would take several.
    return rows.selectExpr(*(quoted(field["name"]) for field in files.fields), f"{quoted(number)} AS {quoted(ROW)}")


def _number_column(spark: SparkSession) -> str:
    """Return the name of the internal column behind `_metadata.row_index`. Reading it directly costs half as much,
    because Spark builds no struct."""
    return str(java_class(spark, _PARQUET).ROW_INDEX_TEMPORARY_COLUMN_NAME())


def _struct(spark: SparkSession, fields: Sequence[Json]) -> Any:
    """Return fields as a JVM struct type in which everything is nullable: if Spark assumes that a column has no nulls
    and a file has one, it returns the value of another row."""
    text = json.dumps(nullable(struct_type(list(fields))))
    return java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(text)


def _index_class(spark: SparkSession) -> Any:
    """Return the Java class, compiled once per JVM."""
    gateway = spark.sparkContext._gateway
    if gateway not in _compiled:
        compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(java_class(spark, "org.apache.spark.util.Utils").getSparkClassLoader())
        compiler.cook(_java_source())
        _compiled[gateway] = compiler.getClassLoader().loadClass(_CLASS)
    return _compiled[gateway]


def _java_source() -> str:
    return resources.files("deltasql.engines.spark.scan").joinpath("SnapshotFileIndex.java").read_text("utf-8")


def pack(files: SnapshotFiles) -> str:
    """Serialize the files to one string, because each call into the JVM is slow."""
    return "".join(f"{text}\0" for text in _texts(files))


def _texts(files: SnapshotFiles) -> Iterator[str]:
    yield files.root
    for partition in files.partitions:
        for value in partition.values:
            yield "" if value is None else f"={_text(value)}"
        yield str(len(partition.paths))
        for path, size, time in zip(partition.paths, partition.sizes, partition.times, strict=True):
            yield path
            yield str(size)
            yield str(time)


def _text(value: Stored) -> str:
    """Return a partition value in the syntax that Java parses."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return base64.b64encode(value).decode()
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case float() if math.isnan(value):
            return "NaN"
    return str(value)
