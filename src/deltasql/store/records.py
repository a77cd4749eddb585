"""Records of tables, commits and transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deltasql.store.action_rows import loads


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of the lake.

    Attributes:
        name: The table's full name, `namespace.name`.
        id: The table's UUID.
        location: The directory of the table.
        version: The current version.
        num_files: The number of live files.
        created_at: The time when the table was created.
        committed_at: The time of the last commit.
        properties: The properties of the table.
    """

    name: str
    id: str
    location: str
    version: int
    num_files: int
    created_at: datetime
    committed_at: datetime | None
    properties: Mapping[str, str]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> TableInfo:
        """Return the table of a row of the `tables` query."""
        return cls(
            name=f"{row['namespace']}.{row['name']}",
            id=str(row["table_id"]),
            location=row["location"],
            version=row["current_version"],
            num_files=row["num_files"],
            created_at=row["created_at"],
            committed_at=row["committed_at"],
            properties=row["properties"],
        )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit of a table.

    Attributes:
        version: The version.
        timestamp: The time of the commit.
        operation: The name of the operation, for example `WRITE`.
        parameters: The parameters of the operation.
        metrics: The metrics of the operation.
        committer: The account that committed, as the database knows it.
        author: The author that the caller gave.
        txn_id: The id of the transaction.
        message: The message that the caller gave.
        read_version: The version that the transaction read.
        isolation_level: The isolation level that the commit was checked with.
        is_blind_append: Whether the commit only added files without reading the table.
        num_added_files: The number of files that were added.
        num_removed_files: The number of files that were removed.
        commit_info: The whole commitInfo action.
    """

    version: int
    timestamp: datetime
    operation: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, Any]
    committer: str
    author: str | None
    txn_id: str
    message: str | None
    read_version: int | None
    isolation_level: str | None
    is_blind_append: bool
    num_added_files: int
    num_removed_files: int
    commit_info: Mapping[str, Any]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> HistoryEntry:
        """Return the commit of a row of the `history` query."""
        info = loads(row["commit_info"])
        return cls(
            version=row["version"],
            timestamp=row["committed_at"],
            operation=row["operation"],
            parameters=loads(row["operation_parameters"] or "{}"),
            metrics=info.get("operationMetrics") or {},
            committer=row["committer"],
            author=row["author"],
            txn_id=str(row["txn_id"]),
            message=info.get("userMetadata"),
            read_version=row["read_version"],
            isolation_level=row["isolation_level"],
            is_blind_append=row["is_blind_append"],
            num_added_files=row["num_adds"],
            num_removed_files=row["num_removes"],
            commit_info=info,
        )


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A committed transaction.

    Attributes:
        id: The id of the transaction.
        timestamp: The time of the commit.
        committer: The account that committed, as the database knows it.
        author: The author that the caller gave.
        message: The message that the caller gave.
        versions: The new version of each table, by table name.
        operations: The operation on each table, by table name.
        locations: The location of each table, by table name.
    """

    id: str
    timestamp: datetime
    committer: str
    author: str | None
    message: str | None
    versions: Mapping[str, int]
    operations: Mapping[str, str]
    locations: Mapping[str, str]

    @classmethod
    def of(cls, row: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> TransactionInfo:
        """Return the transaction of a row of the `transactions` query and the rows of its tables."""
        info = loads(tables[0]["commit_info"]) if tables else {}
        return cls(
            id=str(row["txn_id"]),
            timestamp=row["committed_at"],
            committer=row["committer"],
            author=row["author"] or (tables[0]["author"] if tables else None),
            message=row["message"] or info.get("userMetadata"),
            versions={t["name"]: t["version"] for t in tables},
            operations={t["name"]: t["operation"] for t in tables},
            locations={t["name"]: t["location"] for t in tables},
        )
