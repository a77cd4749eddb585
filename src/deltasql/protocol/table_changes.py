"""A table's state and snapshot, and the part of a transaction in one table: its actions by kind and its reads."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from deltasql.errors import ValidationError, shown
from deltasql.protocol.action_types import check_field_types, check_file_keys
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
from deltasql.protocol.file_paths import check_read_paths
from deltasql.protocol.schema import arrow_schema
from deltasql.protocol.schema_rules import changed_types, tightened

if TYPE_CHECKING:
    from deltasql.expressions.predicates import Predicate

SERIALIZABLE = "Serializable"
WRITE_SERIALIZABLE = "WriteSerializable"
SNAPSHOT_ISOLATION = "SnapshotIsolation"
_WIDENING = {"typeWidening", "typeWidening-preview"}


@dataclass(frozen=True, slots=True)
class Changes:
    """The actions of a commit by kind, each kind in the given order."""

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
    def of(cls, actions: Any, table: str) -> Changes:
        """Group actions by kind; raise ValidationError for a value that is not an action."""
        if isinstance(actions, Action):
            raise ValidationError(
                f"table {table}: actions must be a list, as in [{type(actions).__name__}(…)]", table=table
            )
        if not isinstance(actions, Iterable):
            problem = f"actions must be a list of actions, got {shown(actions)}"
            raise ValidationError(f"table {table}: {problem}", table=table, value=actions)
        given: tuple[Any, ...] = tuple(actions)
        kinds = set(map(type, given))
        for kind in kinds - _FIELDS.keys():
            index = next(n for n, action in enumerate(given) if type(action) is kind)
            raise ValidationError(
                f"table {table}: action {index} is a {kind.__name__}, not one of "
                f"{', '.join(known.__name__ for known in _FIELDS)}",
                table=table,
                value=given[index],
            )
        by_field: dict[str, Any] = {_FIELDS[kind]: given for kind in kinds}
        if len(kinds) > 1:
            by_field = {_FIELDS[kind]: tuple([a for a in given if type(a) is kind]) for kind in kinds}
        changes = cls(**by_field)
        _check_types(changes, table)
        return changes

    def merge(self, later: Changes) -> Changes:
        """Return these actions followed by later ones for the same table."""
        return Changes(*(getattr(self, name) + getattr(later, name) for name in _FIELDS.values()))

    def followed_by(self, later: Changes) -> Changes:
        """Merge the changes of a later statement; drop files that these changes add and the later ones remove."""
        dropped = {_identity(r) for r in later.removes} & set(map(_identity, self.adds)) if later.removes else ()
        if not dropped:
            return self.merge(later)
        ours = replace(self, adds=tuple(add for add in self.adds if _identity(add) not in dropped))
        theirs = replace(later, removes=tuple(r for r in later.removes if _identity(r) not in dropped))
        return ours.merge(theirs)

    def of_adds(self, name: str) -> list[Any]:
        """Return one field of all adds; cached, because many checks read each field of up to 100,000 files."""
        if name not in self._columns:
            self._columns[name] = list(map(attrgetter(name), self.adds))
        return self._columns[name]

    @property
    def num_files(self) -> int:
        """Return the number of file actions."""
        return len(self.adds) + len(self.removes) + len(self.cdc)

    @property
    def data_change(self) -> bool:
        """Return whether any file action changes rows, rather than only rearranging them."""
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


def _check_types(changes: Changes, table: str) -> None:
    """Raise for a field of a wrong type. The other fields of files are checked all at once, by `validation`."""
    for action in (*changes.metadata, *changes.protocols, *changes.txns, *changes.domains, *changes.infos):
        check_field_types(action, table)
    check_file_keys(changes.of_adds("path"), changes.of_adds("deletion_vector"), table)
    check_file_keys([r.path for r in changes.removes], [r.deletion_vector for r in changes.removes], table)


def _identity(file: Add | Remove) -> tuple[str, str | None]:
    """Return what identifies a file: the same path with another deletion vector is another file."""
    return file.path, file.deletion_vector.unique_id if file.deletion_vector else None


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of a transaction in one table, which decide the concurrent commits that conflict with it.

    Attributes:
        predicates: Conditions in Spark SQL for the rows that were read.
        files: The paths of the files that were read.
        whole_table: Whether all rows were read.
    """

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
    """The latest version of a table when a writer read it. Its actions are validated against this state.

    Attributes:
        table_key: The key of the table in the database.
        table_id: The table's UUID.
        name: The table's full name.
        version: The latest version.
        metadata: The metaData action.
        protocol: The protocol action.
        location: The directory of the table.
        num_files: The number of live files.
        head_id: The id of the commit of `version`. A version may exist again after the database was restored from a
            backup; an id never does.
        shape_id: The id of the last commit that changed the metadata or the protocol.
    """

    table_key: int
    table_id: str
    name: str
    version: int
    metadata: Metadata | None
    protocol: Protocol | None
    location: str = ""
    num_files: int = 0
    head_id: int = -1
    shape_id: int = -1


class Head(NamedTuple):
    """The latest version of a table, and the id of its commit."""

    version: int
    commit_id: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version, with its live files.

    Attributes:
        table_id: The table's UUID.
        name: The table's full name, `namespace.name`.
        version: The version of the snapshot.
        metadata: The table's metaData action at that version.
        protocol: The table's protocol action at that version.
        files: The live files, one row per file; with a predicate, only the files that may hold matching rows.
        location: The directory of the table.
        predicate: The predicate that the files were pruned by, if one was given.
    """

    table_id: str
    name: str
    version: int
    metadata: Metadata
    protocol: Protocol
    files: pa.Table
    location: str
    predicate: Predicate | None = None

    @classmethod
    def of(cls, state: TableState, files: pa.Table, predicate: Predicate | None = None) -> Snapshot:
        """Return the snapshot of a table state with its files.

        Raises:
            ValidationError: The state has no metadata, because the table has no version yet, or a file is outside of
                the table.
        """
        if state.metadata is None:
            raise ValidationError(f"table {state.name} has no metadata yet", table=state.name, table_id=state.table_id)
        check_read_paths(files["path"], state.name)
        return cls(
            table_id=state.table_id,
            name=state.name,
            version=state.version,
            metadata=state.metadata,
            protocol=state.protocol or Protocol(),
            files=files,
            location=state.location,
            predicate=predicate,
        )

    @property
    def schema(self) -> pa.Schema:
        """Return the table's columns as an Arrow schema."""
        return arrow_schema(self.metadata.schema_string)

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the table's properties."""
        return self.metadata.configuration


def misfit(changes: Changes, state: TableState) -> str | None:
    """Return why the files of the table do not fit the new metadata, or None if they fit."""
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
    """The name and location of a table that a transaction creates."""

    namespace: str
    name: str
    location: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's part of a transaction, ready to commit.

    With `expected_version`, the commit creates exactly that version or fails. Otherwise, versions that landed after
    `state.version` are checked for conflicts, and the commit is rebased on them if there are none.
    """

    state: TableState
    changes: Changes
    reads: Reads = field(default_factory=Reads)
    expected_version: int | None = None
    isolation: str = WRITE_SERIALIZABLE
    create: NewTable | None = None

    @property
    def is_check(self) -> bool:
        """Return whether the table was only read: then conflicts are checked, and no version is created."""
        return not self.changes.infos

    @property
    def replaces_files(self) -> bool:
        """Return whether the new metadata does not fit existing files, so that the commit must replace all of them."""
        return misfit(self.changes, self.state) is not None

    @property
    def in_commit_timestamp(self) -> bool:
        """Return whether the commit gets an in-commit timestamp."""
        metadata = self.changes.metadata[0] if self.changes.metadata else self.state.metadata
        return metadata is not None and metadata.table_properties.in_commit_timestamps

    @property
    def is_blind_append(self) -> bool:
        """Return whether the commit only adds files and read nothing."""
        c = self.changes
        return bool(c.adds) and not (self.reads or c.removes or c.metadata or c.protocols)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One version of a table, as stored in the database."""

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
    """Return commit information with the version of each table of a multi-table commit."""
    return info if tables is None else {**info, "txnTables": dict(tables)}


def epoch_millis(moment: datetime) -> int:
    """Return a time in whole milliseconds since 1970, rounded down, as Delta writes it."""
    return (moment - _EPOCH) // _MILLISECOND


class PartitionLookup(typing.Protocol):
    """The distinct partitions of a table, by key."""

    columns: tuple[str, ...]

    def values(self, column: str, keys: pa.ChunkedArray) -> pa.Array:
        """Return the texts of one partition column for files with these keys."""

    def distinct(self) -> Mapping[str, pa.Array]:
        """Return the texts of each partition column, one per partition."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """The contents of a table at a version. Files come in batches because there may be millions."""

    version: int
    protocol: Protocol
    metadata: Metadata
    txns: tuple[Txn, ...]
    domains: tuple[DomainMetadata, ...]
    partitions: PartitionLookup
    files: Callable[[], Iterator[pa.RecordBatch]]
    tombstones: Callable[[int], Iterator[pa.RecordBatch]]
    """Return the removed files whose removal is later than a time in milliseconds."""
