"""`SqlTxnLogReader`: snapshots, files, history and time travel of one table, straight from the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from deltasql.errors import UsageError
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.table_changes import Snapshot, TableState
from deltasql.store.read.snapshots import FilesAt, Moved

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate
    from deltasql.store.records import HistoryEntry
    from deltasql.store.store import Store

Moment = datetime | str


class SqlTxnLogReader:
    """Reads the log of any table of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def version(self, table: str | UUID) -> int:
        """The head of a table."""
        return self._store.state(table).version

    def snapshot(
        self,
        table: str | UUID,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
    ) -> Snapshot:
        """A table at its head, at a version or at a moment; with a predicate only the files that may hold its rows."""
        state, found, predicate = self._read(table, where, version, timestamp)
        return Snapshot.of(replace(state, version=found.version), found.files, predicate)

    def files(
        self,
        table: str | UUID,
        where: str | None = None,
        version: int | None = None,
        timestamp: Moment | None = None,
    ) -> pa.Table:
        """The live files, pruned by partition values and statistics if a predicate is given."""
        return self._read(table, where, version, timestamp)[1].files

    def _read(
        self, table: str | UUID, where: str | None, version: int | None, timestamp: Moment | None
    ) -> tuple[TableState, FilesAt, Predicate | None]:
        """Files with the state they belong to: of the head, or of a version in the past."""
        head = self._store.state(table)
        if version is not None or timestamp is not None:
            chosen = self.resolve(head, version, timestamp)
            then = self._store.state_at(head.table_id, chosen)
            predicate = parse_where(where, then)
            return then, FilesAt(chosen, self._store.files_at(then, chosen, predicate)), predicate
        while True:
            try:
                predicate = parse_where(where, head)
                return head, self._store.files(head, predicate), predicate
            except Moved:
                head = self._store.state(head.table_id)

    def history(self, table: str | UUID, limit: int | None = None) -> list[HistoryEntry]:
        """Commits, newest first."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise UsageError(f"limit must be a whole number from 0 on, got {limit!r}", value=limit)
        return self._store.history(self._store.state(table), limit)

    def version_at(self, table: str | UUID, timestamp: Moment) -> int:
        """The version that was the head at a moment."""
        return self._store.version_at(self._store.state(table), moment(timestamp))

    def resolve(self, head: TableState, version: int | None, timestamp: Moment | None) -> int:
        """The version that a caller means."""
        if version is not None and timestamp is not None:
            raise UsageError(f"table {head.name}: give a version or a timestamp, not both", table=head.name)
        if version is not None:
            return self._store.check_version(head, version)
        if timestamp is not None:
            return self._store.version_at(head, moment(timestamp))
        return head.version


def parse_where(where: str | None, state: TableState) -> Predicate | None:
    """A predicate over a table's columns."""
    if where is None or state.metadata is None:
        return None
    from deltasql.expressions.predicates import Predicate  # brings sqlglot, which is slow to import

    schema = arrow_schema(state.metadata.schema_string)
    return Predicate.parse(where, schema, state.metadata.partition_columns, table=state.name)


def moment(value: Any) -> datetime:
    """A point in time from a datetime or an ISO text; without a zone it is taken as UTC."""
    try:
        parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"a timestamp is a datetime or an ISO text such as 2026-01-31T12:00:00Z, got {value!r}", value=value
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
