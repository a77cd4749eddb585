"""Read the rows of a snapshot from its Parquet files with Arrow.

A `Scan` is a value: it is validated when it is created, and can be read more than once. Reading streams record batches,
file by file, prepared by threads. The schema, its order and the partition values come from the log, never from files or
their paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.engines.arrow.file_footer import FileFooter
from deltasql.engines.arrow.read.conform import FieldIndex, Misfit
from deltasql.engines.arrow.read.deletion_vector_read import LazyDeletedRows, live_mask
from deltasql.engines.arrow.read.file_columns import FileColumns
from deltasql.engines.arrow.read.prefetch import Task, in_order
from deltasql.engines.arrow.read.row_groups import matching_groups
from deltasql.engines.file_links import reject_links
from deltasql.errors import StorageError, UnsupportedFeature, ValidationError, shown, unknown_column
from deltasql.expressions.arrow_values import numpy_of
from deltasql.protocol.deletion_vectors import Numbers
from deltasql.protocol.features import MAX_READER, unsupported
from deltasql.protocol.table_changes import Snapshot
from deltasql.storage import Directory, is_local

if TYPE_CHECKING:
    from deltasql.expressions.row_filter import RowFilter

_BATCH_ROWS = 32 * 1024
_BATCH_BYTES = 16 << 20
# Several threads read a large file; each takes the row groups that start in its part.
_PART_BYTES = 32 << 20
_ROOM = 64 << 20  # per thread
_REMOTE_THREADS = 16
_FILES_AT_ONCE = 1024
_TASK_BYTES = 128 << 20
_TASK_FILE_BYTES = 4 << 20  # the cost of opening a file, as bytes read in the same time


@dataclass(frozen=True, slots=True)
class _Part:
    """A byte range of a data file, with the file's partition values."""

    path: str
    start: float
    end: float
    values: Mapping[str, str | None]
    deleted: LazyDeletedRows | None


@dataclass(frozen=True, slots=True)
class Scan:
    """Columns and rows of a snapshot to read.

    Attributes:
        snapshot: The files.
        directory: The location of the files.
        schema: The columns to read.
        keep: The row filter of the snapshot's predicate.
        only: A further condition, given by the consuming engine.
    """

    snapshot: Snapshot
    directory: Directory
    schema: pa.Schema
    keep: RowFilter | None
    only: pc.Expression | None = None

    def narrowed(self, columns: Sequence[str], only: pc.Expression | None) -> Scan:
        """Return a scan of fewer columns, and of the rows that satisfy an Arrow expression."""
        return replace(self, schema=_selected(self.snapshot, self.schema, columns), only=only)

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream with a bounded buffer.

        The consumer may run on one of Arrow's threads, where waiting for work on Arrow's threads would be a deadlock;
        so the stream uses none of them.
        """
        return self._stream(_ROOM, columns_at_once=False)

    def table(self) -> pa.Table:
        """Return all rows."""
        return self._stream(math.inf, columns_at_once=True).read_all()

    def _stream(self, room: float, *, columns_at_once: bool) -> pa.RecordBatchReader:
        parts = int(np.maximum(numpy_of(self.snapshot.files["size"]) // _PART_BYTES, 1).sum())
        local = is_local(self.directory.location)
        most = pa.cpu_count() if local else max(pa.cpu_count(), _REMOTE_THREADS)
        threads = max(1, min(most, parts))
        # Neighbouring columns are read with one request from an object store; a local disk does not need it.
        options = {"pre_buffer": not local, "coerce_int96_timestamp_unit": "us"}
        tasks = _ScanRun(self, self._read_schema(), options, columns_at_once and parts < most).tasks()
        batches = in_order(tasks, _bytes, threads=threads, room=room * threads)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def _read_schema(self) -> pa.Schema:
        """Return the columns to read, followed by those that only the predicate needs."""
        predicate = self.snapshot.predicate
        names = {path[0] for path in predicate.columns} if predicate else set()
        return pa.schema([*self.schema, *(self.snapshot.schema.field(n) for n in sorted(names - {*self.schema.names}))])


def scan(snapshot: Snapshot, storage_options: Mapping[str, str], columns: Sequence[str] | None = None) -> Scan:
    """Return the scan of a snapshot, filtered by its predicate. Raise if the table or the columns cannot be read."""
    _check_features(snapshot)
    schema = snapshot.schema if columns is None else _selected(snapshot, snapshot.schema, columns)
    keep = snapshot.predicate.row_filter(snapshot.name) if snapshot.predicate else None
    reject_links(snapshot)
    return Scan(snapshot, Directory(snapshot.location, storage_options), schema, keep)


def split_into_tasks(snapshot: Snapshot) -> list[Snapshot]:
    """Split a snapshot into tasks that read about 128 MiB each."""
    tasks, start, size = [], 0, 0
    sizes = snapshot.files["size"].to_pylist()
    for index, file_size in enumerate(sizes):
        cost = file_size + _TASK_FILE_BYTES
        if index > start and size + cost > _TASK_BYTES:
            tasks.append((start, index))
            start, size = index, 0
        size += cost
    tasks += [(start, len(sizes))] if sizes else []
    return [replace(snapshot, files=snapshot.files.slice(a, b - a)) for a, b in tasks]


def single_file(snapshot: Snapshot, index: int) -> Snapshot:
    """Return a snapshot of one of the files."""
    return replace(snapshot, files=snapshot.files.slice(index, 1))


def _check_features(snapshot: Snapshot) -> None:
    protocol = snapshot.protocol
    unknown = unsupported(protocol.reader_features or ())
    if snapshot.metadata.table_properties.column_mapping_mode != "none":
        unknown = (*unknown, "columnMapping")
    if unknown or protocol.min_reader_version > MAX_READER:
        what = ", ".join(unknown) or f"reader version {protocol.min_reader_version}"
        raise UnsupportedFeature(
            f"table {snapshot.name}: this release of deltasql cannot read tables with {what}: upgrade deltasql",
            features=unknown,
            table=snapshot.name,
        )


def _selected(snapshot: Snapshot, schema: pa.Schema, columns: Any) -> pa.Schema:
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Iterable) else None
    if names is None:
        problem = f"columns must be a list of column names, got {shown(columns)}"
        raise ValidationError(f"table {snapshot.name}: {problem}", table=snapshot.name, value=columns)
    if not names:
        raise ValidationError(f"table {snapshot.name}: columns is empty: name one, or leave it out for all")
    fields, indexes = [], FieldIndex(schema)
    for name in names:
        index = indexes.find(name) if isinstance(name, str) else None
        if index is None:
            problem = unknown_column(name, schema.names)
            raise ValidationError(f"table {snapshot.name}: {problem}", table=snapshot.name, value=name)
        if schema.field(index) in fields:
            raise ValidationError(f"table {snapshot.name}: column {shown(name)} is listed twice", value=name)
        fields.append(schema.field(index))
    return pa.schema(fields)


def _bytes(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)


class _ScanRun:
    """One pass over the files of a scan."""

    def __init__(self, scan: Scan, schema: pa.Schema, options: Mapping[str, Any], columns_at_once: bool) -> None:
        self._scan = scan
        self._schema = schema
        self._options = options
        self._snapshot = scan.snapshot
        self._columns_at_once = columns_at_once

    def tasks(self) -> Iterator[Task[pa.RecordBatch]]:
        """Yield independent tasks for threads, file by file."""
        columns = ["path", "size", "partition_values", "deletion_vector"]
        for files in self._snapshot.files.select(columns).to_batches(_FILES_AT_ONCE):
            for file in files.to_pylist():
                for part in self._parts(file):
                    yield partial(self._read, part)

    def _parts(self, file: Mapping[str, Any]) -> Iterator[_Part]:
        """Yield parts of about the same size; the last one is unbounded, so a wrong size in the log loses no rows."""
        size, vector = file["size"], file["deletion_vector"]
        deleted = LazyDeletedRows(self._scan.directory, vector, self._snapshot.name) if vector is not None else None
        count = max(1, size // _PART_BYTES)
        ends = [*(size * i // count for i in range(1, count)), math.inf]
        for start, end in zip([-math.inf, *ends], ends, strict=False):
            yield _Part(unquote(file["path"]), start, end, file["partition_values"] or {}, deleted)

    def _read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        with self._error_context(part.path), self._scan.directory.reading(part.path) as source:
            footer = FileFooter(source)
            file = pq.ParquetFile(source, metadata=footer.metadata, **self._options)
            columns = FileColumns(
                self._schema, self._snapshot.metadata.partition_columns, part.values, file.schema_arrow
            )
            groups = self._groups(file, part, footer)
            batches = self._batches(file, groups, columns, footer)
            if part.deleted is not None and groups:
                batches = _without(part.deleted.numbers(), file.metadata, groups, batches)
            for batch in batches:
                yield from self._filtered(batch)

    def _groups(self, file: pq.ParquetFile, part: _Part, footer: FileFooter) -> list[int]:
        groups = list(range(file.metadata.num_row_groups))
        if (part.start, part.end) != (-math.inf, math.inf):
            # Row groups are taken in order, whatever their offset, because rows are numbered in this order.
            begins = accumulate((_begin(footer, group) for group in groups), max)
            groups = [group for group, begin in enumerate(begins) if part.start <= begin < part.end]
        predicate = self._snapshot.predicate
        return matching_groups(footer, file.schema_arrow, groups, predicate) if predicate and groups else groups

    def _batches(
        self, file: pq.ParquetFile, groups: Sequence[int], columns: FileColumns, footer: FileFooter
    ) -> Iterator[pa.RecordBatch]:
        size = _batch_rows(footer, groups, columns.stored)
        if columns.stored and groups:
            options = {"row_groups": groups, "columns": columns.stored, "use_threads": self._columns_at_once}
            yield from map(columns.convert, file.iter_batches(size, **options))
            return
        for group in groups:
            rows = file.metadata.row_group(group).num_rows
            yield from (columns.constants(min(size, rows - start)) for start in range(0, rows, size))

    def _filtered(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows, if any, without the columns that only the predicate needs."""
        rows = batch.select(self._scan.schema.names)
        if self._scan.keep is not None:
            mask = self._scan.keep(batch)
            if isinstance(mask, pa.Scalar):
                rows = rows if mask.as_py() else rows.slice(0, 0)
            elif mask.true_count < len(mask):
                rows = rows.filter(mask)
        if self._scan.only is None:
            return iter([rows] if rows.num_rows else [])
        return iter(pa.Table.from_batches([rows]).filter(self._scan.only).to_batches())

    @contextmanager
    def _error_context(self, path: str) -> Iterator[None]:
        """Add the table and the file to errors of reading."""
        subject = f"table {self._snapshot.name}: file {path!r} of version {self._snapshot.version}"
        try:
            yield
        except Misfit as error:
            raise ValidationError(f"{subject} does not fit the table: {error}", table=self._snapshot.name) from error
        except StorageError as error:
            missing = isinstance(error.__cause__, FileNotFoundError)
            problem = "does not exist: was it moved or deleted?" if missing else f"cannot be read: {error}"
            raise self._unreadable(f"{subject} {problem}") from error
        except (pa.ArrowException, ValueError, OverflowError, MemoryError) as error:
            raise self._unreadable(f"{subject} cannot be read: {str(error).partition(chr(10))[0]}") from error

    def _unreadable(self, text: str) -> StorageError:
        error = StorageError(text)
        error.table, error.table_id = self._snapshot.name, self._snapshot.table_id
        return error


def _without(
    deleted: Numbers, metadata: pq.FileMetaData, groups: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups that are not deleted."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    mask = np.concatenate([live_mask(deleted, sum(counts[:group]), counts[group]) for group in groups])
    at = 0
    for batch in batches:
        part = mask[at : at + batch.num_rows]
        at += batch.num_rows
        yield batch if part.all() else batch.filter(pa.array(part))


def _begin(footer: FileFooter, group: int) -> int:
    """Return the offset of a row group in its file."""
    first = footer.chunk(group, 0)
    return int(first.dictionary_page_offset or first.data_page_offset)


def _batch_rows(footer: FileFooter, groups: Sequence[int], columns: Sequence[str]) -> int:
    """Return a number of rows with which a batch of the columns takes at most some megabytes."""
    metadata = footer.metadata
    row_groups = [metadata.row_group(group) for group in groups]
    rows = sum(group.num_rows for group in row_groups)
    size = sum(group.total_byte_size for group in row_groups)
    if size > _BATCH_BYTES * rows // _BATCH_ROWS:
        names = tuple(f"{name}." for name in columns)
        leaves = [i for i in range(metadata.num_columns) if f"{metadata.schema.column(i).path}.".startswith(names)]
        size = sum(footer.chunk(group, i).total_uncompressed_size for group in groups for i in leaves)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(size, 1))))
