"""`SqlTxnLogReader`: snapshots, files, history and time travel of tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from deltasql.errors import UsageError, shown
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.table_changes import Snapshot, TableState
from deltasql.store.read.file_lists import FilesAt, StaleTableState

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate
    from deltasql.store.records import HistoryEntry
    from deltasql.store.store import Store

Moment = datetime | str


class SqlTxnLogReader:
    """Reads the logs of the tables of a store.

    Args:
        store: The store, for example `lake.store`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def version(self, table: str | UUID) -> int:
        """Return the current version of a table.

        Args:
            table: The name or id of the table.

        Raises:
            TableNotFound: The table does not exist.
        """
        return self._store.state(table).version

    def snapshot(
        self,
        table: str | UUID,
        version: int | None = None,
        timestamp: Moment | None = None,
        where: str | None = None,
    ) -> Snapshot:
        """Return a table at its current version, at a version or at a time.

        Args:
            table: The name or id of the table.
            version: The version.
            timestamp: The time, as a datetime or an ISO text.
            where: A SQL predicate. The snapshot then lists only the files that may hold matching rows.

        Raises:
            TableNotFound: The table does not exist.
            UsageError: Both a version and a timestamp are given, or the predicate is invalid.
            ValidationError: The table has no such version, or none at that time.
        """
        state, found, predicate = self._read(table, where, version, timestamp)
        return Snapshot.of(replace(state, version=found.version), found.files, predicate)

    def files(
        self,
        table: str | UUID,
        where: str | None = None,
        version: int | None = None,
        timestamp: Moment | None = None,
    ) -> pa.Table:
        """Return the live files of a table, one row per file.

        Args:
            table: The name or id of the table.
            where: A SQL predicate. Files are then pruned by partition values and statistics.
            version: The version.
            timestamp: The time, as a datetime or an ISO text.

        Raises:
            TableNotFound: The table does not exist.
            UsageError: Both a version and a timestamp are given, or the predicate is invalid.
            ValidationError: The table has no such version, or none at that time.
        """
        return self._read(table, where, version, timestamp)[1].files

    def _read(
        self, table: str | UUID, where: str | None, version: int | None, timestamp: Moment | None
    ) -> tuple[TableState, FilesAt, Predicate | None]:
        """Return the files with the table state and the predicate."""
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
            except StaleTableState:
                head = self._store.state(head.table_id)

    def history(self, table: str | UUID, limit: int | None = None) -> list[HistoryEntry]:
        """Return the commits of a table, newest first.

        Args:
            table: The name or id of the table.
            limit: The maximum number of commits. The default is all.

        Raises:
            TableNotFound: The table does not exist.
            UsageError: The limit is not a number from 0.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise UsageError(f"limit must be a whole number, 0 or more, got {shown(limit)}", value=limit)
        return self._store.history(self._store.state(table), limit)

    def version_at(self, table: str | UUID, timestamp: Moment) -> int:
        """Return the version that was current at a time.

        Args:
            table: The name or id of the table.
            timestamp: The time, as a datetime or an ISO text.

        Raises:
            TableNotFound: The table does not exist.
            ValidationError: The time is before the first commit or after the last one.
        """
        return self._store.version_at(self._store.state(table), moment(timestamp))

    def resolve(self, head: TableState, version: int | None, timestamp: Moment | None) -> int:
        """Return the version that a version or a timestamp selects, the current version if both are None."""
        if version is not None and timestamp is not None:
            raise UsageError(f"table {head.name}: give either a version or a timestamp, not both", table=head.name)
        if version is not None:
            return self._store.check_version(head, version)
        if timestamp is not None:
            return self._store.version_at(head, moment(timestamp))
        return head.version


def parse_where(where: str | None, state: TableState) -> Predicate | None:
    """Return the parsed predicate over the columns of a table, None without one."""
    if where is None or state.metadata is None:
        return None
    from deltasql.expressions.predicates import Predicate  # imports sqlglot, which is slow

    schema = arrow_schema(state.metadata.schema_string)
    return Predicate.parse(where, schema, state.metadata.partition_columns, table=state.name)


def moment(value: Any) -> datetime:
    """Return the time of a datetime or an ISO text, in UTC if it has no time zone."""
    try:
        parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"a timestamp is a datetime or an ISO text such as 2026-01-31T12:00:00Z, got {shown(value)}", value=value
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
