"""What versions of a table did to its rows: which files tell it, and as what they are read.

A version with files of changes is told by these. Any other is told by the files that it adds and removes: their rows
came or went, and of a file that got another deletion vector those that are in one of both only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import unquote

import msgspec
from pyroaring import BitMap64

from deltasql.engines.arrow.read.deletion_vector_read import bitmaps
from deltasql.engines.arrow.read.file_constant_columns import with_file_constants
from deltasql.errors import StorageError, UnsupportedFeature, UsageError, ValidationError
from deltasql.protocol.actions import (
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETED,
    INSERTED,
    Add,
    DeletionVector,
    Metadata,
    Remove,
)
from deltasql.protocol.deletion_vectors import encode, inline
from deltasql.protocol.schema_fit import with_columns
from deltasql.protocol.schema_rules import changed_types, dropped_columns
from deltasql.protocol.statistics import num_records
from deltasql.protocol.table_changes import LoggedCommit, TableState
from deltasql.storage import Directory
from deltasql.store import Snapshot, Store
from deltasql.store.read.live_files import presented

_VERSIONS_AT_ONCE = 100
_THREADS = 16
_MOST_LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file whose rows were changed in a version: all in the same way, or as the file tells if `kind` is None."""

    file: Add
    version: int
    timestamp: datetime
    kind: str | None


class ChangePlan:
    """Finds the files that tell what versions did."""

    def __init__(self, snapshot: Snapshot, options: Mapping[str, str]) -> None:
        self._snapshot = snapshot
        """The table at the version whose schema rows are read by."""
        self._directory = Directory(snapshot.location, options)

    @property
    def version(self) -> int:
        """The one whose schema rows are read by."""
        return self._snapshot.version

    def check(self, metadata: Metadata, version: int) -> None:
        """Refuse a version whose changes were not recorded, or whose rows are not rows of the schema that changes are
        read by."""
        table = self._snapshot.name
        if not metadata.table_properties.change_data_feed:
            raise UnsupportedFeature(
                f"table {table}: the changes of version {version} were not recorded: delta.enableChangeDataFeed was "
                f"not on. Ask for later versions, or set the property for those to come",
                features=("changeDataFeed",),
                table=table,
            )
        self.check_types(metadata, version, "has")

    def check_types(self, metadata: Metadata, version: int, does: str) -> None:
        """Refuse a version with rows that are not rows of the schema that changes are read by."""
        table, now = self._snapshot.name, self._snapshot.metadata
        changed = changed_types(metadata.schema_string, now.schema_string)
        if changed or metadata.partition_columns != now.partition_columns:
            what = f"columns of other types ({', '.join(changed)})" if changed else "other partition columns"
            raise UnsupportedFeature(
                f"table {table}: version {version} {does} {what}: ask for the changes before and after it apart",
                table=table,
            )

    def dropped(self, metadata: Metadata) -> list[str]:
        """The columns that the schema which changes are read by has no more."""
        return dropped_columns(metadata.schema_string, self._snapshot.metadata.schema_string)

    def files_of(self, commit: LoggedCommit) -> list[ChangeFile]:
        """The files that tell what a version did."""
        if commit.metadata is not None:
            self.check(commit.metadata, commit.version)
        if commit.cdc:
            told = [Add(one.path, one.size, 0, one.partition_values) for one in commit.cdc]
            return [ChangeFile(add, commit.version, commit.committed_at, None) for add in told]
        return [ChangeFile(a, commit.version, commit.committed_at, kind) for a, kind in self._derived(commit)]

    def _derived(self, commit: LoggedCommit) -> Iterator[tuple[Add, str]]:
        removes = {remove.path: remove for remove in commit.removes if remove.data_change}
        for add in commit.adds:
            if not add.data_change:
                continue
            before = removes.pop(add.path, None)
            if before is None:
                yield add, INSERTED
            else:
                yield from self._remarked(before.deletion_vector, add)
        yield from ((self._removed_file(remove), DELETED) for remove in removes.values())

    def _remarked(self, before: DeletionVector | None, add: Add) -> Iterator[tuple[Add, str]]:
        """Rows that are deleted now and were not, and the other way round."""
        count = num_records(add.stats)
        if count is None:
            raise StorageError(f"table {self._snapshot.name}: {add.path!r} does not say how many rows it has")
        old, new = self._rows(before), self._rows(add.deletion_vector)
        for rows, kind in ((new - old, DELETED), (old - new, INSERTED)):
            if rows:
                others = rows.flip(0, count)
                yield msgspec.structs.replace(add, deletion_vector=inline(encode(others), len(others))), kind

    def _rows(self, vector: DeletionVector | None) -> BitMap64:
        return bitmaps(self._directory, [vector], self._snapshot.name)[0] if vector is not None else BitMap64()

    def _removed_file(self, remove: Remove) -> Add:
        """Return a removed file with its size, which the log need not record."""
        size = remove.size if remove.size is not None else self._directory.size(unquote(remove.path))
        return msgspec.structs.replace(removed_file(remove), size=size or 0)

    def check_files_exist(self, files: Sequence[ChangeFile]) -> None:
        """Refuse changes that were cleaned up. Of many files, young ones are not looked at: nobody may delete these."""
        old = list(files)
        if len(files) > _MOST_LOOKED_AT:
            kept = self._snapshot.metadata.table_properties.deleted_file_retention
            old = [one for one in files if one.timestamp < datetime.now(UTC) - kept]
        with ThreadPoolExecutor(_THREADS) as pool:
            sizes = pool.map(lambda one: self._directory.size(unquote(one.file.path)), old)
            for one, size in zip(old, sizes, strict=True):
                if size is None:
                    raise StorageError(
                        f"table {self._snapshot.name}: what version {one.version} did is no longer there: "
                        f"{one.file.path!r} was cleaned up. Ask for later versions"
                    )

    def snapshots(self, files: Sequence[ChangeFile]) -> list[Snapshot]:
        """Changes as snapshots, whose rows are those of the table and what is told of each."""
        told, derived = [f for f in files if f.kind is None], [f for f in files if f.kind is not None]
        return [
            *([_labelled(_with_type(self._snapshot), told, files_tell=True)] if told or not derived else []),
            *([_labelled(self._snapshot, derived, files_tell=False)] if derived else []),
        ]


def _labelled(base: Snapshot, files: Sequence[ChangeFile], *, files_tell: bool) -> Snapshot:
    columns = base.metadata.partition_columns
    snapshot = replace(base, files=presented([one.file for one in files], columns), predicate=None)
    kinds = None if files_tell else [one.kind for one in files]
    return with_change_columns(snapshot, [one.version for one in files], [one.timestamp for one in files], kinds)


def with_change_columns(
    snapshot: Snapshot, versions: Sequence[int], moments: Sequence[datetime], kinds: Sequence[str | None] | None
) -> Snapshot:
    """Files as changes: of which version, when, and what kind of change their rows are, if the files do not tell."""
    times = [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z" for at in moments]
    return with_file_constants(
        snapshot,
        {
            **({} if kinds is None else {CHANGE_TYPE: ("string", kinds)}),
            COMMIT_VERSION: ("long", [str(version) for version in versions]),
            COMMIT_TIMESTAMP: ("timestamp", times),
        },
    )


def _with_type(snapshot: Snapshot) -> Snapshot:
    """With the column that files of changes have besides."""
    text = with_columns(snapshot.metadata.schema_string, {CHANGE_TYPE: "string"})
    return replace(snapshot, metadata=msgspec.structs.replace(snapshot.metadata, schema_string=text))


def removed_file(remove: Remove) -> Add:
    """Return a removed file as the add action that it had."""
    values, vector = remove.partition_values or {}, remove.deletion_vector
    return Add(remove.path, remove.size or 0, 0, values, deletion_vector=vector)


def feed_columns(schema_string: str) -> str:
    """The schema of a table's changes."""
    return with_columns(schema_string, dict(zip(CHANGE_COLUMNS, ("string", "long", "timestamp"), strict=True)))


def changes_between(
    store: Store, head: TableState, first: int, last: int | None, options: Mapping[str, str]
) -> list[Snapshot]:
    """What the versions from one to another did, or to the latest, as snapshots."""
    end = head.version if last is None else store.check_version(head, last)
    if store.check_version(head, first) > end:
        text = f"table {head.name}: changes go from a version to the same or a later one, got {first} and {end}"
        raise UsageError(text, table=head.name, value=first)
    plan = ChangePlan(state_without_files(store, head, end), options)
    check_first_version(store, head, plan, first)
    files = [file for _, found in change_files(store, head, plan, first, end) for file in found]
    plan.check_files_exist(files)
    return plan.snapshots(files)


def check_first_version(store: Store, head: TableState, plan: ChangePlan, first: int) -> None:
    """Refuse to begin with a version whose changes cannot be told: also one that took out rows of other types than it
    has itself."""
    metadata = state_without_files(store, head, first).metadata
    plan.check(metadata, first)
    check_dropped_columns(store, head, plan, metadata, first)
    [commit] = store.commits(head, [first]).values()
    if commit.metadata is not None and commit.removes and first > 0:
        plan.check_types(state_without_files(store, head, first - 1).metadata, first, "took out rows with")


def check_dropped_columns(store: Store, head: TableState, plan: ChangePlan, metadata: Metadata, version: int) -> None:
    """Refuse a version with columns that a later one drops: nobody would see their values."""
    dropped = plan.dropped(metadata)
    if dropped:
        later = _first_without_more(store, head, plan, version)
        raise UnsupportedFeature(
            f"table {head.name}: version {later} drops columns that version {version} has ({', '.join(dropped)}): "
            f"begin with version {later}, and ask for the changes before it apart",
            table=head.name,
        )


def _first_without_more(store: Store, head: TableState, plan: ChangePlan, version: int) -> int:
    """The version after a given one from which on there are no columns that are dropped later."""
    found: int | None = None
    for commit in _commits(store, head, version + 1, plan.version):
        if commit.metadata is not None and plan.dropped(commit.metadata):
            found = None
        elif commit.metadata is not None and found is None:
            found = commit.version
    return plan.version if found is None else found


def state_without_files(store: Store, head: TableState, version: int) -> Snapshot:
    """A table at a version, without its files."""
    state = store.state_at(head.table_id, version)
    if state.metadata is None:
        raise ValidationError(f"table {state.name} has no metadata yet", table=state.name)
    no_files = presented([], state.metadata.partition_columns)
    return Snapshot.of(replace(state, version=version), no_files)


def change_files(
    store: Store, head: TableState, plan: ChangePlan, first: int, last: int
) -> Iterator[tuple[int, list[ChangeFile]]]:
    """The files that tell what each version did."""
    for commit in _commits(store, head, first, last):
        if commit.metadata is not None:
            check_dropped_columns(store, head, plan, commit.metadata, commit.version)
        yield commit.version, plan.files_of(commit)


def _commits(store: Store, head: TableState, first: int, last: int) -> Iterator[LoggedCommit]:
    for start in range(first, last + 1, _VERSIONS_AT_ONCE):
        versions = range(start, min(start + _VERSIONS_AT_ONCE, last + 1))
        yield from (commit for _, commit in sorted(store.commits(head, versions).items()))
