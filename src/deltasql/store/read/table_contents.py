"""Read the full state of a table at a version, for checkpoints and for validating the published log."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from deltasql.errors import ValidationError
from deltasql.protocol.actions import Protocol
from deltasql.protocol.features import features_of
from deltasql.protocol.table_changes import TableContents, TableState
from deltasql.store import action_rows
from deltasql.store.database import Database
from deltasql.store.read.arrow_queries import ArrowSession
from deltasql.store.read.live_files import PartitionTable

_COLUMNS = (
    "path",
    "size",
    "modification_time",
    "partition_key",
    "stats",
    "tags",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)


def _columns(protocol: Protocol) -> tuple[str, ...]:
    """Return the columns to read. A column that is always null is left out, because its nulls would be transferred."""
    return (*_COLUMNS, "deletion_vector") if "deletionVectors" in features_of(protocol) else _COLUMNS


def contents(session: ArrowSession, database: Database, state: TableState, version: int) -> TableContents:
    """Return the state of a table at a version. `state` has the metadata and protocol of that version, and the session
    must stay open while the files are read."""
    key, metadata, protocol = state.table_key, state.metadata, state.protocol
    if metadata is None or protocol is None:
        raise ValidationError(f"table {state.name} has no metadata at version {version}", table=state.name)
    params = {"table_key": key, "version": version}

    def files() -> Iterator[pa.RecordBatch]:
        head = session.table("arrow_head", table_key=key).to_pylist()
        at_head = bool(head) and head[0]["current_version"] == version
        name = "arrow_live" if at_head else "arrow_live_at"
        with session.batches(name, _columns(protocol), table_key=key, version=version) as reader:
            yield from reader

    def tombstones(after: int) -> Iterator[pa.RecordBatch]:
        with session.batches("arrow_tombstones", table_key=key, version=version, after=after) as reader:
            yield from reader

    domains = (action_rows.domain_of(tuple(row.values())) for row in database.rows("domains_at", **params))
    return TableContents(
        version,
        protocol,
        metadata,
        tuple(action_rows.txn_of(tuple(row.values())) for row in database.rows("txns_at", **params)),
        tuple(domain for domain in domains if not domain.removed),
        PartitionTable(metadata.partition_columns, lambda: database.rows("partitions", table_key=key)),
        files,
        tombstones,
    )
