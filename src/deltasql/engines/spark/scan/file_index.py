"""The fast way to read a snapshot: Spark is handed the log's file list as a file index of its own kind.

Nothing is listed, sizes are exact, and Spark leaves out partitions that a filter does not want. The index is a small
Java class that Janino, which Spark ships for its own generated code, compiles once in the driver. It uses classes
that Spark keeps to itself, so nothing depends on it: where it does not work, `plain` reads the same rows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltasql.engines.spark.scan.row_ids import ROW
from deltasql.engines.spark.scan.scan_files import Json, SnapshotFiles
from deltasql.engines.spark.session import is_classic
from deltasql.protocol.constraints import quoted
from deltasql.protocol.partition_values import Stored
from deltasql.protocol.schema import struct_type
from deltasql.protocol.schema_fit import nullable

_log = logging.getLogger(__name__)
_CLASS = "deltasql.SnapshotFileIndex"
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def indexed(
    spark: SparkSession, files: SnapshotFiles, options: Mapping[str, str], *, numbered: bool = False
) -> DataFrame | None:
    """The rows of a snapshot, or None where Spark does not take the index. With `numbered` their numbers in their files
    come in the column `ROW`, and `_metadata` is not to be had."""
    if not is_classic(spark):
        _log.debug("table %s: a Spark Connect session takes no file index", files.table)
        return None
    try:
        return _read(spark, files, options, numbered=numbered)
    except Exception as error:
        # Whatever it is, the other way does not depend on it.
        _log.debug("table %s: Spark %s takes no file index: %r", files.table, spark.version, error)
        return None


def _read(spark: SparkSession, files: SnapshotFiles, options: Mapping[str, str], *, numbered: bool) -> DataFrame:
    jvm: Any = spark._jvm
    number = _number_column(jvm) if numbered else ""
    more = [{"name": number, "type": "long", "nullable": True, "metadata": {}}] if numbered else []
    schema = _struct(jvm, [*files.read_fields(), *more])
    partitions = _struct(jvm, files.partition_fields)
    packed = pack(files)
    arguments = spark.sparkContext._gateway.new_array(jvm.Object, 3)
    arguments[0], arguments[1], arguments[2] = packed, partitions, hashlib.sha256(packed.encode()).hexdigest()
    index = _index_class(spark).getConstructors()[0].newInstance(arguments)
    datasources = jvm.org.apache.spark.sql.execution.datasources
    relation = datasources.HadoopFsRelation(
        index,
        partitions,
        schema,
        jvm.scala.Option.empty(),
        datasources.parquet.ParquetFileFormat(),
        jvm.PythonUtils.toScalaMap(dict(options)),
        spark._jsparkSession,
    )
    rows = DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)
    if not numbered:
        return rows
    # One call: each Column that Python makes is several.
    return rows.selectExpr(*(quoted(field["name"]) for field in files.fields), f"{quoted(number)} AS {quoted(ROW)}")


def _number_column(jvm: Any) -> str:
    """The column that Spark fills with numbers of rows, and makes `_metadata.row_index` of. By its own name it costs
    half as much: no struct is made."""
    format_ = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
    return str(format_.ROW_INDEX_TEMPORARY_COLUMN_NAME())


def _struct(jvm: Any, fields: Sequence[Json]) -> Any:
    """Everything nullable, as Spark makes it for files: where it believes that there is no null and a file has one, it
    shows the value of another row."""
    return jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(nullable(struct_type(list(fields)))))


def _index_class(spark: SparkSession) -> Any:
    """The class, compiled once for each JVM."""
    gateway = spark.sparkContext._gateway
    if gateway not in _compiled:
        jvm: Any = spark._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getSparkClassLoader())
        compiler.cook(
            resources.files("deltasql.engines.spark.scan").joinpath("SnapshotFileIndex.java").read_text("utf-8")
        )
        _compiled[gateway] = compiler.getClassLoader().loadClass(_CLASS)
    return _compiled[gateway]


def pack(files: SnapshotFiles) -> str:
    """The files as the index takes them: one text, because each call into the JVM takes its time."""
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
    """A value as Java reads it."""
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
