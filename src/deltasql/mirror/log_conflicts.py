"""Compare the commit files of a log with the expected bytes, and build the errors for files of other writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial

import msgspec

from deltasql.delta_log.commit_file import commit_bytes
from deltasql.delta_log.layout import LOG, any_version, commit_path, commit_version
from deltasql.errors import MirrorConflict, shown
from deltasql.protocol.table_changes import LoggedCommit
from deltasql.storage import Directory
from deltasql.store.mirror_records import MirroredTable
from deltasql.store.publish_session import PUBLISH_BATCH

# The memory for commits that are compared at once, and the number of files that are read in parallel.
_BATCH_BYTES = 16 << 20
_PARALLEL_READS = 8
_LONGEST_NAME = 200

Commits = Callable[[Sequence[int]], Mapping[int, LoggedCommit]]
"""Returns versions as the database has them."""


class FaultKind(Enum):
    """The possible faults of a commit file."""

    MISSING = "is missing"
    TRUNCATED = "is truncated"
    FOREIGN = "holds another commit"


@dataclass(frozen=True, slots=True)
class CommitFileFault:
    """A commit file that does not have the expected bytes. `writer` describes the commit of another writer."""

    version: int
    kind: FaultKind
    writer: str = ""

    def __str__(self) -> str:
        return f"{commit_path(self.version)} {self.kind.value}{self.writer}"


def faults(directory: Directory, sizes: Mapping[int, int], commits: Commits) -> Iterator[CommitFileFault]:
    """Yield the commit files that do not have exactly the expected bytes. `sizes` has the size of each file by version;
    an empty file is not read."""
    compare = partial(_fault, directory, sizes)
    with ThreadPoolExecutor(_PARALLEL_READS, "deltasql-compare") as pool:
        for batch in _batches(sizes):
            yield from (fault for fault in pool.map(compare, commits(batch).values()) if fault is not None)


def _batches(sizes: Mapping[int, int]) -> Iterator[list[int]]:
    batch: list[int] = []
    num_bytes = 0
    for version in sorted(sizes):
        if batch and (len(batch) == PUBLISH_BATCH or num_bytes + sizes[version] > _BATCH_BYTES):
            yield batch
            batch, num_bytes = [], 0
        batch.append(version)
        num_bytes += sizes[version]
    if batch:
        yield batch


def _fault(directory: Directory, sizes: Mapping[int, int], commit: LoggedCommit) -> CommitFileFault | None:
    version, size = commit.version, sizes[commit.version]
    data = directory.get(commit_path(version), size) if size else b""
    if data is None:
        return CommitFileFault(version, FaultKind.MISSING)
    expected = commit_bytes(commit)
    if data == expected:
        return None
    if is_truncated(data, expected):
        return CommitFileFault(version, FaultKind.TRUNCATED)
    return CommitFileFault(version, FaultKind.FOREIGN, writer_of(data))


def is_truncated(data: bytes, expected: bytes) -> bool:
    """Return whether a file is the beginning of the expected bytes and ends in the middle of a line: an interrupted
    write of deltasql. A file that ends with a whole line may be a commit that readers have seen."""
    return expected.startswith(data) and not data.endswith(b"\n")


def writer_of(data: bytes) -> str:
    """Return the operation and the engine of a commit file, in parentheses, or an empty text if it names none."""
    try:
        first = msgspec.json.decode(data.partition(b"\n")[0])
        info = first["commitInfo"]
        operation = _name(info.get("operation", "unknown operation"))
        return f" ({operation} by {_name(info.get('engineInfo', 'an unknown engine'))})"
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        return ""


def _name(value: object) -> str:
    return value if isinstance(value, str) and len(value) < _LONGEST_NAME else shown(value)


def newer_in_log(
    directory: Directory, table: MirroredTable, head: Callable[[], int], version: int | None = None
) -> MirrorConflict | None:
    """Return the conflict if the log has versions that the database does not have. `version` is a version that is about
    to be published: if its file exists already, whoever wrote it, this returns None and its bytes decide."""
    before = head() if version is None else version - 1
    paths = [entry.path for entry in directory.list(LOG, after=commit_path(before))]
    if version is not None and commit_path(version) in paths:
        return None
    versions = {number for path in paths if (number := any_version(path)) is not None}
    last = head() if versions else 0  # read after the listing, because commits may be published in the meantime
    first = min((number for number in versions if number > last), default=None)
    if first is None:
        return None
    problem = (
        f"{directory.location}/{LOG} holds version {first}, which the database does not have: another writer bypassed "
        f"the database, or the database was restored from an older backup. Nothing was overwritten. {_way_out(table)}"
    )
    return MirrorConflict(table.id, first if version is None else version, problem, table.name)


def _way_out(table: MirroredTable) -> str:
    return (
        f"If the commits that only the log of {table.name} has are not needed, `deltasql mirror recover` moves their "
        f"files aside. If they are needed, write their rows again through deltasql"
    )


def conflict(directory: Directory, table: MirroredTable, version: int, writer: str) -> MirrorConflict:
    """Return the conflict for a commit file that another writer wrote."""
    last = max(
        (v for e in directory.list(LOG, after=commit_path(version)) if (v := commit_version(e.path)) is not None),
        default=version,
    )
    more = f", and the log continues to version {last}" if last > version else ""
    problem = (
        f"{directory.location}/{commit_path(version)} holds another commit{writer}{more}. Another writer bypassed "
        f"the database, or the database was restored from an older backup. Nothing was overwritten. "
        f"{_way_out(table)}"
    )
    return MirrorConflict(table.id, version, problem, table.name)
