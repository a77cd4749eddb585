"""What a snapshot has for Spark to read: files by partition, their addresses, and the schema. Knows no session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engines.spark.scan.hadoop_paths import check_names, hadoop_paths, hadoop_root
from deltasql.errors import ValidationError
from deltasql.protocol.features import check_readable
from deltasql.protocol.partition_values import Stored, partition_value
from deltasql.store import Snapshot

Json = dict[str, Any]

READ_OPTIONS = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""A file that is not there, or not whole, is an error whatever the session says: its rows are part of the snapshot."""

_FILLED_IN = "EXISTS_DEFAULT"


@dataclass(frozen=True, slots=True)
class Partition:
    """Files that have their partition values in common."""

    values: tuple[Stored, ...]
    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of one snapshot of a table."""

    table: str
    root: str
    fields: tuple[Json, ...]
    partition_fields: tuple[Json, ...]
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotFiles:
        """The files of a snapshot that Spark can read whole; any other is refused."""
        check_readable(snapshot.protocol, snapshot.name)
        _check_files(snapshot)
        fields = tuple(json.loads(snapshot.metadata.schema_string)["fields"])
        by_name = {field["name"]: field for field in fields}
        columns = tuple(by_name[name] for name in snapshot.metadata.partition_columns)
        return cls(snapshot.name, hadoop_root(snapshot.location), fields, columns, _partitions(snapshot, columns))

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(field["name"] for field in self.partition_fields)

    @property
    def num_files(self) -> int:
        """Over all partitions."""
        return sum(len(partition.paths) for partition in self.partitions)

    def read_fields(self) -> list[Json]:
        """The schema to read with. Spark would fill a column that a file lacks with what this key says; the rows of
        a Delta table have null there."""
        return [{**f, "metadata": _without(f.get("metadata") or {}, _FILLED_IN)} for f in self.fields]


def altered_fields(schema_string: str) -> list[Json]:
    """The fields of a schema that `SnapshotFiles.read_fields` has otherwise."""
    if _FILLED_IN not in schema_string:
        return []
    return [f for f in json.loads(schema_string)["fields"] if _FILLED_IN in (f.get("metadata") or {})]


def _without(metadata: Json, key: str) -> Json:
    return {k: v for k, v in metadata.items() if k != key}


def _check_files(snapshot: Snapshot) -> None:
    files = snapshot.files
    check_names(files["path"].to_pylist(), snapshot.name)
    empty = files.filter(pc.less_equal(files["size"], 0))
    if empty.num_rows:
        path = empty["path"][0].as_py()
        raise ValidationError(
            f"table {snapshot.name}: file {path!r} has no bytes by the log, so it is no Parquet file, and Spark would "
            f"skip it: remove it from the table, or add it again with its size",
            table=snapshot.name,
            table_id=snapshot.table_id,
            value=path,
        )


def _partitions(snapshot: Snapshot, columns: Sequence[Json]) -> tuple[Partition, ...]:
    files = snapshot.files
    found: dict[tuple[str | None, ...], Partition] = {}
    texts = _texts(files, [column["name"] for column in columns])
    paths = hadoop_paths(snapshot.location, files["path"].to_pylist())
    sizes, times = files["size"].to_pylist(), files["modification_time"].to_pylist()
    for key, path, size, time in zip(texts, paths, sizes, times, strict=True):
        partition = found.get(key)
        if partition is None:
            partition = found[key] = Partition(_values(key, columns, snapshot.name))
        partition.paths.append(path)
        partition.sizes.append(size)
        partition.times.append(time)
    return tuple(found.values())


def _texts(files: pa.Table, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
    """The partition values of each file, as the log has them."""
    if not columns:
        return [()] * files.num_rows
    values = files["partition_values"].combine_chunks()
    return list(zip(*(pc.struct_field(values, [name]).to_pylist() for name in columns), strict=True))


def _values(texts: Sequence[str | None], columns: Sequence[Json], table: str) -> tuple[Stored, ...]:
    return tuple(
        partition_value(column["type"], text, table=table, column=column["name"])
        for column, text in zip(columns, texts, strict=True)
    )
