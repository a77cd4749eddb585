"""Conflict rules: whether a commit can be rebased on the versions that landed since it read the table.

`check` is called under the table's lock with every winner, in version order. It returns if the commit can become the
version after the last winner unchanged, and raises the first conflict otherwise. The rules are those of Delta on
Spark; see docs/reference/conflicts.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.errors import (
    CommitConflict,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
    ValidationError,
)
from deltasql.protocol.actions import Protocol
from deltasql.protocol.features import check_protocol, features_of
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.statistics import Bounds, ColumnPath, parse_stats, partition_bounds
from deltasql.protocol.table_changes import SERIALIZABLE, SNAPSHOT_ISOLATION, Reads, TableCommit

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate


@dataclass(frozen=True, slots=True)
class AddedFile:
    """The fields of a file added by a winner that the rules need."""

    path: str
    partition_values: dict[str, str | None]
    stats: str | None
    data_change: bool


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """The fields of a file removed by a winner that the rules need."""

    path: str
    data_change: bool


@dataclass(frozen=True, slots=True)
class Winner:
    """A version that landed after the version that our commit read."""

    version: int
    operation: str
    committer: str | None
    txn_id: str
    is_blind_append: bool
    has_metadata: bool = False
    protocol: Protocol | None = None
    domains: frozenset[str] = frozenset()
    txns: dict[str, int] = field(default_factory=dict)
    adds: Sequence[AddedFile] = ()
    removes: Sequence[RemovedFile] = ()


def isolation_of(ours: TableCommit) -> str:
    """Return the isolation level of a commit.

    A commit that only rearranges rows, such as OPTIMIZE, conflicts only on the files that it rearranges, unless it
    also read rows in a serializable transaction.
    """
    files = (*ours.changes.adds, *ours.changes.removes)
    reads_rows = ours.isolation == SERIALIZABLE and (ours.reads.whole_table or ours.reads.predicates)
    if files and not ours.changes.data_change and not ours.changes.metadata and not reads_rows:
        return SNAPSHOT_ISOLATION
    return ours.isolation


def check(ours: TableCommit, winners: Sequence[Winner]) -> None:
    """Raise the first conflict between our commit and the winners."""
    for winner in winners:
        try:
            for rule in _RULES:
                rule(ours, winner)
            ours = _follow_rearranged_files(ours, winner)
        except CommitConflict as conflict:
            conflict.actual = winners[-1].version
            raise


def _follow_rearranged_files(ours: TableCommit, winner: Winner) -> TableCommit:
    """Return our commit with reads of the files to which a winner moved rows that we read."""
    if any(not remove.data_change and remove.path in ours.reads.files for remove in winner.removes):
        moved = frozenset(add.path for add in winner.adds if not add.data_change)
        return replace(ours, reads=ours.reads | Reads(files=moved))
    return ours


def _conflict(kind: type[CommitConflict], reason: str, ours: TableCommit, winner: Winner) -> CommitConflict:
    return kind(
        reason,
        table_id=ours.state.table_id,
        table=ours.state.name,
        winner=winner.version,
        operation=winner.operation,
        committer=winner.committer,
        txn_id=winner.txn_id,
        expected=ours.state.version + 1,
    )


def _check_protocol(ours: TableCommit, winner: Winner) -> None:
    if winner.protocol is None:
        return
    check_protocol(winner.protocol, ours.state.name)
    if ours.changes.protocols:
        raise _conflict(ProtocolChanged, "the protocol, which this commit changes, was changed", ours, winner)
    before = ours.state.protocol
    if before is not None and features_of(before) - features_of(winner.protocol):
        raise _conflict(ProtocolChanged, "a table feature was removed", ours, winner)


def _check_metadata(ours: TableCommit, winner: Winner) -> None:
    if winner.has_metadata:
        raise _conflict(MetadataChanged, "the schema or the properties were changed", ours, winner)


def _check_domains(ours: TableCommit, winner: Winner) -> None:
    shared = {d.domain for d in ours.changes.domains} & winner.domains
    if shared:
        reason = f"metadata domain {min(shared)!r} was written"
        raise _conflict(ConcurrentTransaction, reason, ours, winner)


def _check_txns(ours: TableCommit, winner: Winner) -> None:
    """Raise if a winner wrote a lower version of our application. Equal or higher versions are handled earlier."""
    shared = {t.app_id for t in ours.changes.txns} & winner.txns.keys()
    if shared:
        reason = f"the version of application {min(shared)!r} was written"
        raise _conflict(ConcurrentTransaction, reason, ours, winner)


def _check_appends(ours: TableCommit, winner: Winner) -> None:
    if ours.is_blind_append:
        return
    candidates = _candidates(ours, winner)
    if not candidates:
        return
    if ours.reads.whole_table or _assumes_replaced_rows(ours, winner):
        reason = f"rows that this commit should have read were added ({candidates[0].path})"
        raise _conflict(ConcurrentAppend, reason, ours, winner)
    hit = first_match(candidates, ours)
    if hit is not None:
        did = "changed" if hit.path in {remove.path for remove in winner.removes} else "added"
        reason = f"rows that may match the predicate of this commit were {did} ({hit.path})"
        raise _conflict(ConcurrentAppend, reason, ours, winner)


def _candidates(ours: TableCommit, winner: Winner) -> list[AddedFile]:
    """Return the winner's files whose new rows conflict with our reads at our isolation level."""
    level = isolation_of(ours)
    if level == SNAPSHOT_ISOLATION:
        return []
    if level != SERIALIZABLE and winner.is_blind_append and not ours.changes.metadata:
        return []
    return [add for add in winner.adds if add.data_change]


def _assumes_replaced_rows(ours: TableCommit, winner: Winner) -> bool:
    """Return whether our new metadata conflicts with any file that the winner added or removed.

    A winner that rewrote rows used the old schema. If our metadata does not fit existing files, any added file
    conflicts.
    """
    return ours.replaces_files or (bool(ours.changes.metadata) and not winner.is_blind_append)


def first_match(candidates: Sequence[AddedFile], ours: TableCommit) -> AddedFile | None:
    """Return the first added file that one of our read predicates may match; undecided files match."""
    from deltasql.expressions.predicates import Predicate  # brings sqlglot, which is slow to import

    metadata = ours.state.metadata
    if metadata is None or not ours.reads.predicates:
        return None
    schema = arrow_schema(metadata.schema_string)
    for text in ours.reads.predicates:
        try:
            predicate = Predicate.parse(text, schema, metadata.partition_columns, table=ours.state.name)
        except ValidationError:
            return candidates[0]
        bounds = _bounds(candidates, predicate, schema, metadata.partition_columns)
        hits = predicate.may_match(bounds, len(candidates)).nonzero()[0]
        if len(hits):
            return candidates[int(hits[0])]
    return None


def _bounds(
    files: Sequence[AddedFile], predicate: Predicate, schema: pa.Schema, partition_columns: Sequence[str]
) -> dict[ColumnPath, Bounds]:
    stats = pa.array([f.stats for f in files], pa.string())
    data_columns = {path for path in predicate.columns if path[0] not in partition_columns}
    bounds = parse_stats(stats, schema, data_columns)
    for name in partition_columns:
        values = pa.array([f.partition_values.get(name) for f in files], pa.string())
        bounds[(name,)] = partition_bounds(values, schema.field(name).type)
    return bounds


def _check_delete_read(ours: TableCommit, winner: Winner) -> None:
    everything = ours.reads.whole_table or _assumes_replaced_rows(ours, winner)
    for remove in winner.removes:
        if remove.data_change and (everything or remove.path in ours.reads.files):
            reason = f"a file that this commit read was removed ({remove.path})"
            raise _conflict(ConcurrentDeleteRead, reason, ours, winner)


def _check_delete_delete(ours: TableCommit, winner: Winner) -> None:
    if not ours.changes.removes:
        return
    removed = {remove.path for remove in winner.removes}
    for remove in ours.changes.removes:
        if remove.path in removed:
            reason = f"a file that this commit removes was removed ({remove.path})"
            raise _conflict(ConcurrentDeleteDelete, reason, ours, winner)


_RULES = (
    _check_protocol,
    _check_metadata,
    _check_domains,
    _check_txns,
    _check_appends,
    _check_delete_read,
    _check_delete_delete,
)
