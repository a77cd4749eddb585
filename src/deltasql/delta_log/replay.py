"""Replay `_delta_log` as a reader does: the latest checkpoint, then the commits after it, in order."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow.parquet as pq

from deltasql.delta_log.layout import LOG, any_version, checkpoint_path, checkpoint_version, commit_path, commit_version
from deltasql.errors import DeltaSqlError
from deltasql.protocol.actions import ACTIONS, Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn, from_dict
from deltasql.storage import Directory

FileKey = tuple[str, str | None]
"""A path and the id of its deletion vector."""


@dataclass(slots=True)
class ReplayedTable:
    """The state of a table that results from the published log."""

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    files: dict[FileKey, Add] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Apply one action to the state."""
        match action:
            case Protocol():
                self.protocol = action
            case Metadata():
                self.metadata = action
            case Txn():
                self.txns[action.app_id] = action
            case DomainMetadata(removed=True):
                self.domains.pop(action.domain, None)
            case DomainMetadata():
                self.domains[action.domain] = action
            case Add():
                self.files[file_key(action)] = action
            case Remove():
                self.files.pop(file_key(action), None)


def file_key(action: Add | Remove) -> FileKey:
    """Return the key that identifies a file."""
    return action.path, action.deletion_vector.unique_id if action.deletion_vector else None


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of `_delta_log` that hold versions.

    Attributes:
        commits: The sizes of the commit files, by version.
        checkpoints: The versions that have a classic checkpoint.
        strays: Files that readers use and the mirror never writes: checksums, compactions, other checkpoints.
    """

    commits: Mapping[int, int]
    checkpoints: frozenset[int]
    strays: tuple[str, ...]

    @classmethod
    def of(cls, directory: Directory) -> LogFiles:
        """List the log of a table directory."""
        entries = list(directory.list(LOG))
        paths = [entry.path for entry in entries]
        return cls(
            {v: entry.size for entry in entries if (v := commit_version(entry.path)) is not None},
            frozenset(v for path in paths if (v := checkpoint_version(path)) is not None),
            tuple(
                p for p in paths if any_version(p) is not None and commit_version(p) is checkpoint_version(p) is None
            ),
        )

    def missing(self, first: int, published: int) -> list[int]:
        """Return the versions from `first` to `published` without a commit file."""
        return [version for version in range(first, published + 1) if version not in self.commits]

    def lacks_first_checkpoint(self, first: int) -> bool:
        """Return whether log retention has deleted the versions before `first`, but the checkpoint of `first` is
        missing."""
        return first > 0 and first not in self.checkpoints


def replay(directory: Directory, log: LogFiles, version: int) -> ReplayedTable:
    """Return the table at a version. A gap in the log is an error, as it is for every reader."""
    start = max((v for v in log.checkpoints if v <= version), default=-1)
    table = ReplayedTable()
    if start >= 0:
        with _naming_file(directory, checkpoint_path(start)):
            for action in _checkpoint_actions(directory, start):
                table.apply(action)
    for number in range(start + 1, version + 1):
        data = directory.get(commit_path(number)) if number in log.commits else None
        if data is None:
            raise DeltaSqlError(f"{directory.location}: {commit_path(number)} is missing from the log")
        with _naming_file(directory, commit_path(number)):
            for action in commit_actions(data):
                table.apply(action)
    table.version = version
    return table


@contextmanager
def _naming_file(directory: Directory, path: str) -> Iterator[None]:
    """Turn any error in the block into one that names the file."""
    try:
        yield
    except DeltaSqlError:
        raise
    except Exception as error:
        problem = f"{directory.location}: {path} cannot be read: {type(error).__name__}: {error}"
        raise DeltaSqlError(problem) from error


def commit_actions(data: bytes) -> Iterator[Action]:
    """Yield the actions of a commit file, except those of a kind that this release does not know."""
    for line in data.splitlines():
        if line.strip():
            for kind, body in msgspec.json.decode(line).items():
                if kind in ACTIONS:
                    yield from_dict(ACTIONS[kind], body)


def _checkpoint_actions(directory: Directory, version: int) -> Iterator[Action]:
    data = directory.get(checkpoint_path(version))
    if data is None:
        raise DeltaSqlError(f"{directory.location}: {checkpoint_path(version)} is missing from the log")
    file = pq.ParquetFile(io.BytesIO(data))
    for batch in file.iter_batches(batch_size=8192):
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            for kind, body in row.items():
                if body is not None and kind in ACTIONS:
                    yield from_dict(ACTIONS[kind], _plain(body))


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint row as the JSON of a commit file has it."""
    return {key: value for key, value in body.items() if value is not None and not key.endswith("_parsed")}
