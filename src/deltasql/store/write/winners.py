"""Winners: the versions that were committed to a table after a transaction read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltasql.protocol.conflicts import AddedFile, RemovedFile, Winner, check
from deltasql.store import action_rows
from deltasql.store.action_rows import loads
from deltasql.store.database import Connection, fetch
from deltasql.store.write.prepared_commit import PreparedCommit


def check_winners(connection: Connection, prepared: PreparedCommit, heads: Mapping[int, int]) -> None:
    """Raise the conflict if the commit cannot be rebased on the winners. The table must be locked."""
    if prepared.commit.expected_version is None and heads[prepared.key] > prepared.commit.state.version:
        check(prepared.commit, fetch_winners(connection, prepared))


def fetch_winners(connection: Connection, prepared: PreparedCommit) -> list[Winner]:
    """Return every version after the one that was read, in order, with at most three queries."""
    params = {"table_key": prepared.key, "read": prepared.commit.state.version}
    adds: dict[int, list[AddedFile]] = {}
    removes: dict[int, list[RemovedFile]] = {}
    if not prepared.commit.is_blind_append:
        for row in fetch(connection, "winner_adds", params):
            file = AddedFile(row["path"], loads(row["partition_values"]), row["stats"], row["data_change"])
            adds.setdefault(row["version"], []).append(file)
        for row in fetch(connection, "winner_removes", params):
            removes.setdefault(row["version"], []).append(RemovedFile(row["path"], row["data_change"]))
    return [
        _winner(row, adds.get(row["version"], ()), removes.get(row["version"], ()))
        for row in fetch(connection, "winners", params)
    ]


def _winner(row: Mapping[str, Any], adds: Sequence[AddedFile], removes: Sequence[RemovedFile]) -> Winner:
    return Winner(
        version=row["version"],
        operation=row["operation"],
        committer=row["committer"],
        txn_id=str(row["txn_id"]),
        is_blind_append=row["is_blind_append"],
        has_metadata=row["has_metadata"],
        protocol=action_rows.protocol_of(row) if row["has_protocol"] else None,
        domains=frozenset(row["domains"] or ()),
        txns=row["txns"] or {},
        adds=adds,
        removes=removes,
    )
