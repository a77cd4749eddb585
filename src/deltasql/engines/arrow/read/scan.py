"""The rows of one snapshot of a table, straight from its Parquet files.

A `Scan` is a value: what to read is fixed when it is made, and everything that can be refused is refused then. Reading
it streams record batches, file by file, prepared by threads; it can be read more than once. The schema, its
order and the partition values come from the log, never from files or their paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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

from deltasql.engines.arrow.read.conform import Misfit, Places
from deltasql.engines.arrow.read.deletion_vector_read import Deleted, live_mask
from deltasql.engines.arrow.read.file_columns import Columns
from deltasql.engines.arrow.read.prefetch import Task, in_order
from deltasql.engines.arrow.read.row_groups import matching_groups
from deltasql.errors import StorageError, UnsupportedFeature, ValidationError, unknown_column
from deltasql.expressions.arrow_values import numpy_of
from deltasql.protocol.deletion_vectors import Numbers
from deltasql.protocol.features import MAX_READER, unsupported
from deltasql.storage import Directory, is_local
from deltasql.store import Snapshot

if TYPE_CHECKING:
    from deltasql.expressions.row_filter import RowFilter

_BATCH_ROWS = 32 * 1024
_BATCH_BYTES = 16 << 20
# A file of several row groups is read by several threads, each of which takes those that begin in its part.
_PART_BYTES = 32 << 20
_ROOM = 64 << 20  # per thread
_REMOTE_THREADS = 16
_FILES_AT_ONCE = 1024
_TASK_BYTES = 128 << 20
_TASK_FILE_BYTES = 4 << 20  # what opening a file costs, as bytes that are read meanwhile


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a data file, from one byte to another, with the file's partition values."""

    path: str
    start: float
    end: float
    values: Mapping[str, str | None]
    deleted: Deleted | None


@dataclass(frozen=True, slots=True)
class Scan:
    """Some columns of the rows of a snapshot, those that `keep` keeps; `only` is what an engine asks beyond that."""

    snapshot: Snapshot
    directory: Directory
    schema: pa.Schema
    keep: RowFilter | None
    only: pc.Expression | None = None

    def narrowed(self, columns: Sequence[str], only: pc.Expression | None) -> Scan:
        """Fewer rows, as Arrow understands the condition, and of their columns only these."""
        return replace(self, schema=_selected(self.snapshot, self.schema, columns), only=only)

    def batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of which little waits to be taken.

        Whoever takes it may do so on a thread of Arrow's: waiting there for work on Arrow's threads would never end, so
        there is none.
        """
        return self._stream(_ROOM, columns_at_once=False)

    def table(self) -> pa.Table:
        """All rows."""
        return self._stream(math.inf, columns_at_once=True).read_all()

    def _stream(self, room: float, *, columns_at_once: bool) -> pa.RecordBatchReader:
        parts = int(np.maximum(numpy_of(self.snapshot.files["size"]) // _PART_BYTES, 1).sum())
        local = is_local(self.directory.location)
        most = pa.cpu_count() if local else max(pa.cpu_count(), _REMOTE_THREADS)
        threads = max(1, min(most, parts))
        # A store is asked for neighbouring columns at once; a disk need not be.
        options = {"pre_buffer": not local, "coerce_int96_timestamp_unit": "us"}
        tasks = _Reading(self, self._read_schema(), options, columns_at_once and parts < most).tasks()
        batches = in_order(tasks, _bytes, threads=threads, room=room * threads)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def _read_schema(self) -> pa.Schema:
        """The columns that are asked for, and behind them those that only the predicate needs."""
        predicate = self.snapshot.predicate
        asked = {path[0] for path in predicate.columns} if predicate else set()
        return pa.schema([*self.schema, *(self.snapshot.schema.field(n) for n in sorted(asked - {*self.schema.names}))])


def scan(snapshot: Snapshot, storage_options: Mapping[str, str], columns: Sequence[str] | None = None) -> Scan:
    """Make sure that the rows of a snapshot can be read; those, if it was read with a predicate, that match."""
    _check_features(snapshot)
    schema = snapshot.schema if columns is None else _selected(snapshot, snapshot.schema, columns)
    keep = snapshot.predicate.row_filter(snapshot.name) if snapshot.predicate else None
    return Scan(snapshot, Directory(snapshot.location, storage_options), schema, keep)


def split_into_tasks(snapshot: Snapshot) -> list[Snapshot]:
    """A snapshot in pieces: so many files each that a task reads about 128 MiB."""
    tasks, start, size = [], 0, 0
    sizes = snapshot.files["size"].to_pylist()
    for place, one in enumerate(sizes):
        cost = one + _TASK_FILE_BYTES
        if place > start and size + cost > _TASK_BYTES:
            tasks.append((start, place))
            start, size = place, 0
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


def _selected(snapshot: Snapshot, schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValidationError(f"table {snapshot.name}: columns is empty: name one, or leave it out for all")
    fields, places = [], Places(schema)
    for name in names:
        place = places.find(name) if isinstance(name, str) else None
        if place is None:
            problem = unknown_column(name, schema.names)
            raise ValidationError(f"table {snapshot.name}: {problem}", table=snapshot.name, value=name)
        if schema.field(place) in fields:
            raise ValidationError(f"table {snapshot.name}: column {name!r} is asked for twice", value=name)
        fields.append(schema.field(place))
    return pa.schema(fields)


def _bytes(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)


class _Reading:
    """One pass over the files of a scan."""

    def __init__(self, scan: Scan, schema: pa.Schema, options: Mapping[str, Any], columns_at_once: bool) -> None:
        self._scan = scan
        self._schema = schema
        self._options = options
        self._snapshot = scan.snapshot
        self._columns_at_once = columns_at_once

    def tasks(self) -> Iterator[Task[pa.RecordBatch]]:
        """What threads can do on their own, file by file."""
        columns = ["path", "size", "partition_values", "deletion_vector"]
        for files in self._snapshot.files.select(columns).to_batches(_FILES_AT_ONCE):
            for file in files.to_pylist():
                for part in self._parts(file):
                    yield partial(self._read, part)

    def _parts(self, file: Mapping[str, Any]) -> Iterator[_Part]:
        """A file in parts of about the same size; the last one has no end, so a wrong size in the log loses nothing."""
        size, vector = file["size"], file["deletion_vector"]
        deleted = Deleted(self._scan.directory, vector, self._snapshot.name) if vector is not None else None
        count = max(1, size // _PART_BYTES)
        ends = [*(size * i // count for i in range(1, count)), math.inf]
        for start, end in zip([-math.inf, *ends], ends, strict=False):
            yield _Part(unquote(file["path"]), start, end, file["partition_values"] or {}, deleted)

    def _read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        with self._naming(part.path), self._scan.directory.reading(part.path) as source:
            file = pq.ParquetFile(source, **self._options)
            columns = Columns(self._schema, self._snapshot.metadata.partition_columns, part.values, file.schema_arrow)
            groups = self._groups(file, part)
            batches = self._batches(file, groups, columns)
            if part.deleted is not None and groups:
                batches = _without(part.deleted.numbers(), file.metadata, groups, batches)
            for batch in batches:
                yield from self._kept(batch)

    def _groups(self, file: pq.ParquetFile, part: _Part) -> list[int]:
        metadata = file.metadata
        # Wherever a group lies in the file, it comes in its turn: rows are numbered in this order.
        begins = accumulate((_begin(metadata, i) for i in range(metadata.num_row_groups)), max)
        groups = [i for i, begin in enumerate(begins) if part.start <= begin < part.end]
        predicate = self._snapshot.predicate
        return matching_groups(metadata, file.schema_arrow, groups, predicate) if predicate and groups else groups

    def _batches(self, file: pq.ParquetFile, groups: Sequence[int], columns: Columns) -> Iterator[pa.RecordBatch]:
        size = _batch_rows(file.metadata, groups, columns.stored)
        if columns.stored and groups:
            options = {"row_groups": groups, "columns": columns.stored, "use_threads": self._columns_at_once}
            yield from map(columns.of, file.iter_batches(size, **options))
            return
        for group in groups:
            rows = file.metadata.row_group(group).num_rows
            yield from (columns.alone(min(size, rows - start)) for start in range(0, rows, size))

    def _kept(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that are asked for, if there are any, without the columns that only the predicate needed."""
        asked = batch.select(self._scan.schema.names)
        if self._scan.keep is not None:
            mask = self._scan.keep(batch)
            if isinstance(mask, pa.Scalar):
                asked = asked if mask.as_py() else asked.slice(0, 0)
            elif mask.true_count < len(mask):
                asked = asked.filter(mask)
        if self._scan.only is None:
            return iter([asked] if asked.num_rows else [])
        return iter(pa.Table.from_batches([asked]).filter(self._scan.only).to_batches())

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        """Say which file of which table it is that cannot be read."""
        subject = f"table {self._snapshot.name}: file {path!r} of version {self._snapshot.version}"
        try:
            yield
        except Misfit as error:
            raise ValidationError(f"{subject} does not fit the table: {error}", table=self._snapshot.name) from error
        except StorageError as error:
            missing = isinstance(error.__cause__, FileNotFoundError)
            problem = "does not exist: was it moved or cleaned up?" if missing else f"cannot be read: {error}"
            raise self._unreadable(f"{subject} {problem}") from error
        except pa.ArrowException as error:
            raise self._unreadable(f"{subject} cannot be read: {str(error).partition(chr(10))[0]}") from error

    def _unreadable(self, text: str) -> StorageError:
        error = StorageError(text)
        error.table, error.table_id = self._snapshot.name, self._snapshot.table_id
        return error


def _without(
    deleted: Numbers, metadata: pq.FileMetaData, groups: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of row groups, one after the other, but those that are deleted."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    mask = np.concatenate([live_mask(deleted, sum(counts[:group]), counts[group]) for group in groups])
    at = 0
    for batch in batches:
        part = mask[at : at + batch.num_rows]
        at += batch.num_rows
        yield batch if part.all() else batch.filter(pa.array(part))


def _begin(metadata: pq.FileMetaData, group: int) -> int:
    """Where a row group begins in its file."""
    first = metadata.row_group(group).column(0)
    return int(first.dictionary_page_offset or first.data_page_offset)


def _batch_rows(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> int:
    """So many rows that a batch of the columns takes some megabytes at most."""
    found = [metadata.row_group(group) for group in groups]
    rows = sum(group.num_rows for group in found)
    size = sum(group.total_byte_size for group in found)
    if size > _BATCH_BYTES * rows // _BATCH_ROWS:
        names = tuple(f"{name}." for name in columns)
        leaves = [i for i in range(metadata.num_columns) if f"{metadata.schema.column(i).path}.".startswith(names)]
        size = sum(group.column(i).total_uncompressed_size for group in found for i in leaves)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(size, 1))))
