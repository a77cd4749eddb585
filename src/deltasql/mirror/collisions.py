"""The commit files of a log, held against the bytes that belong there; and what to say of a file that is not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial

import msgspec

from deltasql.delta_log.commit_file import commit_bytes
from deltasql.delta_log.layout import LAST_CHECKPOINT, LOG, any_version, commit_path, commit_version
from deltasql.errors import MirrorConflict
from deltasql.protocol.table_changes import LoggedCommit
from deltasql.storage import Directory
from deltasql.store.outbox import OPEN_AT_ONCE, MirroredTable

# So much is read from the database and held in memory at once, and so many files are read side by side.
_BATCH_BYTES = 16 << 20
_SIDE_BY_SIDE = 8

Commits = Callable[[Sequence[int]], Mapping[int, LoggedCommit]]
"""What versions hold, as the database has them."""


class Kind(Enum):
    """What is wrong with a commit file."""

    GONE = "is gone"
    CUT_SHORT = "is cut short"
    FOREIGN = "holds another commit"


@dataclass(frozen=True, slots=True)
class Fault:
    """A commit file that is not what it should be."""

    version: int
    kind: Kind
    described: str = ""
    """What another writer says of its commit."""

    def __str__(self) -> str:
        return f"{commit_path(self.version)} {self.kind.value}{self.described}"


def faults(directory: Directory, sizes: Mapping[int, int], commits: Commits) -> Iterator[Fault]:
    """Those of some commit files, by version, that do not hold exactly our bytes. An empty file need not be read."""
    look = partial(_fault, directory, sizes)
    with ThreadPoolExecutor(_SIDE_BY_SIDE, "deltasql-compare") as pool:
        for batch in _batches(sizes):
            yield from (fault for fault in pool.map(look, commits(batch).values()) if fault is not None)


def _batches(sizes: Mapping[int, int]) -> Iterator[list[int]]:
    batch: list[int] = []
    held = 0
    for version in sorted(sizes):
        if batch and (len(batch) == OPEN_AT_ONCE or held + sizes[version] > _BATCH_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(version)
        held += sizes[version]
    if batch:
        yield batch


def _fault(directory: Directory, sizes: Mapping[int, int], commit: LoggedCommit) -> Fault | None:
    version, size = commit.version, sizes[commit.version]
    there = directory.get(commit_path(version), size) if size else b""
    if there is None:
        return Fault(version, Kind.GONE)
    data = commit_bytes(commit)
    if there == data:
        return None
    if is_cut_short(there, data):
        return Fault(version, Kind.CUT_SHORT)
    return Fault(version, Kind.FOREIGN, described(there))


def is_cut_short(there: bytes, data: bytes) -> bool:
    """Is a file the beginning of what was to be written? Whole lines of ours name our transaction, and what is less
    than a line, or nothing at all, as a power cut leaves it on a local disk, is nobody's commit."""
    return data.startswith(there)


def described(data: bytes) -> str:
    """What another writer says of its commit."""
    try:
        first = msgspec.json.decode(data.partition(b"\n")[0])
        info = first["commitInfo"]
        return f" ({info.get('operation', 'unknown operation')} by {info.get('engineInfo', 'an unknown engine')})"
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return ""


def ahead(
    directory: Directory, table: MirroredTable, head: Callable[[], int], version: int | None = None
) -> MirrorConflict | None:
    """What to say of versions in the log that the database does not have. One that is to be published may be there
    already, whosever it is: that is for its bytes to say."""
    before = head() if version is None else version - 1
    paths = [entry.path for entry in directory.list(LOG, after=commit_path(before))]
    if version is not None and commit_path(version) in paths:
        return None
    versions = {found for path in paths if (found := any_version(path)) is not None}
    last = head() if versions else 0  # commits may have reached the log before it was listed
    first = min((found for found in versions if found > last), default=None)
    if first is None:
        return None
    problem = (
        f"{directory.location}/{LOG} holds version {first}, which the database does not have: a writer went past the "
        f"database, or the database was restored from an older back-up. Nothing was overwritten. {_way_out(table)}"
    )
    return MirrorConflict(table.id, first if version is None else version, problem, table.name)


def _way_out(table: MirroredTable) -> str:
    return (
        f"If that commit is not wanted, move the file out of {LOG}, with the commit files after it, the "
        f"checkpoints and .crc files of these versions, and {LAST_CHECKPOINT}, and run "
        f"`deltasql mirror repair {table.name}`; if it is, the rows it brought have to be written again through "
        f"deltasql"
    )


def conflict(directory: Directory, table: MirroredTable, version: int, writer: str) -> MirrorConflict:
    """Who took our version, and how to go on."""
    last = max(
        (v for e in directory.list(LOG, after=commit_path(version)) if (v := commit_version(e.path)) is not None),
        default=version,
    )
    further = f", and the log goes on to version {last}" if last > version else ""
    problem = (
        f"{directory.location}/{commit_path(version)} holds another commit{writer}{further}. A writer "
        f"went past the database, or the database was restored from an older back-up. Nothing was overwritten. "
        f"{_way_out(table)}"
    )
    return MirrorConflict(table.id, version, problem, table.name)
