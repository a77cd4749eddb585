"""The files of a snapshot as Spark reads them: grouped by partition, with Hadoop paths and the schema. No session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engines.file_links import reject_links
from deltasql.engines.spark.scan.hadoop_paths import check_names, hadoop_paths, hadoop_root
from deltasql.errors import ValidationError
from deltasql.protocol.features import check_readable
from deltasql.protocol.partition_values import Stored, partition_value
from deltasql.protocol.table_changes import Snapshot

Json = dict[str, Any]

READ_OPTIONS = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""A missing or damaged file is an error whatever the session's settings are: its rows belong to the snapshot."""

_EXISTS_DEFAULT = "EXISTS_DEFAULT"


@dataclass(frozen=True, slots=True)
class Partition:
    """Files with the same partition values."""

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
        """Return the files of a snapshot. Raise if Spark cannot read the table, or would skip one of its files."""
        check_readable(snapshot.protocol, snapshot.name)
        _check_files(snapshot)
        fields = tuple(json.loads(snapshot.metadata.schema_string)["fields"])
        by_name = {field["name"]: field for field in fields}
        columns = tuple(by_name[name] for name in snapshot.metadata.partition_columns)
        return cls(snapshot.name, hadoop_root(snapshot.location), fields, columns, _partitions(snapshot, columns))

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Return the names of the partition columns, in order."""
        return tuple(field["name"] for field in self.partition_fields)

    @property
    def num_files(self) -> int:
        """Return the number of files in all partitions."""
        return sum(len(partition.paths) for partition in self.partitions)

    def read_fields(self) -> list[Json]:
        """Return the fields of the schema to read with, without existence defaults: Spark would fill a column that a
        file lacks with the default, but in a Delta table its value is null."""
        return [{**f, "metadata": _without(f.get("metadata") or {}, _EXISTS_DEFAULT)} for f in self.fields]


def altered_fields(schema_string: str) -> list[Json]:
    """Return the fields of a schema that `SnapshotFiles.read_fields` changes."""
    if _EXISTS_DEFAULT not in schema_string:
        return []
    return [f for f in json.loads(schema_string)["fields"] if _EXISTS_DEFAULT in (f.get("metadata") or {})]


def _without(metadata: Json, key: str) -> Json:
    return {k: v for k, v in metadata.items() if k != key}


def _check_files(snapshot: Snapshot) -> None:
    files = snapshot.files
    check_names(files["path"].to_pylist(), snapshot.name)
    empty = files.filter(pc.less_equal(files["size"], 0))
    if empty.num_rows:
        path = empty["path"][0].as_py()
        raise ValidationError(
            f"table {snapshot.name}: file {path!r} has size 0 in the log, so Spark would skip it: remove it from the "
            f"table, or add it again with its size",
            table=snapshot.name,
            table_id=snapshot.table_id,
            value=path,
        )


def _partitions(snapshot: Snapshot, columns: Sequence[Json]) -> tuple[Partition, ...]:
    files = snapshot.files
    partitions: dict[tuple[str | None, ...], Partition] = {}
    texts = _texts(files, [column["name"] for column in columns])
    reject_links(snapshot)
    paths = hadoop_paths(snapshot.location, files["path"].to_pylist())
    sizes, times = files["size"].to_pylist(), files["modification_time"].to_pylist()
    for key, path, size, time in zip(texts, paths, sizes, times, strict=True):
        partition = partitions.get(key)
        if partition is None:
            partition = partitions[key] = Partition(_values(key, columns, snapshot.name))
        partition.paths.append(path)
        partition.sizes.append(size)
        partition.times.append(time)
    return tuple(partitions.values())


def _texts(files: pa.Table, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Return the partition values of each file as stored in the log."""
    if not columns:
        return [()] * files.num_rows
    values = files["partition_values"].combine_chunks()
    return list(zip(*(pc.struct_field(values, [name]).to_pylist() for name in columns), strict=True))


def _values(texts: Sequence[str | None], columns: Sequence[Json], table: str) -> tuple[Stored, ...]:
    return tuple(
        partition_value(column["type"], text, table=table, column=column["name"])
        for column, text in zip(columns, texts, strict=True)
    )
