"""The plain scan: read a snapshot through Spark's public API only, on every session, Spark Connect included.

Spark reads an explicit list of files with an explicit schema. Partition values come from the log: with few partitions
as literals, one read per partition, so that filters prune whole reads; with many through a join on the file's URI.
Every column is nullable, as in every file source of Spark.
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
from deltasql.engines.spark.scan.row_ids import FILE, ROW, URI_FIELDS, file_id, row_id_columns
from deltasql.engines.spark.scan.scan_files import Partition, SnapshotFiles
from deltasql.engines.spark.session import is_classic
from deltasql.protocol.constraints import quoted
from deltasql.protocol.schema import struct_type
from deltasql.protocol.schema_fit import nullable

MOST_LITERALS = 20
"""Up to this number of partitions, a read per partition is cheaper to plan than a join."""

_OPTIONS = {"recursiveFileLookup": "true"}  # takes no partition values from directories


def read_plain(
    spark: SparkSession, files: SnapshotFiles, options: Mapping[str, str], *, row_ids: bool = False
) -> DataFrame:
    """Return the rows of a snapshot, with their row ids if `row_ids` is set."""
    schema = StructType.fromJson(nullable(struct_type(files.read_fields())))
    if not files.partitions:
        empty = spark.createDataFrame([], StructType([*schema, *URI_FIELDS]) if row_ids else schema)
        return empty.withColumn(FILE, file_id(F.col(FILE))) if row_ids else empty
    scan = _PlainScan(spark, files, schema, {**options, **_OPTIONS}, row_ids=row_ids)
    with quick_listing(spark, files.root, files.num_files):
        rows = scan.with_literals() if len(files.partitions) <= MOST_LITERALS else scan.with_join()
        _ = rows.schema  # makes a Connect session list the files now
    return rows


class _PlainScan:
    """The two plans of a plain scan."""

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

    def with_literals(self) -> DataFrame:
        """Return the union of one read per partition, with the partition's values as literals."""
        return reduce(lambda left, right: left.union(right), map(self._read_partition, self._partitions))

    def _read_partition(self, partition: Partition) -> DataFrame:
        values = zip(self._columns, partition.values, strict=True)
        return self._in_table_order(self._read(partition.paths), {c.name: c.typed(F.lit(value)) for c, value in values})

    def with_join(self) -> DataFrame:
        """Return one read of all files, joined with the partition values of each file."""
        key, values = self._free_name("file"), self._free_name("values")
        data = self._read([path for partition in self._partitions for path in partition.paths], key)
        joined = data.join(F.broadcast(self._lookup(key, values)), key, "left")
        unknown = F.raise_error(F.concat(F.lit("no partition values are known for "), F.col(key)))
        partition_values = {
            c.name: F.when(F.col(values).isNull(), unknown).otherwise(F.col(values).getField(f"c{index}"))
            for index, c in enumerate(self._columns)
        }
        return self._in_table_order(joined, partition_values)

    def _lookup(self, key: str, values: str) -> DataFrame:
        """Return the partition values of every file by its URI."""
        uris = [hadoop_uri(path) for partition in self._partitions for path in partition.paths]
        stored = {
            f"c{index}": pa.array([p.values[index] for p in self._partitions for _ in p.paths], c.storage)
            for index, c in enumerate(self._columns)
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
        extra = row_id_columns(rows) if self._row_ids else []
        if uri is not None:
            extra.append(rows.metadataColumn("_metadata").getField("file_path").alias(uri))
        return rows.select("*", *extra) if extra else rows

    def _in_table_order(self, data: DataFrame, partition_values: Mapping[str, Column]) -> DataFrame:
        """Return all columns in the table's order; partition columns are nullable too, whatever values they have."""
        ids = [F.col(FILE), F.col(ROW)] if self._row_ids else []
        if not partition_values:
            return data.select(*(F.col(quoted(field.name)) for field in self._schema), *ids) if ids else data
        always = F.lit(1) == F.lit(1)  # folded by the optimizer, after the analyzer took the column for nullable
        return data.select(
            *(
                F.when(always, partition_values[field.name]).alias(field.name, metadata=field.metadata)
                if field.name in partition_values
                else F.col(quoted(field.name))
                for field in self._schema
            ),
            *ids,
        )


@dataclass(frozen=True, slots=True)
class _PartitionColumn:
    """A partition column: the Arrow type that carries its values to Spark, and the cast to its type there."""

    name: str
    kind: str
    type: DataType

    @property
    def storage(self) -> pa.DataType:
        return _STORAGE.get(self.kind.partition("(")[0], pa.string())

    def typed(self, stored: Column) -> Column:
        """Return a value of `protocol.partition_values` in the column's type, independent of the session time zone."""
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
