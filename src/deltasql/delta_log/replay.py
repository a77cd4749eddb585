"""What a reader makes of `_delta_log`: the newest checkpoint, and the commits after it, in order."""

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
"""A path, and which deletion vector it has."""


@dataclass(slots=True)
class Replayed:
    """A table as the published log has it."""

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    files: dict[FileKey, Add] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Take one action in."""
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
    """What tells one file from another."""
    return action.path, action.deletion_vector.unique_id if action.deletion_vector else None


@dataclass(frozen=True, slots=True)
class Log:
    """The files of `_delta_log` that hold versions."""

    commits: Mapping[int, int]
    """The sizes of the commit files, by version."""
    checkpoints: frozenset[int]
    strays: tuple[str, ...]
    """Files of a kind that readers trust and the mirror never writes: checksums, compactions, other checkpoints."""

    @classmethod
    def of(cls, directory: Directory) -> Log:
        """List the log."""
        entries = list(directory.list(LOG))
        paths = [entry.path for entry in entries]
        return cls(
            {v: entry.size for entry in entries if (v := commit_version(entry.path)) is not None},
            frozenset(v for path in paths if (v := checkpoint_version(path)) is not None),
            tuple(
                p for p in paths if any_version(p) is not None and commit_version(p) is checkpoint_version(p) is None
            ),
        )

    def missing(self, kept: int, published: int) -> list[int]:
        """The published versions whose commit files are not there, from the first one on that was not cleaned up."""
        return [version for version in range(kept, published + 1) if version not in self.commits]

    def is_headless(self, kept: int) -> bool:
        """Is the checkpoint gone that stands for everything that was cleaned up?"""
        return kept > 0 and kept not in self.checkpoints


def replay(directory: Directory, log: Log, version: int) -> Replayed:
    """The table at a version. A gap in the log is an error, as it is to every reader."""
    start = max((v for v in log.checkpoints if v <= version), default=-1)
    table = Replayed()
    if start >= 0:
        with _naming(directory, checkpoint_path(start)):
            for action in _checkpoint_actions(directory, start):
                table.apply(action)
    for number in range(start + 1, version + 1):
        data = directory.get(commit_path(number)) if number in log.commits else None
        if data is None:
            raise DeltaSqlError(f"{directory.location}: {commit_path(number)} is missing from the log")
        with _naming(directory, commit_path(number)):
            for action in commit_actions(data):
                table.apply(action)
    table.version = version
    return table


@contextmanager
def _naming(directory: Directory, path: str) -> Iterator[None]:
    """What cannot be read is an error that names the file, whatever is wrong with it."""
    try:
        yield
    except DeltaSqlError:
        raise
    except Exception as error:
        problem = f"{directory.location}: {path} cannot be read: {type(error).__name__}: {error}"
        raise DeltaSqlError(problem) from error


def commit_actions(data: bytes) -> Iterator[Action]:
    """The actions of a commit file; those of a kind that this release does not know are left out."""
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
    """A row of a checkpoint as the JSON of a commit would have it."""
    return {key: value for key, value in body.items() if value is not None and not key.endswith("_parsed")}
