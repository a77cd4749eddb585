"""Send the files of a large commit to the log before any table is locked. They are invisible until COMMIT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any

from deltasql.store import action_rows
from deltasql.store.action_rows import CommitPartitions
from deltasql.store.database import Connection
from deltasql.store.queries import queries
from deltasql.store.write.column_arrays import encode_array
from deltasql.store.write.prepared_commit import PreparedCommit, path_gens_of

_ROWS_PER_CALL = 2500
_BYTES_PER_CALL = 16 << 20
_LONG_TEXTS = ("stats", "path", "tags", "extra", "deletion_vector")


def stage(connection: Connection, prepared: PreparedCommit) -> None:
    """Insert all file rows of a commit."""
    changes = prepared.commit.changes
    prepared.partitions = CommitPartitions()
    key = {"table_key": prepared.key, "commit_id": prepared.commit_id}
    removes = action_rows.remove_rows(changes.removes, prepared.removed_adds, prepared.superseded)
    with connection.pipeline():  # the server inserts rows while the next ones are encoded
        if changes.adds:
            columns = action_rows.add_columns(changes, path_gens_of(prepared), prepared.partitions)
            named = _named(action_rows.ADD_COLUMNS[1:], columns)
            for first, arrays in _calls(action_rows.ADD_COLUMNS[1:], named, len(changes.adds)):
                _run(connection, "stage_adds", {**key, "first": first}, arrays)
            if prepared.partitions.rows():
                connection.execute(queries()["stage_partitions"], key)
        _stage_rows(connection, "stage_removes", key, action_rows.REMOVE_COLUMNS, removes)
        _stage_rows(connection, "stage_cdc", key, action_rows.CDC_COLUMNS, action_rows.cdc_rows(changes.cdc))


def _stage_rows(
    connection: Connection,
    name: str,
    key: Mapping[str, int],
    columns: action_rows.Columns,
    rows: Sequence[tuple[Any, ...]],
) -> None:
    if rows:
        named = _named(columns, list(zip(*rows, strict=True)))
        for _, arrays in _calls(columns, named, len(rows)):
            _run(connection, name, key, arrays)


def _named(columns: action_rows.Columns, values: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the columns by name, without those that repeat the database's default for all rows."""
    pairs = [(name, value) for (name, _), value in zip(columns, values, strict=True) if not isinstance(value, repeat)]
    return {name: value if isinstance(value, list | tuple) else list(value) for name, value in pairs}


def _calls(
    columns: action_rows.Columns, named: Mapping[str, Sequence[Any]], count: int
) -> Iterator[tuple[int, dict[str, bytes | None]]]:
    """Return the arrays of each call with its first row. Short calls let the server start soon."""
    for first, last in _slices(named, count):
        yield (
            first,
            {name: encode_array(kind, named[name][first:last]) if name in named else None for name, kind in columns},
        )


def _slices(named: Mapping[str, Sequence[Any]], count: int) -> Iterator[tuple[int, int]]:
    texts = [named[name] for name in _LONG_TEXTS if name in named]
    first = 0
    while first < count:
        last = min(first + _ROWS_PER_CALL, count)
        while last - first > 1 and _size(texts, first, last) > _BYTES_PER_CALL:
            last = (first + last) // 2
        yield first, last
        first = last


def _size(texts: Sequence[Sequence[str | None]], first: int, last: int) -> int:
    return sum(sum(map(len, filter(None, column[first:last]))) for column in texts)


def _run(connection: Connection, name: str, key: Mapping[str, int], arrays: Mapping[str, bytes | None]) -> None:
    connection.execute(_statement(name, tuple(arrays)), {**key, **arrays}, prepare=True)


@cache
def _statement(name: str, columns: tuple[str, ...]) -> Any:
    """Return a statement with a parameter per column."""
    return queries()[name].format(arrays=", ".join(f"%({column})s" for column in columns))
