"""Read versions of a table with all their actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from psycopg.rows import tuple_row

from deltasql.protocol.table_changes import LoggedCommit, with_tables
from deltasql.store import action_rows
from deltasql.store.database import Connection, fetch
from deltasql.store.queries import queries

T = TypeVar("T")


def read_commits(connection: Connection, key: int, versions: Sequence[int]) -> dict[int, LoggedCommit]:
    """Return versions of a table with all their actions, with at most eight queries for any number of versions."""
    heads = fetch(connection, "logged_versions", {"table_key": key, "versions": list(versions)})
    commits = [row["commit_id"] for row in heads]

    def grouped(name: str, read: Callable[[Sequence[Any]], T], exist: bool) -> dict[int, list[T]]:
        """Return the actions of one kind by commit id or version, without a query if none exist."""
        actions: dict[int, list[T]] = {}
        if exist:
            params = {"table_key": key, "commits": commits, "versions": list(versions)}
            with connection.cursor(row_factory=tuple_row) as cursor:
                for row in cursor.execute(queries()[name], params):
                    actions.setdefault(row[0], []).append(read(row))
        return actions

    adds = grouped("logged_adds", action_rows.add_of, any(r["num_adds"] for r in heads))
    removes = grouped("logged_removes", action_rows.remove_of, any(r["num_removes"] for r in heads))
    cdc = grouped("logged_cdc", action_rows.cdc_of, True)
    txns = grouped("logged_txns", action_rows.txn_of, any(r["has_txn"] for r in heads))
    domains = grouped("logged_domains", action_rows.domain_of, any(r["has_domain"] for r in heads))
    params = {"table_key": key, "versions": list(versions)}
    metadata, protocols = {}, {}
    if any(r["has_metadata"] for r in heads):
        metadata = {r["version"]: action_rows.metadata_of(r) for r in fetch(connection, "logged_metadata", params)}
    if any(r["has_protocol"] for r in heads):
        protocols = {r["version"]: action_rows.protocol_of(r) for r in fetch(connection, "logged_protocols", params)}
    return {
        row["version"]: LoggedCommit(
            version=row["version"],
            committed_at=row["committed_at"],
            info=with_tables(action_rows.loads(row["commit_info"]), row["tables"] and action_rows.loads(row["tables"])),
            in_commit_timestamp=row["in_commit_timestamp"],
            protocol=protocols.get(row["version"]),
            metadata=metadata.get(row["version"]),
            txns=txns.get(row["version"], ()),
            domains=domains.get(row["version"], ()),
            adds=adds.get(row["commit_id"], ()),
            removes=removes.get(row["commit_id"], ()),
            cdc=cdc.get(row["commit_id"], ()),
        )
        for row in heads
    }
