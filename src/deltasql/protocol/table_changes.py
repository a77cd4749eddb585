"""What one transaction does to one table: its actions by kind, what it read, and under which rules it commits."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import pyarrow as pa

from deltasql.errors import ValidationError
from deltasql.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from deltasql.protocol.features import features_of
from deltasql.protocol.schema_rules import changed_types, tightened

SERIALIZABLE = "Serializable"
WRITE_SERIALIZABLE = "WriteSerializable"
SNAPSHOT_ISOLATION = "SnapshotIsolation"
_WIDENING = {"typeWidening", "typeWidening-preview"}


@dataclass(frozen=True, slots=True)
class Changes:
    """The actions of a commit, by kind, each kind in the order given."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    cdc: tuple[Cdc, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    protocols: tuple[Protocol, ...] = ()
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    infos: tuple[CommitInfo, ...] = ()
    _columns: dict[str, list[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, actions: Iterable[Action], table: str) -> Changes:
        """Sort actions by kind; anything that is not an action is refused."""
        if isinstance(actions, Action):
            raise ValidationError(
                f"table {table}: stage a list of actions, as in [{type(actions).__name__}(…)]", table=table
            )
        given: tuple[Any, ...] = tuple(actions)
        kinds = set(map(type, given))
        for kind in kinds - _FIELDS.keys():
            position = next(n for n, action in enumerate(given) if type(action) is kind)
            raise ValidationError(
                f"table {table}: action {position} is a {kind.__name__}, not one of "
                f"{', '.join(known.__name__ for known in _FIELDS)}",
                table=table,
                value=given[position],
            )
        sorted_out: dict[str, Any] = {_FIELDS[kind]: given for kind in kinds}
        if len(kinds) > 1:
            sorted_out = {_FIELDS[kind]: tuple([a for a in given if type(a) is kind]) for kind in kinds}
        return cls(**sorted_out)

    def merge(self, later: Changes) -> Changes:
        """These actions followed by others for the same table."""
        return Changes(*(getattr(self, name) + getattr(later, name) for name in _FIELDS.values()))

    def followed_by(self, later: Changes) -> Changes:
        """The same for statements that come one after the other: a file that was added, and is removed now, was never
        there."""
        gone = {_identity(r) for r in later.removes} & set(map(_identity, self.adds)) if later.removes else ()
        if not gone:
            return self.merge(later)
        ours = replace(self, adds=tuple(add for add in self.adds if _identity(add) not in gone))
        theirs = replace(later, removes=tuple(r for r in later.removes if _identity(r) not in gone))
        return ours.merge(theirs)

    def of_adds(self, name: str) -> list[Any]:
        """One field of all adds. Taken once: a commit may hold 100,000 files, and many checks look at each field."""
        if name not in self._columns:
            self._columns[name] = list(map(attrgetter(name), self.adds))
        return self._columns[name]

    @property
    def num_files(self) -> int:
        """How many file actions this commit holds."""
        return len(self.adds) + len(self.removes) + len(self.cdc)

    @property
    def data_change(self) -> bool:
        """Does any file action change rows, rather than rearrange them?"""
        return True in self.of_adds("data_change") or any(r.data_change for r in self.removes)


_FIELDS: dict[type[Action], str] = {
    Add: "adds",
    Remove: "removes",
    Cdc: "cdc",
    Metadata: "metadata",
    Protocol: "protocols",
    Txn: "txns",
    DomainMetadata: "domains",
    CommitInfo: "infos",
}


def _identity(file: Add | Remove) -> tuple[str, str | None]:
    """To Delta's readers, a path with another deletion vector is another file."""
    return file.path, file.deletion_vector.unique_id if file.deletion_vector else None


@dataclass(frozen=True, slots=True)
class Reads:
    """What a transaction read of a table: decides which winners it must give way to."""

    predicates: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    whole_table: bool = False

    def __or__(self, other: Reads) -> Reads:
        return Reads(
            tuple(dict.fromkeys(self.predicates + other.predicates)),
            self.files | other.files,
            self.whole_table or other.whole_table,
        )

    def __bool__(self) -> bool:
        return bool(self.predicates or self.files or self.whole_table)


@dataclass(frozen=True, slots=True)
class TableState:
    """The head of a table as a writer saw it: what its actions are validated against."""

    table_key: int
    table_id: str
    name: str
    version: int
    metadata: Metadata | None
    protocol: Protocol | None
    location: str = ""
    num_files: int = 0
    shape_version: int = -1
    """The last version that changed metadata or protocol: those of this state hold from there on."""


def misfit(changes: Changes, state: TableState) -> str | None:
    """Why the files that are in the table cannot be read under new metadata: other partition columns, other types."""
    if state.metadata is None or not changes.metadata:
        return None
    before, after = state.metadata, changes.metadata[0]
    if before.partition_columns != after.partition_columns:
        return f"the partition columns change from {list(before.partition_columns)} to {list(after.partition_columns)}"
    protocol = changes.protocols[0] if changes.protocols else state.protocol
    changed = changed_types(before.schema_string, after.schema_string)
    if changed and not (protocol and features_of(protocol) & _WIDENING):
        return f"columns change their type: {', '.join(changed)}"
    strict = tightened(before.schema_string, after.schema_string)
    return f"columns become NOT NULL: {', '.join(strict)}" if strict else None


@dataclass(frozen=True, slots=True)
class NewTable:
    """Where a table that a transaction creates will be known and kept."""

    namespace: str
    name: str
    location: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's part of a transaction, ready to commit.

    `expected_version` makes it strict: exactly that version or a conflict. Otherwise winners after `state.version`
    are examined and the commit is rebased on them where the rules allow it.
    """

    state: TableState
    changes: Changes
    reads: Reads = field(default_factory=Reads)
    expected_version: int | None = None
    isolation: str = WRITE_SERIALIZABLE
    create: NewTable | None = None

    @property
    def is_check(self) -> bool:
        """Was the table only read? Then it takes part in the conflict check, and gets no version."""
        return not self.changes.infos

    @property
    def replaces_files(self) -> bool:
        """Does its metadata fit none of the files before it, so that every file must be one of its own?"""
        return misfit(self.changes, self.state) is not None

    @property
    def in_commit_timestamp(self) -> bool:
        """Does the log carry the time of this commit?"""
        metadata = self.changes.metadata[0] if self.changes.metadata else self.state.metadata
        return metadata is not None and metadata.table_properties.in_commit_timestamps

    @property
    def is_blind_append(self) -> bool:
        """Only adds, and nothing was read."""
        c = self.changes
        return bool(c.adds) and not (self.reads or c.removes or c.metadata or c.protocols)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One version of a table, as the log in the database has it."""

    version: int
    committed_at: datetime
    info: Mapping[str, Any]
    in_commit_timestamp: bool = False
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Sequence[Txn] = ()
    domains: Sequence[DomainMetadata] = ()
    adds: Sequence[Add] = ()
    removes: Sequence[Remove] = ()
    cdc: Sequence[Cdc] = ()


def with_tables(info: Mapping[str, Any], tables: Mapping[str, int] | None) -> Mapping[str, Any]:
    """Commit information that tells the versions of all tables which were committed together."""
    return info if tables is None else {**info, "txnTables": dict(tables)}


def epoch_millis(moment: datetime) -> int:
    """A moment as Delta writes times: whole milliseconds, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


class PartitionLookup(typing.Protocol):
    """The distinct partitions of a table, by key."""

    columns: tuple[str, ...]

    def values(self, column: str, keys: pa.ChunkedArray) -> pa.Array:
        """The serialised values of one partition column for files with these keys."""

    def distinct(self) -> Mapping[str, pa.Array]:
        """The serialised values of each partition column, one per partition."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table at a version. Files come in batches: there may be millions."""

    version: int
    protocol: Protocol
    metadata: Metadata
    txns: tuple[Txn, ...]
    domains: tuple[DomainMetadata, ...]
    partitions: PartitionLookup
    files: Callable[[], Iterator[pa.RecordBatch]]
    tombstones: Callable[[int], Iterator[pa.RecordBatch]]
    """The files that were removed after a moment, in milliseconds, and are still gone."""
