"""Write rows to Parquet files of a table: names, sizes, partitions, statistics.

Runs in the user's process and in Spark's workers. A file is written under its final name, which is unique; it becomes
part of the table only when its `Add` is committed, so files of a failed attempt are never read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.engines.arrow.write.parquet_footers import FooterPlan, indexed_columns, plan_footers
from deltasql.engines.arrow.write.parquet_types import FloatBounds
from deltasql.engines.arrow.write.partition_rows import split
from deltasql.engines.written_files import WrittenFiles
from deltasql.errors import StorageError
from deltasql.protocol.actions import CHANGE_DATA_FOLDER, CHANGE_TYPE, Add, Cdc, from_dict
from deltasql.protocol.file_paths import encode_path, hive_directory
from deltasql.protocol.properties import TableProperties
from deltasql.protocol.schema import arrow_schema, loose_schema
from deltasql.protocol.schema_fit import with_columns
from deltasql.protocol.statistics import num_records
from deltasql.storage import Directory

_log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_GROUP_BYTES = 64 * _MIB
_GROUP_ROWS = 1024 * 1024
_SLICE_ROWS = 64 * 1024
_BUFFERED_BYTES = 256 * _MIB
_OPEN_FILES = 100
_CODECS = {"none": "none", "uncompressed": "none", **{c: c for c in ("snappy", "gzip", "zstd", "lz4", "brotli")}}

Path = tuple[str, ...]
Values = tuple[str | None, ...]


@dataclass(frozen=True)
class FilePlan:
    """Everything that a writer needs to know about a table; it is pickled to Spark's workers."""

    location: str
    options: Mapping[str, str]
    schema_string: str
    partition_columns: tuple[str, ...]
    properties: TableProperties
    token: str
    target_size: int
    folder: str = ""
    """The directory of the files below the table, with a trailing slash; empty for the root."""
    written: WrittenFiles | None = field(default=None, compare=False)
    """Records the files that this process writes; Spark tasks have none."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"written": None}

    def for_change_feed(self) -> FilePlan:
        """Return the plan for files of the change data feed, which have the column `_change_type`."""
        return replace(
            self, schema_string=with_columns(self.schema_string, {CHANGE_TYPE: "string"}), folder=CHANGE_DATA_FOLDER
        )

    @property
    def codec(self) -> str:
        """Return the compression codec."""
        return _CODECS.get(self.properties.codec, "snappy")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The parts of a plan that depend on the schema only."""

    schema: pa.Schema
    indexed: frozenset[Path]
    floats: tuple[Path, ...]
    """Float columns whose bounds the writer collects, because Parquet's exclude NaN."""
    statistics: bool | list[str]


@lru_cache(maxsize=64)
def _layout(
    schema_string: str, partition_columns: tuple[str, ...], num_indexed: int, stats_columns: tuple[str, ...] | None
) -> _Layout:
    table_schema = arrow_schema(schema_string)
    schema = loose_schema(table_schema, partition_columns)
    indexed = indexed_columns(table_schema, partition_columns, num_indexed, stats_columns)
    leaves = list(_leaves(schema))
    floats = tuple(path for path, _, kind in leaves if pa.types.is_floating(kind) and path in indexed)
    others = [dotted for _, dotted, kind in leaves if not pa.types.is_floating(kind)]
    return _Layout(schema, indexed, floats, len(others) == len(leaves) or others)


def _leaves(fields: Any, path: Path = (), dotted: str = "") -> Iterator[tuple[Path, str, pa.DataType]]:
    """Yield every leaf column: its path in structs, its name in Parquet, its type."""
    for child in fields:
        yield from _leaf(child.type, (*path, child.name), f"{dotted}{child.name}")


def _leaf(kind: pa.DataType, path: Path, dotted: str) -> Iterator[tuple[Path, str, pa.DataType]]:
    if pa.types.is_struct(kind):
        yield from _leaves(kind, path, f"{dotted}.")
    elif pa.types.is_map(kind):
        yield from _leaf(kind.key_type, (*path, "key"), f"{dotted}.key_value.key")
        yield from _leaf(kind.item_type, (*path, "value"), f"{dotted}.key_value.value")
    elif pa.types.is_list(kind):
        yield from _leaf(kind.value_type, (*path, "element"), f"{dotted}.list.element")
    else:
        yield path, dotted, kind


class TableFiles:
    """The files that one task writes: one open file per partition, closed at the target size."""

    def __init__(self, plan: FilePlan) -> None:
        self._plan = plan
        self._directory = Directory(plan.location, plan.options)
        num_indexed, stats_columns = plan.properties.num_indexed_columns, plan.properties.stats_columns
        self._layout = _layout(plan.schema_string, plan.partition_columns, num_indexed, stats_columns)
        self._unique = uuid4().hex[:12]
        self._open: dict[Values, _OpenFile] = {}
        self._created: list[str] = []
        self._footers: FooterPlan | None = None
        self.adds: list[Add] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                for values in list(self._open):
                    self._finish(values)
            except BaseException as problem:
                self._abandon(type(problem), problem, problem.__traceback__)
                raise
        else:
            self._abandon(kind, error, trace)

    def _abandon(self, *error: Any) -> None:
        for file in self._open.values():
            file.abandon(*error)
        self._delete_all()

    def _delete_all(self) -> None:
        """Delete every file that this writer created. A failed Spark task returns no files, so the driver cannot."""
        try:
            self._directory.delete(self._created)
        except (StorageError, OSError) as error:
            _log.warning(
                "%d files of a failed write could not be deleted at %s: %s",
                len(self._created),
                self._plan.location,
                error,
            )

    @property
    def count(self) -> int:
        """Return the number of files created so far."""
        return len(self._created)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that have all columns of the table, in order."""
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            for values, part in split(batch.slice(start, _SLICE_ROWS), self._plan.partition_columns):
                file = self._open.get(values) or self._create(values)
                file.take(part)
                if file.is_full(self._plan.target_size):
                    self._finish(values)
            if len(self._open) > 1:
                self._make_room()

    def _make_room(self) -> None:
        """Flush or close files so that many partitions stay within the limits of memory and open files."""
        while sum(file.buffered for file in self._open.values()) > _BUFFERED_BYTES:
            max(self._open.values(), key=lambda file: file.buffered).flush()
        while len(self._open) > _OPEN_FILES:
            self._finish(next(iter(self._open)))

    def _create(self, values: Values) -> _OpenFile:
        plan = self._plan
        directory = hive_directory(dict(zip(plan.partition_columns, values, strict=True)))
        suffix = "" if plan.codec == "none" else f".{plan.codec}"
        name = "cdc" if plan.folder == CHANGE_DATA_FOLDER else "part"
        path = f"{plan.folder}{directory}{name}-{len(self._created):05d}-{self._unique}{plan.token}{suffix}.parquet"
        self._created.append(path)
        if plan.written is not None:
            plan.written.add(path)
        file = _OpenFile(self._directory, path, self._layout, plan.codec)
        self._open[values] = file
        return file

    def _finish(self, values: Values) -> None:
        file = self._open.pop(values)
        metadata, size = file.finish()
        if self._footers is None or not self._footers.serves(metadata):
            columns = self._plan.partition_columns
            self._footers = plan_footers(metadata.schema, self._table_schema(), columns, self._layout.indexed)
        self.adds.append(
            Add(
                path=encode_path(file.path),
                size=size,
                modification_time=time.time_ns() // 1_000_000,
                partition_values=dict(zip(self._plan.partition_columns, values, strict=True)),
                stats=self._footers.stats(metadata, file.floats),
            )
        )

    def _table_schema(self) -> pa.Schema:
        return arrow_schema(self._plan.schema_string)


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written; rows are buffered until they make a row group."""

    directory: Directory
    path: str
    layout: _Layout
    codec: str
    floats: dict[Path, FloatBounds] = field(default_factory=dict)
    buffered: int = 0
    _rows: int = 0
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _footer: list[pq.FileMetaData] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)
    _sink: Any = None
    _writer: Any = None

    def take(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.buffered += batch.nbytes
        if self._rows >= _GROUP_ROWS or self.buffered >= _GROUP_BYTES:
            self.flush()

    def is_full(self, size: int) -> bool:
        """Return whether a file has the target size, assuming that compression halves the buffered rows."""
        written = self._sink.tell() if self._sink is not None else 0
        return bool(written + self.buffered / 2 >= size)

    def flush(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, self.layout.schema)
        for path in self.layout.floats:
            self.floats.setdefault(path, FloatBounds()).update(_column(table, path))
        with self._translated_errors():
            self._open().write_table(table, row_group_size=_GROUP_ROWS)
        self._batches, self._rows, self.buffered = [], 0, 0

    def _open(self) -> Any:
        if self._writer is None:
            self._sink = self._stack.enter_context(self.directory.writing(self.path))
            self._writer = pq.ParquetWriter(
                self._sink,
                self.layout.schema,
                compression=self.codec,
                write_statistics=self.layout.statistics,
                store_schema=False,
                coerce_timestamps="us",
                metadata_collector=self._footer,
            )
        return self._writer

    def finish(self) -> tuple[pq.FileMetaData, int]:
        """Close the file durably, and return its footer and its size."""
        self.flush()
        with self._translated_errors():
            self._writer.close()
            size = self._sink.tell()
            self._stack.close()
        return self._footer[0], size

    def abandon(self, *error: Any) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # else it writes the footer when it is collected
        with suppress(OSError):  # a full disk fails once more when its file is closed
            self._stack.__exit__(*error)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.abandon(type(error), error, error.__traceback__)
            raise StorageError(f"{self.directory.location}: cannot write {self.path}: {error}") from error


def _column(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return a leaf column; fields of a null struct are null."""
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column


def encode_adds(adds: Iterable[Add]) -> list[str]:
    """Serialize files that a Spark task returns to the driver."""
    return [msgspec.json.encode(add.to_dict()).decode() for add in adds]


def decode_add(text: str) -> Add:
    """Parse a file that a Spark task returned."""
    return from_dict(Add, msgspec.json.decode(text))


def as_cdc(adds: Sequence[Add]) -> list[Cdc]:
    """Return files of the change data feed as cdc actions."""
    return [Cdc(add.path, add.size, add.partition_values) for add in adds]


def count_rows(adds: Sequence[Add]) -> int:
    """Return the number of rows of files by their statistics."""
    return sum(num_records(add.stats) or 0 for add in adds)
