"""Does the published log say what the database says? Every difference, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec
import pyarrow as pa

from deltasql.delta_log.last_checkpoint import decode_hint
from deltasql.delta_log.layout import LAST_CHECKPOINT, checkpoint_path, commit_path
from deltasql.delta_log.replay import FileKey, Log, Replayed, file_key, replay
from deltasql.errors import DeltaSqlError
from deltasql.mirror.collisions import Commits, Fault, Kind, faults
from deltasql.protocol.actions import Add
from deltasql.protocol.table_changes import TableContents
from deltasql.storage import Directory
from deltasql.store.action_rows import loads, vector_of
from deltasql.store.outbox import Progress

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
class Stored:
    """What the database is asked about the log of a table."""

    progress: Callable[[], Progress]
    kept: Callable[[], int]
    """The first version that was not cleaned up."""
    commits: Commits


def differences(directory: Directory, contents: TableContents | None, stored: Stored) -> list[str]:
    """What is not the same in the log as in the database, whose contents are those of the version published last, if
    there is one. How far commits have come is asked after each look at the log, which they may have reached
    meanwhile."""
    while True:
        kept = stored.kept()
        found = _differences(directory, contents, stored, kept)
        # A clean-up that went on meanwhile looks like a gap, or a log without a beginning.
        if not found or stored.kept() == kept:
            return found


def _differences(directory: Directory, contents: TableContents | None, stored: Stored, kept: int) -> list[str]:
    published = contents.version if contents is not None else -1
    log = Log.of(directory)
    head = stored.progress().head
    wrong = _wrong_commits(directory, log, stored, kept, published=published, head=head)
    found = [*_ahead(log, head), *_strays(directory, log, stored.progress), *_told(wrong)]
    if log.is_headless(kept) and kept <= published:
        found.append(f"{checkpoint_path(kept)} is gone, and the versions before it were cleaned up")
    if contents is None:
        return found
    try:
        replayed = replay(directory, log, published)
    except DeltaSqlError as error:
        is_told = any(commit_path(fault.version) in str(error) for fault in wrong)
        return found if is_told else [*found, str(error)]
    return [*found, *_compare(replayed, contents)]


def _wrong_commits(
    directory: Directory, log: Log, stored: Stored, kept: int, *, published: int, head: int
) -> list[Fault]:
    """Commit files that are gone, cut short or another writer's. Those after the version published last may be on
    their way, and still be ours as far as they go."""
    found = [Fault(version, Kind.GONE) for version in log.missing(kept, published)]
    there = {version: size for version, size in log.commits.items() if version <= head}
    for fault in faults(directory, there, stored.commits):
        is_bad = {
            Kind.FOREIGN: True,
            Kind.CUT_SHORT: fault.version <= published,
            Kind.GONE: kept <= fault.version <= published,
        }
        if is_bad[fault.kind]:
            found.append(fault)
    return sorted(found, key=lambda fault: fault.version)


def _told(wrong: Sequence[Fault]) -> Iterator[str]:
    """A line for each fault, and one for all commit files in a row that are gone."""
    row: list[Fault] = []
    for fault, following in zip_longest(wrong, wrong[1:]):
        if fault.kind is not Kind.GONE:
            yield str(fault)
            continue
        row.append(fault)
        if following is None or following.kind is not Kind.GONE or following.version > fault.version + 1:
            more = f", and so are the commit files up to version {fault.version}" if len(row) > 1 else ""
            yield f"{row[0]}{more}"
            row = []


def _ahead(log: Log, head: int) -> Iterator[str]:
    for version in sorted(log.commits):
        if version > head:
            yield f"_delta_log holds version {version}, which the database does not have"
    for version in sorted(log.checkpoints):
        if version > head:
            yield f"_delta_log holds a checkpoint of version {version}, which the database does not have"


def _strays(directory: Directory, log: Log, progress: Callable[[], Progress]) -> Iterator[str]:
    """What leads readers astray beside the commits and their checkpoints."""
    for path in log.strays:
        yield f"{path} is another writer's, and readers may trust it more than the log"
    hint = directory.get(LAST_CHECKPOINT)
    hinted = decode_hint(hint)
    if hinted is None:
        if hint is not None:
            yield f"{LAST_CHECKPOINT} is another writer's, or broken"
    elif hinted > progress().published:
        yield f"{LAST_CHECKPOINT} names version {hinted}, which is not published"
    elif directory.size(checkpoint_path(hinted)) is None:
        yield f"{LAST_CHECKPOINT} names version {hinted}, whose checkpoint is not there"


def _compare(published: Replayed, contents: TableContents) -> Iterator[str]:
    yield from _differing("protocol", published.protocol, contents.protocol)
    yield from _differing("metaData", published.metadata, contents.metadata)
    txns = {t.app_id: t for t in contents.txns}
    yield from _keyed("application transaction", published.txns, txns)
    yield from _keyed("domain", published.domains, {d.domain: d for d in contents.domains})
    files = {_name(key): add for key, add in _files(contents)}
    told = {_name(key): add for key, add in published.files.items()}
    if not contents.metadata.table_properties.stats_as_json:
        told = {name: _with_stats(add, files.get(name)) for name, add in told.items()}
    yield from _keyed("file", told, files)


def _with_stats(published: Add, stored: Add | None) -> Add:
    """A file whose statistics a checkpoint has as a struct only, as the table wants it, with their text."""
    if published.stats is None and stored is not None:
        return msgspec.structs.replace(published, stats=stored.stats)
    return published


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
            theirs, ours = getattr(published, name), getattr(stored, name)
            if theirs != ours:
                yield f"{what}: {name} is {theirs!r} in _delta_log, {ours!r} in the database"
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
