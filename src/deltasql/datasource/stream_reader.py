"""Read a table as a stream: first its rows, then the rows of each commit, a limited number of files at a time.

An offset names the next file: `version` and `index`. With `snapshot`, the index counts the live files of the version;
without it, the files that the version adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from deltasql.datasource.read_limits import (
    LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from deltasql.datasource.read_options import reads_changes, reject_timestamps
from deltasql.datasource.tasks import FilesPartition, LakeAddress, read_files, tasks_of
from deltasql.engines.arrow.read.change_feed_scan import (
    ChangeFile,
    ChangePlan,
    check_dropped_columns,
    check_first_version,
    with_change_columns,
)
from deltasql.errors import UnsupportedFeature, UsageError
from deltasql.lake import connect
from deltasql.protocol.actions import INSERTED, Metadata
from deltasql.protocol.table_changes import LoggedCommit
from deltasql.store import Snapshot
from deltasql.store.read.live_files import files_of_adds

Offset = dict[str, Any]
_VERSIONS_AT_ONCE = 100


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process, which keeps the lake open; tasks read files."""

    def __init__(self, address: LakeAddress, table: str, options: Mapping[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        reject_timestamps(table, given)
        self._address = address
        self._table = table
        self._starting = given.get("startingversion")
        self._skip_changes = given.get("skipchangecommits", "false").lower() == "true"
        self._max_files = _positive(given.get("maxfilespertrigger"), table)
        self._feed = reads_changes(given)
        if self._max_files and not LIMITS:
            raise UsageError(f"table {table}: maxFilesPerTrigger needs PySpark 4.2: update PySpark, or omit the option")
        self._last: int | None = None
        self._planner: _Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_planner": None}

    def _planning(self) -> _Planner:
        if self._planner is None:
            planner = _FeedPlanner if self._feed else _Planner
            self._planner = planner(self._address, self._table, skip_changes=self._skip_changes)
        return self._planner

    def initialOffset(self) -> Offset:
        head = self._planning().head()
        if self._starting is None:
            return _at(head, snapshot=True)
        if self._starting.lower() == "latest":
            return _at(head + 1)
        if not self._starting.isdigit() or int(self._starting) > head + 1:
            raise UsageError(
                f"table {self._table}: startingVersion must be 'latest' or a version from 0 to {head + 1}, got "
                f"{self._starting!r}",
                table=self._table,
                value=self._starting,
            )
        return _at(int(self._starting))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._max_files) if self._max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._planning().head()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch. Before PySpark 4.2 there are no arguments, and a batch takes everything."""
        head = self._planning().head() if self._last is None else self._last
        if start is None or not isinstance(limit, ReadMaxFiles):
            return _at(head + 1) if start is None else max(start, _at(head + 1), key=_order)
        return self._planning().advance(start, head, limit.max_files)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._planning().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_files(partition, self._address.storage_options)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


def _at(version: int, index: int = 0, *, snapshot: bool = False) -> Offset:
    return {"version": version, "index": index, "snapshot": snapshot}


def _order(offset: Offset) -> tuple[int, bool, int]:
    """Sort key: the snapshot of a version comes before the files that later versions add."""
    return offset["version"], not offset["snapshot"], offset["index"]


def _positive(text: str | None, table: str) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"table {table}: maxFilesPerTrigger must be an integer from 1, got {text!r}", value=text)
    return int(text)


class _Planner:
    """Finds the files of a stream in the log."""

    def __init__(self, address: LakeAddress, table: str, *, skip_changes: bool) -> None:
        self._lake = connect(address.url, config=address.config, storage_options=address.storage_options)
        self._table = self._lake.table(table)
        self._skip_changes = skip_changes
        self._snapshot = self._table.snapshot()
        self._initial: tuple[int, Snapshot] | None = None

    def close(self) -> None:
        self._lake.close()

    def head(self) -> int:
        return self._table.version

    def advance(self, start: Offset, head: int, files: int) -> Offset:
        """Return the offset after a number of files, or after the head."""
        position = dict(start)
        if position["snapshot"]:
            count = self._initial_snapshot(position["version"]).files.num_rows
            taken = min(files, count - position["index"])
            files -= taken
            if position["index"] + taken < count:
                return _at(position["version"], position["index"] + taken, snapshot=True)
            position = _at(position["version"] + 1)
        for version, found in self._files_by_version(position["version"], head):
            left = len(found) - (position["index"] if version == position["version"] else 0)
            if left > files:
                return self._within(version, len(found) - left, files)
            files -= left
        return _at(max(head + 1, position["version"]))

    def _within(self, version: int, index: int, files: int) -> Offset:
        """Return the end of a batch that can take only a part of a version."""
        return _at(version, index + files)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        tasks: list[InputPartition] = []
        first, index = start["version"], start["index"]
        if start["snapshot"]:
            whole = self._initial_snapshot(first)
            stop = end["index"] if end["snapshot"] else whole.files.num_rows
            tasks += self._initial_tasks(replace(whole, files=whole.files.slice(index, stop - index)))
            first, index = first + 1, 0
        if end["snapshot"]:
            return tasks
        files: list[Any] = []
        for version, found in self._files_by_version(first, end["version"] if end["index"] else end["version"] - 1):
            begin = index if version == first else 0
            files += found[begin : end["index"] if version == end["version"] else None]
        return tasks + self._tasks(files)

    def _initial_tasks(self, part: Snapshot) -> list[FilesPartition]:
        return tasks_of(part)

    def _tasks(self, files: Sequence[Any]) -> list[FilesPartition]:
        return tasks_of(replace(self._snapshot, files=files_of_adds(files, self._snapshot.metadata.partition_columns)))

    def _initial_snapshot(self, version: int) -> Snapshot:
        """Return the first snapshot. Its files are sorted, because offsets count them and outlive the query."""
        if self._initial is None or self._initial[0] != version:
            found = self._table.snapshot(version=version)
            self._initial = version, replace(found, files=found.files.sort_by("path"))
        return self._initial[1]

    def _files_by_version(self, first: int, last: int) -> Iterator[tuple[int, Sequence[Any]]]:
        """Return the files that the stream reads of each version."""
        state = self._table.state()
        for start in range(first, last + 1, _VERSIONS_AT_ONCE):
            versions = range(start, min(start + _VERSIONS_AT_ONCE, last + 1))
            for version, commit in sorted(self._lake.store.commits(state, versions).items()):
                yield version, self._rows_of(commit)

    def _rows_of(self, commit: LoggedCommit) -> Sequence[Any]:
        """Return the files that a commit adds."""
        name = self._table.name
        self._check_schema(commit, name)
        if any(remove.data_change for remove in commit.removes):
            if self._skip_changes:
                return []
            raise UnsupportedFeature(
                f"table {name}: version {commit.version} removes or changes rows, which a stream cannot undo: "
                f"set skipChangeCommits=true to skip such commits",
                table=name,
            )
        return [add for add in commit.adds if add.data_change]

    def _check_schema(self, commit: LoggedCommit, name: str) -> None:
        """Reject a schema change after the stream began.

        Versions before that are read with the current schema.
        """
        schema = commit.metadata.schema_string if commit.metadata else None
        changes = schema is not None and schema != self._snapshot.metadata.schema_string
        if changes and commit.version > self._snapshot.version:
            raise UnsupportedFeature(
                f"table {name}: version {commit.version} changes the schema: restart the stream to continue",
                table=name,
            )


class _FeedPlanner(_Planner):
    """Finds the files of a stream of the change data feed; existing rows are read as inserts."""

    def __init__(self, address: LakeAddress, table: str, *, skip_changes: bool) -> None:
        super().__init__(address, table, skip_changes=skip_changes)
        self._plan = ChangePlan(self._snapshot, address.storage_options)
        self._plan.check(self._snapshot.metadata, self._snapshot.version)
        self._checked = False

    def _files_by_version(self, first: int, last: int) -> Iterator[tuple[int, Sequence[Any]]]:
        if not self._checked and first <= last:
            check_first_version(self._lake.store, self._table.state(), self._plan, first)
            self._checked = True
        return super()._files_by_version(first, last)

    def _within(self, version: int, index: int, files: int) -> Offset:  # noqa: ARG002
        """Keep all changes of a version in one batch, so that both images of an update stay together."""
        return _at(version + 1 if files > 0 else version)

    def _rows_of(self, commit: LoggedCommit) -> Sequence[ChangeFile]:
        self._check_schema(commit, self._table.name)
        if commit.metadata is not None:
            self._check_columns(commit.metadata, commit.version)
        files = self._plan.files_of(commit)
        self._plan.check_files_exist(files)
        return files

    def _tasks(self, files: Sequence[Any]) -> list[FilesPartition]:
        return [task for snapshot in self._plan.snapshots(files) for task in tasks_of(snapshot)]

    def _check_columns(self, metadata: Metadata, version: int) -> None:
        check_dropped_columns(self._lake.store, self._table.state(), self._plan, metadata, version)

    def _initial_tasks(self, part: Snapshot) -> list[FilesPartition]:
        self._plan.check_types(part.metadata, part.version, "has")
        self._check_columns(part.metadata, part.version)
        (commit,) = self._lake.store.commits(self._table.state(), [part.version]).values()
        count = part.files.num_rows
        whole = replace(part, metadata=self._snapshot.metadata)
        versions, moments = [part.version] * count, [commit.committed_at] * count
        return tasks_of(with_change_columns(whole, versions, moments, [INSERTED] * count))
