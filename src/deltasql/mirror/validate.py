"""Compare the published log of a table with the database, and describe every difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec
import pyarrow as pa

from deltasql.delta_log.last_checkpoint import decode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path, commit_path
from deltasql.delta_log.log_files import LogFiles
from deltasql.delta_log.replay import FileKey, ReplayedTable, file_key, replay
from deltasql.errors import DeltaSqlError
from deltasql.mirror.log_conflicts import CommitFileFault, Commits, FaultKind, faults
from deltasql.protocol.actions import Add
from deltasql.protocol.table_changes import TableContents
from deltasql.storage import Directory
from deltasql.store.action_rows import loads, vector_of
from deltasql.store.mirror_records import Progress

_FIELDS = (
    "size",
    "modification_time",
    "partition_values",
    "stats",
    "tags",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """Queries on the log of a table in the database. `first_retained` returns the first version that log retention has
    not deleted."""

    progress: Callable[[], Progress]
    first_retained: Callable[[], int]
    commits: Commits


def differences(directory: Directory, contents: TableContents | None, stored: StoredLog) -> list[str]:
    """Return a sentence per difference. `contents` is the table at the version that was published last, None if there
    is none. The log is listed before the database is read, because commits may be published in the meantime."""
    while True:
        first = stored.first_retained()
        problems = _differences(directory, contents, stored, first)
        # Log retention that runs at the same time looks like missing files: compare again.
        if not problems or stored.first_retained() == first:
            return problems


def _differences(directory: Directory, contents: TableContents | None, stored: StoredLog, first: int) -> list[str]:
    published = contents.version if contents is not None else -1
    log = LogFiles.of(directory)
    head = stored.progress().head
    wrong = _wrong_commits(directory, log, stored, first, published=published, head=head)
    problems = [*_newer(log, head), *_strays(directory, log, stored.progress), *_described(wrong)]
    if log.lacks_first_checkpoint(first) and first <= published:
        problems.append(
            f"{checkpoint_path(first)} is missing, and the versions before it were deleted by log retention"
        )
    if contents is None:
        return problems
    try:
        replayed = replay(directory, log, published)
    except DeltaSqlError as error:
        is_listed = any(commit_path(fault.version) in str(error) for fault in wrong)
        return problems if is_listed else [*problems, str(error)]
    return [*problems, *_compare(replayed, contents)]


def _wrong_commits(
    directory: Directory, log: LogFiles, stored: StoredLog, first: int, *, published: int, head: int
) -> list[CommitFileFault]:
    """Return the commit files that are missing, truncated or another writer's. A file after the version that was
    published last may be incomplete, because it is being written."""
    wrong = [CommitFileFault(version, FaultKind.MISSING) for version in log.missing(first, published)]
    sizes = {version: size for version, size in log.commits.items() if version <= head}
    for fault in faults(directory, sizes, stored.commits):
        is_bad = {
            FaultKind.FOREIGN: True,
            FaultKind.TRUNCATED: fault.version <= published,
            FaultKind.MISSING: first <= fault.version <= published,
        }
        if is_bad[fault.kind]:
            wrong.append(fault)
    return sorted(wrong, key=lambda fault: fault.version)


def _described(wrong: Sequence[CommitFileFault]) -> Iterator[str]:
    """Yield a sentence per fault, and one for consecutive commit files that are missing."""
    run: list[CommitFileFault] = []
    for fault, following in zip_longest(wrong, wrong[1:]):
        if fault.kind is not FaultKind.MISSING:
            yield str(fault)
            continue
        run.append(fault)
        if following is None or following.kind is not FaultKind.MISSING or following.version > fault.version + 1:
            more = f", and so are the commit files up to version {fault.version}" if len(run) > 1 else ""
            yield f"{run[0]}{more}"
            run = []


def _newer(log: LogFiles, head: int) -> Iterator[str]:
    for version in sorted(log.commits):
        if version > head:
            yield f"_delta_log holds version {version}, which the database does not have"
    for version in sorted(log.checkpoints):
        if version > head:
            yield f"_delta_log holds a checkpoint of version {version}, which the database does not have"


def _strays(directory: Directory, log: LogFiles, progress: Callable[[], Progress]) -> Iterator[str]:
    """Yield a sentence per file that misleads readers and is neither a commit nor a checkpoint of ours."""
    for path in log.strays:
        yield f"{path} is another writer's, and readers may prefer it to the log"
    hint = directory.get(LAST_CHECKPOINT)
    hinted = decode_hint(hint)
    if hinted is None:
        if hint is not None:
            yield f"{LAST_CHECKPOINT} is another writer's, or broken"
    elif hinted > progress().published:
        yield f"{LAST_CHECKPOINT} names version {hinted}, which is not published"
    elif directory.size(checkpoint_path(hinted)) is None:
        yield f"{LAST_CHECKPOINT} names version {hinted}, whose checkpoint does not exist"


def _compare(published: ReplayedTable, contents: TableContents) -> Iterator[str]:
    yield from _differing("protocol", published.protocol, contents.protocol)
    yield from _differing("metaData", published.metadata, contents.metadata)
    txns = {t.app_id: t for t in contents.txns}
    yield from _keyed("application transaction", published.txns, txns)
    yield from _keyed("domain", published.domains, {d.domain: d for d in contents.domains})
    files = {_name(key): add for key, add in _files(contents)}
    published_files = {_name(key): add for key, add in published.files.items()}
    if not contents.metadata.table_properties.stats_as_json:
        published_files = {name: _with_stats(add, files.get(name)) for name, add in published_files.items()}
    yield from _keyed("file", published_files, files)


def _with_stats(published: Add, stored: Add | None) -> Add:
    """Return the file with the stored statistics. A checkpoint has them only as a struct, whose text may differ; the
    bytes of commit files are compared anyway."""
    return published if stored is None else msgspec.structs.replace(published, stats=stored.stats)


def _name(key: FileKey) -> str:
    return key[0] if key[1] is None else f"{key[0]} with deletion vector {key[1]}"


def _keyed(what: str, published: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(stored.keys() - published.keys()):
        yield f"{what} {key}: in the database, not in _delta_log"
    for key in sorted(published.keys() - stored.keys()):
        yield f"{what} {key}: in _delta_log, not in the database"
    for key in sorted(stored.keys() & published.keys()):
        yield from _differing(f"{what} {key}", published[key], stored[key])


def _differing(what: str, published: Any, stored: Any) -> Iterator[str]:
    if isinstance(published, Add) and isinstance(stored, Add):
        for name in _FIELDS:
            in_log, in_database = getattr(published, name), getattr(stored, name)
            if in_log != in_database:
                yield f"{what}: {name} is {in_log!r} in _delta_log, {in_database!r} in the database"
    elif published != stored:
        yield f"{what}: {published!r} in _delta_log, {stored!r} in the database"


def _files(contents: TableContents) -> Iterator[tuple[FileKey, Add]]:
    for batch in contents.files():
        names, keys = contents.partitions.columns, pa.chunked_array([batch.column("partition_key")])
        columns = [contents.partitions.values(name, keys).to_pylist() for name in names]
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [{}] * batch.num_rows
        for row, partition_values in zip(batch.to_pylist(), values, strict=True):
            add = Add(
                path=row["path"],
                size=row["size"],
                modification_time=row["modification_time"],
                partition_values=partition_values,
                stats=row["stats"],
                tags=None if row["tags"] is None else loads(row["tags"]),
                deletion_vector=vector_of(row.get("deletion_vector")),
                base_row_id=row["base_row_id"],
                default_row_commit_version=row["default_row_commit_version"],
                clustering_provider=row["clustering_provider"],
            )
            yield file_key(add), add
