"""Replay `_delta_log` as a reader does: the latest checkpoint, then the commits after it, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from deltasql.delta_log.checkpoint_reader import checkpoint_actions
from deltasql.delta_log.commit_reader import commit_actions
from deltasql.delta_log.log_files import LogFiles
from deltasql.errors import DeltaSqlError
from deltasql.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn
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


def replay(directory: Directory, log: LogFiles, version: int) -> ReplayedTable:
    """Return the table at a version. A gap in the log is an error, as it is for every reader."""
    table = ReplayedTable()
    try:
        checkpoint, files = log.path_to(version)
    except DeltaSqlError as error:
        raise DeltaSqlError(f"{directory.location}: {error}") from error
    if checkpoint is not None:
        with _naming_file(directory, checkpoint.paths[0]):
            for action in checkpoint_actions(directory, checkpoint):
                table.apply(action)
    for path in files:
        data = directory.get(path)
        if data is None:
            raise DeltaSqlError(f"{directory.location}: {path} is missing from the log")
        with _naming_file(directory, path):
            for action in commit_actions(data, path):
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
