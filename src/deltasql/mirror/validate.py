"""Does the published log say what the database says? Every difference, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from deltasql.core.actions import Add
from deltasql.errors import DeltaSqlError
from deltasql.mirror.hint import decode_hint
from deltasql.mirror.layout import LAST_CHECKPOINT, checkpoint_path
from deltasql.mirror.replay import FileKey, Log, Replayed, file_key, replay
from deltasql.objects import Directory
from deltasql.store.contents import Contents
from deltasql.store.outbox import Progress
from deltasql.store.rows import loads, vector_of

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


def differences(directory: Directory, contents: Contents, progress: Callable[[], Progress]) -> list[str]:
    """What is not the same in the log as in the database at a version. `progress` is asked after each look at the log,
    which commits may have reached meanwhile."""
    log = Log.of(directory)
    head = progress().head
    found = [*_ahead(log, head), *_strays(directory, log, progress)]
    try:
        published = replay(directory, log, contents.version)
    except DeltaSqlError as error:
        return [*found, str(error)]
    return [*found, *_compare(published, contents)]


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


def _compare(published: Replayed, contents: Contents) -> Iterator[str]:
    yield from _differing("protocol", published.protocol, contents.protocol)
    yield from _differing("metaData", published.metadata, contents.metadata)
    txns = {t.app_id: t for t in contents.txns}
    yield from _keyed("application transaction", published.txns, txns)
    yield from _keyed("domain", published.domains, {d.domain: d for d in contents.domains})
    files = {_name(key): add for key, add in _files(contents)}
    yield from _keyed("file", {_name(key): add for key, add in published.files.items()}, files)


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


def _files(contents: Contents) -> Iterator[tuple[FileKey, Add]]:
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
