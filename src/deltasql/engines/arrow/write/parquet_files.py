"""Read the footers of existing Parquet files and describe them as files to add to a table.

Opens files, in threads. `parquet_footers` interprets the footers; no rows are read.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from deltasql.engines.arrow.file_footer import FileFooter
from deltasql.engines.arrow.write.parquet_footers import FooterPlan, indexed_columns, plan_footers
from deltasql.errors import ValidationError, shown
from deltasql.protocol.file_paths import encode_path, hive_values
from deltasql.protocol.partition_values import partition_text
from deltasql.protocol.schema import primitive_name
from deltasql.storage import first_link_out

Values = Mapping[str, str | None]
Progress = Callable[[int, int], None]

_T = TypeVar("_T")
_U = TypeVar("_U")
_BATCH = 64
# Reading local footers is bound by the GIL; a second thread helps when the files are not in the page cache.
_LOCAL_THREADS, _REMOTE_THREADS = 2, 16


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a Parquet file, with the file's size and time."""

    path: str
    size: int
    modification_time: int
    metadata: pq.FileMetaData


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """The fields of an add action: the path URI-encoded, the time in milliseconds, the statistics as JSON."""

    path: str
    size: int
    modification_time: int
    partition_values: dict[str, str | None]
    stats: str


def adds_from_parquet(
    root: str,
    paths: Sequence[str],
    schema: pa.Schema,
    partition_columns: Sequence[str] = (),
    *,
    partition_values: Sequence[Values] | None = None,
    filesystem: pafs.FileSystem | None = None,
    num_indexed_cols: int = 32,
    stats_columns: Collection[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[ParquetFile]:
    """Return what the log records about files below `root`, from their footers.

    Args:
        root: The directory of the table.
        paths: File system paths, relative to the root or absolute.
        schema: The table's schema.
        partition_columns: The table's partition columns.
        partition_values: One mapping per path; by default the values of Hive-style directories.
        filesystem: Where the files are; by default the local file system.
        num_indexed_cols: The number of columns with statistics.
        stats_columns: The columns with statistics, by name.
        threads: The number of threads that read footers.
        progress: Called with the number of files read and the total.

    Raises:
        ValidationError: A file does not fit the table.
    """
    root = os.path.abspath(root) if _is_local(filesystem) else root.rstrip("/")
    relative = [_below(root, path) for path in _texts_of_paths(paths)]
    _check_unique(relative)
    link = first_link_out(root, relative) if _is_local(filesystem) else None
    if link is not None:
        raise ValidationError(f"file {link!r} leads out of {root} through a symbolic link: copy it there", value=link)
    values = _Partitions(schema, partition_columns).of_files(relative, partition_values)
    indexed = indexed_columns(schema, partition_columns, num_indexed_cols, stats_columns)
    plans = _Plans(schema, partition_columns, indexed)

    def register(batch: Sequence[tuple[str, dict[str, str | None]]]) -> list[ParquetFile]:
        footers = _footers([f"{root}/{path}" for path, _ in batch], filesystem)
        return [plans.add(path, given, footer) for (path, given), footer in zip(batch, footers, strict=True)]

    adds: list[ParquetFile] = []
    files = list(zip(relative, values, strict=True))
    for batch in _in_batches(register, files, _threads(threads, filesystem)):
        adds += batch
        if progress:
            progress(len(adds), len(relative))
    return adds


def _threads(threads: int | None, filesystem: pafs.FileSystem | None) -> int:
    return threads or (_LOCAL_THREADS if _is_local(filesystem) else _REMOTE_THREADS)


def _in_batches(work: Callable[[Sequence[_T]], list[_U]], items: Sequence[_T], threads: int) -> Iterator[list[_U]]:
    batches = [items[i : i + _BATCH] for i in range(0, len(items), _BATCH)]
    if threads <= 1 or len(batches) <= 1:
        yield from map(work, batches)
        return
    with ThreadPoolExecutor(min(threads, len(batches)), thread_name_prefix="deltasql-footers") as pool:
        yield from pool.map(work, batches)


# --- footers


def _is_local(filesystem: pafs.FileSystem | None) -> bool:
    return filesystem is None or isinstance(filesystem, pafs.LocalFileSystem)


def _footers(paths: Sequence[str], filesystem: pafs.FileSystem | None) -> list[Footer]:
    if filesystem is None or _is_local(filesystem):
        return [_local_footer(path) for path in paths]
    infos = filesystem.get_file_info(list(paths))
    return [_remote_footer(info, filesystem) for info in infos]


def _local_footer(path: str) -> Footer:
    try:
        with pa.OSFile(path) as source:
            metadata = _checked_metadata(source)
        status = os.stat(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    return Footer(path, status.st_size, status.st_mtime_ns // 1_000_000, metadata)


def _remote_footer(info: pafs.FileInfo, filesystem: pafs.FileSystem) -> Footer:
    try:
        with filesystem.open_input_file(info.path) as source:
            metadata = _checked_metadata(source)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(info.path, error) from error
    return Footer(info.path, info.size, (info.mtime_ns or 0) // 1_000_000, metadata)


def _checked_metadata(source: pa.NativeFile) -> pq.FileMetaData:
    footer = FileFooter(source)
    footer.check()
    return footer.metadata


def _unreadable(path: str, error: Exception) -> ValidationError:
    if isinstance(error, FileNotFoundError):
        return ValidationError(f"file {path!r} does not exist: was it moved or deleted?", value=path)
    reason = str(error).partition("\n")[0]
    return ValidationError(
        f"file {path!r} is not a readable Parquet file ({reason}): leave it out, or write it again",
        value=path,
    )


class _Plans:
    """The footer plans of all Parquet schemas. Most files share one schema, so the latest plan is tried first."""

    def __init__(
        self, schema: pa.Schema, partition_columns: Collection[str], indexed: Collection[tuple[str, ...]]
    ) -> None:
        self._schema, self._partition_columns, self._indexed = schema, partition_columns, indexed
        self._plans: list[FooterPlan] = []

    def add(self, path: str, values: dict[str, str | None], footer: Footer) -> ParquetFile:
        """Return a file with its statistics; raise ValidationError if it does not fit or its footer is damaged."""
        try:
            return self._add(path, values, footer)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise _unreadable(path, error) from error

    def _add(self, path: str, values: dict[str, str | None], footer: Footer) -> ParquetFile:
        plan = self._plan(footer.metadata)
        nulls, wide = plan.nulls(footer.metadata), plan.too_wide(footer.metadata)
        if plan.problems or nulls or wide:
            problems = [*plan.problems, *(f"column {name} is NOT NULL but holds nulls" for name in nulls)]
            problems += [f"column {name} holds values that do not fit its type in the table" for name in wide]
            raise ValidationError(
                f"file {path!r} does not fit the table: {'; '.join(problems)}. Write the file with the "
                f"table's schema, or change the schema first",
                value=path,
            )
        stats = plan.stats(footer.metadata)
        return ParquetFile(encode_path(path), footer.size, footer.modification_time, values, stats)

    def _plan(self, metadata: pq.FileMetaData) -> FooterPlan:
        for plan in self._plans:
            if plan.serves(metadata):
                return plan
        plan = plan_footers(metadata.schema, self._schema, self._partition_columns, self._indexed)
        self._plans.insert(0, plan)
        return plan


# --- paths

_UNTIDY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")


def _below(root: str, path: str) -> str:
    """Return the path of a data file relative to the root, and reject names that readers skip."""
    relative = path.removeprefix(root + "/")
    if _UNTIDY.search(relative):
        relative = posixpath.normpath(relative)
    if relative.startswith(("/", "../")) or relative in (".", ".."):
        raise ValidationError(
            f"file {path!r} is not below the table's root {root!r}: move or copy it there",
            value=path,
        )
    *directories, name = relative.split("/")
    skipped = name[0] in "_." or name.endswith("._COPYING_")
    if skipped or any(part[0] in "_." and "=" not in part for part in directories):
        raise ValidationError(
            f"file {path!r} would be skipped: readers ignore names that start with '_' or '.', or end with "
            f"'._COPYING_'. Rename it",
            value=path,
        )
    try:
        relative.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"the name of file {path!r} is not UTF-8: rename it", value=path) from None
    return relative


def _texts_of_paths(paths: Any) -> list[str]:
    """Return the paths as texts; raise ValidationError for other values."""
    given = paths if isinstance(paths, Iterable) and not isinstance(paths, str | bytes) else [None]
    texts: list[Any] = [os.fspath(path) if isinstance(path, os.PathLike) else path for path in given]
    if not all(type(text) is str for text in texts):
        raise ValidationError(f"paths must be a list of paths, got {shown(paths)}", value=paths)
    return texts


def _check_unique(paths: Sequence[str]) -> None:
    if len(set(paths)) != len(paths):
        twice = Counter(paths).most_common(1)[0][0]
        raise ValidationError(f"file {twice!r} is given twice: give it once", value=twice)


# --- partition values


class _Partitions:
    """The partition values of files: one string per partition column, None for null."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self._columns = [(name, schema.field(name)) for name in columns]
        self._by_directory: dict[str, dict[str, str | None]] = {}

    def of_files(self, paths: Sequence[str], given: Sequence[Values] | None) -> list[dict[str, str | None]]:
        if given is None:
            return [dict(self._of_directory(path)) for path in paths]
        if not isinstance(given, Sequence) or not all(isinstance(values, Mapping) for values in given):
            problem = f"partition_values must be a list of mappings, one per file, got {shown(given)}"
            raise ValidationError(problem, value=given)
        if len(given) != len(paths):
            raise ValidationError(
                f"partition_values holds {len(given)} mappings for {len(paths)} files: give one per file"
            )
        return [self._checked(path, values) for path, values in zip(paths, given, strict=True)]

    def _of_directory(self, path: str) -> dict[str, str | None]:
        directory = path.rpartition("/")[0]
        if directory not in self._by_directory:
            hive = hive_values(path) if self._columns else {}
            names = {name.lower(): name for name, _ in self._columns}
            values = {names[key.lower()]: value for key, value in hive.items() if key.lower() in names}
            self._by_directory[directory] = self._checked(path, values)
        return self._by_directory[directory]

    def _checked(self, path: str, values: Values) -> dict[str, str | None]:
        missing = [name for name, _ in self._columns if name not in values]
        if missing:
            raise ValidationError(
                f"file {path!r} has no partition value for {', '.join(missing)}: put it in a directory such "
                f"as {missing[0]}=<value>/, or give partition_values",
                value=path,
            )
        unknown = values.keys() - {name for name, _ in self._columns}
        if unknown:
            raise ValidationError(
                f"file {path!r} has partition values for {', '.join(sorted(unknown))}, but the table is not "
                f"partitioned by these columns: leave them out",
                value=path,
            )
        return {name: self._text(path, field, values[name] or None) for name, field in self._columns}

    def _text(self, path: str, field: pa.Field, value: str | None) -> str | None:
        kind = primitive_name(field.type) or str(field.type)
        text = None if value is None else partition_text(kind, value)
        if text is None and (value is not None or not field.nullable):
            raise ValidationError(
                f"file {path!r} has partition value {value!r} for column {field.name!r} of type {kind}"
                f"{'' if field.nullable else ' NOT NULL'}: correct the directory, or give partition_values",
                value=value,
            )
        return text
