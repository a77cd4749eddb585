"""Read the change data feed: find the files that hold the changes of each version.

If a version has change files, these are its changes. Otherwise the changes follow from its add and remove actions: all
rows of the files were inserted or deleted; for a file with a new deletion vector, the rows in which the vectors differ.
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
from deltasql.protocol.table_changes import LoggedCommit, Snapshot, TableState
from deltasql.storage import Directory
from deltasql.store import Store
from deltasql.store.read.live_files import files_of_adds

_VERSIONS_PER_QUERY = 100
_THREADS = 16
_MAX_CHECKED = 1_000


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file with changes of a version, all of one kind; if `kind` is None, the file has a column with the kind."""

    file: Add
    version: int
    timestamp: datetime
    kind: str | None


class ChangePlan:
    """Finds the files with the changes of versions."""

    def __init__(self, snapshot: Snapshot, options: Mapping[str, str]) -> None:
        self._snapshot = snapshot
        """The table at the version whose schema the changes are read with."""
        self._directory = Directory(snapshot.location, options)

    @property
    def version(self) -> int:
        """Return the version whose schema the changes are read with."""
        return self._snapshot.version

    def check(self, metadata: Metadata, version: int) -> None:
        """Raise UnsupportedFeature if the changes of a version were not recorded, or have an incompatible schema."""
        table = self._snapshot.name
        if not metadata.table_properties.change_data_feed:
            raise UnsupportedFeature(
                f"table {table}: the changes of version {version} were not recorded, because the property "
                f"delta.enableChangeDataFeed was off. Read later versions, or set the property for future versions",
                features=("changeDataFeed",),
                table=table,
            )
        self.check_types(metadata, version, "has")

    def check_types(self, metadata: Metadata, version: int, does: str) -> None:
        """Raise UnsupportedFeature if a version has other column types or partition columns; `does` is the verb."""
        table, now = self._snapshot.name, self._snapshot.metadata
        changed = changed_types(metadata.schema_string, now.schema_string)
        if changed or metadata.partition_columns != now.partition_columns:
            what = f"columns of other types ({', '.join(changed)})" if changed else "other partition columns"
            raise UnsupportedFeature(
                f"table {table}: version {version} {does} {what}: read the changes before and after it separately",
                table=table,
            )

    def dropped(self, metadata: Metadata) -> list[str]:
        """Return the columns of a version that the schema of the changes no longer has."""
        return dropped_columns(metadata.schema_string, self._snapshot.metadata.schema_string)

    def files_of(self, commit: LoggedCommit) -> list[ChangeFile]:
        """Return the files with the changes of a version."""
        if commit.metadata is not None:
            self.check(commit.metadata, commit.version)
        if commit.cdc:
            adds = [Add(cdc.path, cdc.size, 0, cdc.partition_values) for cdc in commit.cdc]
            return [ChangeFile(add, commit.version, commit.committed_at, None) for add in adds]
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
                yield from self._vector_changes(before.deletion_vector, add)
        yield from ((self._removed_file(remove), DELETED) for remove in removes.values())

    def _vector_changes(self, before: DeletionVector | None, add: Add) -> Iterator[tuple[Add, str]]:
        """Yield the rows that a new deletion vector deletes, and those that it restores."""
        count = num_records(add.stats)
        if count is None:
            raise StorageError(f"table {self._snapshot.name}: the statistics of file {add.path!r} have no numRecords")
        old, new = self._rows(before), self._rows(add.deletion_vector)
        for rows, kind in ((new - old, DELETED), (old - new, INSERTED)):
            if rows:
                unchanged = rows.flip(0, count)
                yield msgspec.structs.replace(add, deletion_vector=inline(encode(unchanged), len(unchanged))), kind

    def _rows(self, vector: DeletionVector | None) -> BitMap64:
        return bitmaps(self._directory, [vector], self._snapshot.name)[0] if vector is not None else BitMap64()

    def _removed_file(self, remove: Remove) -> Add:
        """Return a removed file with its size, which the log need not record."""
        size = remove.size if remove.size is not None else self._directory.size(unquote(remove.path))
        return msgspec.structs.replace(removed_file(remove), size=size or 0)

    def check_files_exist(self, files: Sequence[ChangeFile]) -> None:
        """Raise StorageError if a file was deleted. Of many files, only those past the retention period are checked."""
        old = list(files)
        if len(files) > _MAX_CHECKED:
            retention = self._snapshot.metadata.table_properties.deleted_file_retention
            old = [change for change in files if change.timestamp < datetime.now(UTC) - retention]
        with ThreadPoolExecutor(_THREADS) as pool:
            sizes = pool.map(lambda change: self._directory.size(unquote(change.file.path)), old)
            for change, size in zip(old, sizes, strict=True):
                if size is None:
                    raise StorageError(
                        f"table {self._snapshot.name}: the changes of version {change.version} are no longer "
                        f"available: file {change.file.path!r} was deleted. Read later versions"
                    )

    def snapshots(self, files: Sequence[ChangeFile]) -> list[Snapshot]:
        """Return changes as snapshots, whose rows have the columns of the change data feed."""
        recorded, derived = [f for f in files if f.kind is None], [f for f in files if f.kind is not None]
        return [
            *([_change_snapshot(_with_type(self._snapshot), recorded)] if recorded or not derived else []),
            *([_change_snapshot(self._snapshot, derived)] if derived else []),
        ]


def _change_snapshot(base: Snapshot, files: Sequence[ChangeFile]) -> Snapshot:
    columns = base.metadata.partition_columns
    snapshot = replace(base, files=files_of_adds([change.file for change in files], columns), predicate=None)
    kinds = [change.kind for change in files if change.kind is not None]
    versions, moments = [change.version for change in files], [change.timestamp for change in files]
    return with_change_columns(snapshot, versions, moments, kinds or None)


def with_change_columns(
    snapshot: Snapshot, versions: Sequence[int], moments: Sequence[datetime], kinds: Sequence[str] | None
) -> Snapshot:
    """Add the columns of the change data feed to files: version, commit time, and the kind if the files lack it."""
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
    """Return a snapshot with the column `_change_type`, which change files have."""
    text = with_columns(snapshot.metadata.schema_string, {CHANGE_TYPE: "string"})
    return replace(snapshot, metadata=msgspec.structs.replace(snapshot.metadata, schema_string=text))


def removed_file(remove: Remove) -> Add:
    """Return a removed file as the add action that it had."""
    values, vector = remove.partition_values or {}, remove.deletion_vector
    return Add(remove.path, remove.size or 0, 0, values, deletion_vector=vector)


def feed_columns(schema_string: str) -> str:
    """Return the schema of a table's change data feed."""
    return with_columns(schema_string, dict(zip(CHANGE_COLUMNS, ("string", "long", "timestamp"), strict=True)))


def changes_between(
    store: Store, head: TableState, first: int, last: int | None, options: Mapping[str, str]
) -> list[Snapshot]:
    """Return the changes of a range of versions, up to the latest by default, as snapshots."""
    end = head.version if last is None else store.check_version(head, last)
    if store.check_version(head, first) > end:
        text = f"table {head.name}: the first version {first} of a range of changes is after the last, {end}"
        raise UsageError(text, table=head.name, value=first)
    plan = ChangePlan(state_without_files(store, head, end), options)
    check_first_version(store, head, plan, first)
    files = [file for _, changes in change_files(store, head, plan, first, end) for file in changes]
    plan.check_files_exist(files)
    return plan.snapshots(files)


def check_first_version(store: Store, head: TableState, plan: ChangePlan, first: int) -> None:
    """Raise UnsupportedFeature if the changes of the first version cannot be read, for instance because it removed rows
    of other column types."""
    metadata = state_without_files(store, head, first).metadata
    plan.check(metadata, first)
    check_dropped_columns(store, head, plan, metadata, first)
    [commit] = store.commits(head, [first]).values()
    if commit.metadata is not None and commit.removes and first > 0:
        plan.check_types(state_without_files(store, head, first - 1).metadata, first, "removed rows with")


def check_dropped_columns(store: Store, head: TableState, plan: ChangePlan, metadata: Metadata, version: int) -> None:
    """Raise UnsupportedFeature if a later version drops columns of a version, whose values would be lost."""
    dropped = plan.dropped(metadata)
    if dropped:
        later = _first_after_drops(store, head, plan, version)
        raise UnsupportedFeature(
            f"table {head.name}: version {later} drops columns that version {version} has ({', '.join(dropped)}): "
            f"start at version {later}, and read the changes before it separately",
            table=head.name,
        )


def _first_after_drops(store: Store, head: TableState, plan: ChangePlan, version: int) -> int:
    """Return the first version after a given one from which on no column is dropped."""
    first: int | None = None
    for commit in _commits(store, head, version + 1, plan.version):
        if commit.metadata is not None and plan.dropped(commit.metadata):
            first = None
        elif commit.metadata is not None and first is None:
            first = commit.version
    return plan.version if first is None else first


def state_without_files(store: Store, head: TableState, version: int) -> Snapshot:
    """Return a table at a version, without its files."""
    state = store.state_at(head.table_id, version)
    if state.metadata is None:
        raise ValidationError(f"table {state.name} has no metadata yet", table=state.name)
    no_files = files_of_adds([], state.metadata.partition_columns)
    return Snapshot.of(replace(state, version=version), no_files)


def change_files(
    store: Store, head: TableState, plan: ChangePlan, first: int, last: int
) -> Iterator[tuple[int, list[ChangeFile]]]:
    """Yield the versions of a range with the files that hold their changes."""
    for commit in _commits(store, head, first, last):
        if commit.metadata is not None:
            check_dropped_columns(store, head, plan, commit.metadata, commit.version)
        yield commit.version, plan.files_of(commit)


def _commits(store: Store, head: TableState, first: int, last: int) -> Iterator[LoggedCommit]:
    for start in range(first, last + 1, _VERSIONS_PER_QUERY):
        versions = range(start, min(start + _VERSIONS_PER_QUERY, last + 1))
        yield from (commit for _, commit in sorted(store.commits(head, versions).items()))
