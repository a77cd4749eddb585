"""May a commit be rebased on the versions that landed since it read the table?

`check` is called under the table's lock with every winner, in version order. It returns if the commit may take the
version after the last winner as it is, and raises the first conflict otherwise. The rules are those of Delta on
Spark; docs/reference/conflicts.md states them.
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
    """A file that a winner added, as far as the rules look at it."""

    path: str
    partition_values: dict[str, str | None]
    stats: str | None
    data_change: bool


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that a winner removed, as far as the rules look at it."""

    path: str
    data_change: bool


@dataclass(frozen=True, slots=True)
class Winner:
    """A version that landed between the one we read and the one we want."""

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
    """The level a commit runs at: rearranging rows (OPTIMIZE) conflicts only on the files it rearranges, unless rows
    were read besides that must not have changed."""
    files = (*ours.changes.adds, *ours.changes.removes)
    reads_rows = ours.isolation == SERIALIZABLE and (ours.reads.whole_table or ours.reads.predicates)
    if files and not ours.changes.data_change and not ours.changes.metadata and not reads_rows:
        return SNAPSHOT_ISOLATION
    return ours.isolation


def check(ours: TableCommit, winners: Sequence[Winner]) -> None:
    """Raise the first conflict between our commit and the winners, if there is one."""
    for winner in winners:
        try:
            for rule in _RULES:
                rule(ours, winner)
            ours = _following(ours, winner)
        except CommitConflict as conflict:
            conflict.actual = winners[-1].version
            raise


def _following(ours: TableCommit, winner: Winner) -> TableCommit:
    """Rows that we read and that a winner rearranged are in the files that it added."""
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
        raise _conflict(ProtocolChanged, "the protocol that we change was changed", ours, winner)
    before = ours.state.protocol
    if before is not None and features_of(before) - features_of(winner.protocol):
        raise _conflict(ProtocolChanged, "a table feature was removed", ours, winner)


def _check_metadata(ours: TableCommit, winner: Winner) -> None:
    if winner.has_metadata:
        raise _conflict(MetadataChanged, "the schema or the properties were changed", ours, winner)


def _check_domains(ours: TableCommit, winner: Winner) -> None:
    shared = {d.domain for d in ours.changes.domains} & winner.domains
    if shared:
        reason = f"the metadata domain {min(shared)!r} was written"
        raise _conflict(ConcurrentTransaction, reason, ours, winner)


def _check_txns(ours: TableCommit, winner: Winner) -> None:
    """Work that was applied already is found before this check; here a lower version of our application won."""
    shared = {t.app_id for t in ours.changes.txns} & winner.txns.keys()
    if shared:
        reason = f"progress of the application {min(shared)!r} was recorded"
        raise _conflict(ConcurrentTransaction, reason, ours, winner)


def _check_appends(ours: TableCommit, winner: Winner) -> None:
    if ours.is_blind_append:
        return
    candidates = _candidates(ours, winner)
    if not candidates:
        return
    if ours.reads.whole_table or _rewritten_under_us(ours, winner):
        reason = f"rows that we should have read were added ({candidates[0].path})"
        raise _conflict(ConcurrentAppend, reason, ours, winner)
    hit = first_match(candidates, ours)
    if hit is not None:
        did = "changed" if hit.path in {remove.path for remove in winner.removes} else "added"
        reason = f"rows that our predicate may match were {did} ({hit.path})"
        raise _conflict(ConcurrentAppend, reason, ours, winner)


def _candidates(ours: TableCommit, winner: Winner) -> list[AddedFile]:
    """The winner's files that may hold new rows which our isolation level must not miss."""
    level = isolation_of(ours)
    if level == SNAPSHOT_ISOLATION:
        return []
    if level != SERIALIZABLE and winner.is_blind_append and not ours.changes.metadata:
        return []
    return [add for add in winner.adds if add.data_change]


def _rewritten_under_us(ours: TableCommit, winner: Winner) -> bool:
    """A schema change assumes the rows it saw; a winner that rewrote rows did so under the old schema.

    New partition columns or types assume that no file of the old ones is left: any file that was added is too many.
    """
    return ours.replaces_files or (bool(ours.changes.metadata) and not winner.is_blind_append)


def first_match(candidates: Sequence[AddedFile], ours: TableCommit) -> AddedFile | None:
    """The first added file that one of our read predicates may match; what cannot be decided matches."""
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
    wanted = {path for path in predicate.columns if path[0] not in partition_columns}
    bounds = parse_stats(stats, schema, wanted)
    for name in partition_columns:
        values = pa.array([f.partition_values.get(name) for f in files], pa.string())
        bounds[(name,)] = partition_bounds(values, schema.field(name).type)
    return bounds


def _check_delete_read(ours: TableCommit, winner: Winner) -> None:
    everything = ours.reads.whole_table or _rewritten_under_us(ours, winner)
    for remove in winner.removes:
        if remove.data_change and (everything or remove.path in ours.reads.files):
            reason = f"a file that we read was removed ({remove.path})"
            raise _conflict(ConcurrentDeleteRead, reason, ours, winner)


def _check_delete_delete(ours: TableCommit, winner: Winner) -> None:
    if not ours.changes.removes:
        return
    gone = {remove.path for remove in winner.removes}
    for remove in ours.changes.removes:
        if remove.path in gone:
            reason = f"a file that we remove was removed ({remove.path})"
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
