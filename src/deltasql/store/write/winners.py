"""Those who committed to a table since it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltasql.protocol.conflicts import AddedFile, RemovedFile, Winner, check
from deltasql.store import action_rows
from deltasql.store.action_rows import loads
from deltasql.store.database import Connection, fetch
from deltasql.store.write.commit_parts import Part


def examine_winners(connection: Connection, part: Part, heads: Mapping[int, int]) -> None:
    """Under the lock: may this part be rebased on what landed since it was read?"""
    if part.commit.expected_version is None and heads[part.key] > part.commit.state.version:
        check(part.commit, fetch_winners(connection, part))


def fetch_winners(connection: Connection, part: Part) -> list[Winner]:
    """Every version after the one that was read, in order, in at most three queries."""
    params = {"table_key": part.key, "read": part.commit.state.version}
    adds: dict[int, list[AddedFile]] = {}
    removes: dict[int, list[RemovedFile]] = {}
    if not part.commit.is_blind_append:
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
