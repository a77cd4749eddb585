"""The commit of one table: prepared for `dl_commit`, and as it landed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from typing import Any

import msgspec

from deltasql.errors import MirrorFailure, ValidationError
from deltasql.protocol.actions import CommitInfo
from deltasql.protocol.conflicts import isolation_of
from deltasql.protocol.table_changes import LoggedCommit, TableCommit, with_tables
from deltasql.store import action_rows
from deltasql.store.action_rows import AddRowKey, CommitPartitions


@dataclass(frozen=True, slots=True)
class TransactionHeader:
    """The values that all tables of a transaction share."""

    txn_id: str
    author: str | None = None
    message: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a transaction for one table.

    Attributes:
        table_id: The table.
        version: The version that the transaction became.
        committed_at: The time of the commit, None if an earlier transaction committed it.
        before: Whether an earlier transaction had already applied the same application transaction.
        mirror: The error if the version could not be published.
    """

    table_id: str
    version: int
    committed_at: datetime | None
    before: bool = False
    mirror: MirrorFailure | None = None


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit of one table that has just landed. `tables` has the versions of all tables of a multi-table commit."""

    table_key: int
    commit_id: int
    commit: TableCommit
    version: int
    committed_at: datetime
    tables: Mapping[str, int] | None = None

    def logged(self) -> LoggedCommit:
        """Return the commit as the log has it, without a query."""
        changes = self.commit.changes
        return LoggedCommit(
            version=self.version,
            committed_at=self.committed_at,
            info=with_tables(commit_info(self.commit).to_dict(), self.tables),
            in_commit_timestamp=self.commit.in_commit_timestamp,
            protocol=changes.protocols[0] if changes.protocols else None,
            metadata=changes.metadata[0] if changes.metadata else None,
            txns=changes.txns,
            domains=changes.domains,
            adds=changes.adds,
            removes=changes.removes,
            cdc=changes.cdc,
        )


@dataclass(slots=True)
class PreparedCommit:
    """The commit of one table with its ids, and with the rows of the log that its files refer to."""

    commit: TableCommit
    commit_id: int
    key: int
    token: str
    description: dict[str, Any]
    removed_adds: dict[str, AddRowKey] = field(default_factory=dict)
    """The add row of each removed path."""
    path_gens: dict[str, int] = field(default_factory=dict)
    superseded: dict[str, AddRowKey] = field(default_factory=dict)
    """The add row of each live path that this commit adds again."""
    paths_without_token: list[str] = field(default_factory=list)
    """The added paths that do not contain the token of this transaction."""
    borrowed_from: list[str] = field(default_factory=list)
    """The uncommitted transactions whose files this commit adds."""
    partitions: CommitPartitions = field(default_factory=CommitPartitions)


def prepare(commit: TableCommit, commit_id: int, token: str, description: dict[str, Any]) -> PreparedCommit:
    """Return a commit whose files are not looked up yet."""
    paths = [path for path in commit.changes.of_adds("path") if token not in path]
    key = commit.state.table_key
    return PreparedCommit(commit, commit_id, key, token, description, paths_without_token=paths)


def describe(commit: TableCommit, txn: TransactionHeader) -> dict[str, Any]:
    """Return the request to `dl_commit` for one table, without the files.

    Raises:
        ValidationError: A text cannot be stored in PostgreSQL: it holds a NUL character or half a surrogate pair.
    """
    problem = "a text holds a NUL character"
    try:
        description = _description(commit)
        if b"\\u0000" not in action_rows.encode([description, txn.author, txn.message]):
            return description
    except UnicodeEncodeError as error:
        problem = f"a text is not valid Unicode: {error}"
    raise ValidationError(f"table {commit.state.name}: {problem}", table=commit.state.name)


def _description(commit: TableCommit) -> dict[str, Any]:
    changes = commit.changes
    if commit.is_check:
        return {"check": True}
    info = commit_info(commit)
    required = {
        "read_version": commit.state.version,
        "is_blind_append": commit.is_blind_append,
        "data_change": changes.data_change,
        "isolation_level": isolation_of(commit),
        "operation": info.operation,
        "commit_info": action_rows.dumps(info.to_dict()),
    }
    optional = {
        "expected": commit.expected_version,
        "author": info.user_name,
        "operation_parameters": action_rows.map_text(info.operation_parameters),
        "metadata": action_rows.metadata_json(changes.metadata[0]) if changes.metadata else None,
        "protocol": action_rows.protocol_json(changes.protocols[0]) if changes.protocols else None,
        "txns": action_rows.txn_json(changes.txns) or None,
        "domains": action_rows.domain_json(changes.domains) or None,
        "in_commit_timestamp": True if commit.in_commit_timestamp else None,
    }
    return required | {key: value for key, value in optional.items() if value is not None}


def commit_request(prepared: PreparedCommit, *, inline: bool, head: int | None = None) -> dict[str, Any]:
    """Return the request to `dl_commit` for one table. `head` is the version up to which winners were checked under
    the lock; `inline` puts the file rows into the request."""
    changes = prepared.commit.changes
    request = prepared.description | {
        "key": prepared.key,
        "commit": prepared.commit_id,
        "checked_version": prepared.commit.state.version if head is None else head,
    }
    optional: dict[str, Any] = {"borrowed": prepared.borrowed_from}
    if prepared.commit.state.head_id >= 0:
        optional["read_commit"] = prepared.commit.state.head_id
    if not inline:
        request["staged"] = True
    else:
        prepared.partitions = CommitPartitions()
        optional["adds"] = list(action_rows.add_rows(changes, path_gens_of(prepared), prepared.partitions))
        optional["removes"] = action_rows.remove_rows(changes.removes, prepared.removed_adds, prepared.superseded)
        optional["cdc"] = action_rows.cdc_rows(changes.cdc)
    optional["partitions"] = prepared.partitions.rows()
    return request | {key: value for key, value in optional.items() if value}


def commit_info(commit: TableCommit) -> CommitInfo:
    """Return the commitInfo action as stored: the caller's values, completed with those of the commit."""
    given = commit.changes.infos[0]
    read = commit.state.version if commit.state.version >= 0 else None
    return msgspec.structs.replace(
        given,
        is_blind_append=commit.is_blind_append,
        isolation_level=isolation_of(commit),
        read_version=given.read_version if given.read_version is not None else read,
    )


def path_gens_of(prepared: PreparedCommit) -> Iterable[int | None]:
    """Return the path_gen of each added path, None for a path with the token of this transaction."""
    token, path_gens, paths = prepared.token, prepared.path_gens, prepared.commit.changes.of_adds("path")
    if not prepared.paths_without_token and not path_gens:
        return repeat(None)
    return [None if token in path else path_gens.get(path, 0) for path in paths]
