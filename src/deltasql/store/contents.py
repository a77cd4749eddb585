"""Everything a table holds at a version: what a checkpoint is made of, and what the published log must come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from deltasql.core.actions import DomainMetadata, Metadata, Protocol, Txn
from deltasql.store import rows
from deltasql.store.arrow import ArrowSession
from deltasql.store.database import Database
from deltasql.store.files import PartitionTable


@dataclass(frozen=True, slots=True)
class Contents:
    """A table at a version. Files come in batches: there may be millions."""

    version: int
    protocol: Protocol
    metadata: Metadata
    txns: tuple[Txn, ...]
    domains: tuple[DomainMetadata, ...]
    partitions: PartitionTable
    files: Callable[[], Iterator[pa.RecordBatch]]
    tombstones: Callable[[int], Iterator[pa.RecordBatch]]
    """The files that were removed after a moment, in milliseconds, and are still gone."""


@contextmanager
def contents(database: Database, key: int, version: int, metadata: Metadata, protocol: Protocol) -> Iterator[Contents]:
    """A table at a version; the session behind it is open as long as the context is."""
    session = ArrowSession(database)
    params = {"table_key": key, "version": version}

    def files() -> Iterator[pa.RecordBatch]:
        with session.batches("arrow_live_at", **params) as reader:
            yield from reader

    def tombstones(after: int) -> Iterator[pa.RecordBatch]:
        with session.batches("arrow_tombstones", **params, after=after) as reader:
            yield from reader

    try:
        yield Contents(
            version,
            protocol,
            metadata,
            tuple(rows.txn_of(tuple(row.values())) for row in database.rows("txns_at", **params)),
            tuple(
                domain
                for row in database.rows("domains_at", **params)
                if not (domain := rows.domain_of(tuple(row.values()))).removed
            ),
            PartitionTable(metadata.partition_columns, lambda: database.rows("partitions", table_key=key)),
            files,
            tombstones,
        )
    finally:
        session.close()
