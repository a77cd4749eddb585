"""A snapshot by Spark's public API alone: what works on every session, Spark Connect included.

Spark reads exactly the files that it is told to, by a schema that it is told too. Partition values come from the log:
few of them as literals, one read for each, so that a filter leaves whole reads out; many by a join on the files' names.
Every column is nullable, as Spark makes it for files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from deltasql.engines.spark.scan.hadoop_paths import escaped, hadoop_uri
from deltasql.engines.spark.scan.listing_settings import quick_listing
from deltasql.engines.spark.scan.row_ids import FILE, ROW, URI_FIELDS, file_id, places
from deltasql.engines.spark.scan.scan_files import Partition, SnapshotFiles
from deltasql.engines.spark.session import is_classic
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import struct_type
from deltasql.protocol.schema_fit import nullable

MOST_LITERALS = 20
"""Each partition costs a read to plan; from some number on, one join is cheaper."""

_OPTIONS = {"recursiveFileLookup": "true"}  # no partition values from directories


def plain(spark: SparkSession, files: SnapshotFiles, options: Mapping[str, str], *, row_ids: bool = False) -> DataFrame:
    """The rows of a snapshot, with the places where they lie if those are asked for."""
    schema = StructType.fromJson(nullable(struct_type(files.read_fields())))
    if not files.partitions:
        empty = spark.createDataFrame([], StructType([*schema, *URI_FIELDS]) if row_ids else schema)
        return empty.withColumn(FILE, file_id(F.col(FILE))) if row_ids else empty
    reading = _Reading(spark, files, schema, {**options, **_OPTIONS}, row_ids=row_ids)
    with quick_listing(spark, files.root, files.num_files):
        found = reading.by_literals() if len(files.partitions) <= MOST_LITERALS else reading.by_join()
        _ = found.schema  # a Connect session looks at the files now, and not before
    return found


class _Reading:
    """Both ways to the rows of a table."""

    def __init__(
        self,
        spark: SparkSession,
        files: SnapshotFiles,
        schema: StructType,
        options: Mapping[str, str],
        *,
        row_ids: bool,
    ) -> None:
        self._spark = spark
        self._partitions = files.partitions
        self._schema = schema
        self._options = options
        self._row_ids = row_ids
        self._data = StructType([field for field in schema if field.name not in files.partition_columns])
        self._columns = [
            _PartitionColumn(field["name"], field["type"], schema[field["name"]].dataType)
            for field in files.partition_fields
        ]

    def by_literals(self) -> DataFrame:
        """One read for each partition, with its values as literals."""
        return reduce(lambda one, other: one.union(other), map(self._of_partition, self._partitions))

    def _of_partition(self, partition: Partition) -> DataFrame:
        values = zip(self._columns, partition.values, strict=True)
        return self._in_order(self._read(partition.paths), {c.name: c.typed(F.lit(value)) for c, value in values})

    def by_join(self) -> DataFrame:
        """One read of everything; each row finds the values of its file."""
        key, values = self._free_name("file"), self._free_name("values")
        data = self._read([path for partition in self._partitions for path in partition.paths], key)
        joined = data.join(F.broadcast(self._lookup(key, values)), key, "left")
        unknown = F.raise_error(F.concat(F.lit("no partition values are known for "), F.col(key)))
        found = {
            c.name: F.when(F.col(values).isNull(), unknown).otherwise(F.col(values).getField(f"c{place}"))
            for place, c in enumerate(self._columns)
        }
        return self._in_order(joined, found)

    def _lookup(self, key: str, values: str) -> DataFrame:
        """The partition values of every file, by its URI."""
        uris = [hadoop_uri(path) for partition in self._partitions for path in partition.paths]
        stored = {
            f"c{place}": pa.array([p.values[place] for p in self._partitions for _ in p.paths], c.storage)
            for place, c in enumerate(self._columns)
        }
        table = self._spark.createDataFrame(pa.table({key: uris, **stored}))
        typed = [c.typed(F.col(name)).alias(name) for name, c in zip(stored, self._columns, strict=True)]
        return table.select(key, F.struct(*typed).alias(values))

    def _free_name(self, name: str) -> str:
        taken = {field.name.lower() for field in self._schema}
        while name in taken:
            name += "_"
        return name

    def _read(self, paths: Sequence[str], uri: str | None = None) -> DataFrame:
        reader = self._spark.read.schema(self._data).options(**self._options)
        if is_classic(self._spark):
            rows = reader.option("__globPaths__", "false").parquet(*paths)
        else:
            rows = reader.parquet(*map(escaped, paths))
        more = places(rows) if self._row_ids else []
        if uri is not None:
            more.append(rows.metadataColumn("_metadata").getField("file_path").alias(uri))
        return rows.select("*", *more) if more else rows

    def _in_order(self, data: DataFrame, found: Mapping[str, Column]) -> DataFrame:
        """All columns in the table's order; partition columns are nullable too, whatever they hold at the moment."""
        ids = [F.col(FILE), F.col(ROW)] if self._row_ids else []
        if not found:
            return data.select(*(F.col(quoted(field.name)) for field in self._schema), *ids) if ids else data
        always = F.lit(1) == F.lit(1)  # known to be true when the plan is optimized, and not before
        return data.select(
            *(
                F.when(always, found[field.name]).alias(field.name, metadata=field.metadata)
                if field.name in found
                else F.col(quoted(field.name))
                for field in self._schema
            ),
            *ids,
        )


@dataclass(frozen=True, slots=True)
class _PartitionColumn:
    """A partition column: how its values are handed to Spark, and what makes them values of its type there."""

    name: str
    kind: str
    type: DataType

    @property
    def storage(self) -> pa.DataType:
        return _STORAGE.get(self.kind.partition("(")[0], pa.string())

    def typed(self, stored: Column) -> Column:
        """The value of what `core.partition_values` gives, the same in every time zone of a session."""
        match self.kind:
            case "date":
                return F.date_from_unix_date(stored.cast("int"))
            case "timestamp":
                return F.timestamp_micros(stored.cast("bigint"))
            case "timestamp_ntz":
                epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
                return F.timestamp_add("MICROSECOND", stored.cast("bigint"), epoch)
            case "void" | "null":
                return F.lit(None)
        return stored.cast(self.type)


_STORAGE = {
    **dict.fromkeys(("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"), pa.int64()),
    "float": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
