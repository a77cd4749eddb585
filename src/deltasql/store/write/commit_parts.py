"""A commit, table by table: what is to be written, what `dl_commit` is told, and what has landed."""

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
from deltasql.store.action_rows import Partitions, Placed


@dataclass(frozen=True, slots=True)
class TransactionHeader:
    """What the tables of a commit share."""

    txn_id: str
    author: str | None = None
    message: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a table's part of a transaction landed; `before` if an earlier one had applied it already."""

    table_id: str
    version: int
    committed_at: datetime | None
    before: bool = False
    mirror: MirrorFailure | None = None
    """Why it is not published yet, if that was tried and failed."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A table's part of a transaction that has just committed."""

    table_key: int
    commit_id: int
    commit: TableCommit
    version: int
    committed_at: datetime
    tables: Mapping[str, int] | None = None
    """The versions of all tables that it committed together with, by name."""

    def logged(self) -> LoggedCommit:
        """What the log holds of it now, without asking."""
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
class Part:
    """A table's part of a transaction, with the places that its files take in the log."""

    commit: TableCommit
    commit_id: int
    key: int
    token: str
    description: dict[str, Any]
    places: dict[str, Placed] = field(default_factory=dict)
    gens: dict[str, int] = field(default_factory=dict)
    superseded: dict[str, Placed] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    """The paths that this transaction adds and did not name."""
    borrowed: list[str] = field(default_factory=list)
    partitions: Partitions = field(default_factory=Partitions)


def part_of(own: TableCommit, commit_id: int, token: str, description: dict[str, Any]) -> Part:
    """The part of one table, whose files have no places yet."""
    foreign = [path for path in own.changes.of_adds("path") if token not in path]
    return Part(own, commit_id, own.state.table_key, token, description, foreign=foreign)


def described(own: TableCommit, txn: TransactionHeader) -> dict[str, Any]:
    """What `dl_commit` reads for one table besides its files. Texts that cannot be stored are refused: NUL characters,
    halves of surrogate pairs."""
    problem = "a text holds a NUL character"
    try:
        description = _describe(own)
        if b"\\u0000" not in action_rows.encode([description, txn.author, txn.message]):
            return description
    except UnicodeEncodeError as error:
        problem = f"a text is not valid Unicode: {error}"
    raise ValidationError(f"table {own.state.name}: {problem}", table=own.state.name)


def _describe(own: TableCommit) -> dict[str, Any]:
    """All of it is known before the database is asked anything."""
    changes = own.changes
    if own.is_check:
        return {"check": True}
    info = commit_info(own)
    details = changes.metadata or changes.protocols or changes.txns or changes.domains
    required = {
        "read_version": own.state.version,
        "is_blind_append": own.is_blind_append,
        "data_change": changes.data_change,
        "isolation_level": isolation_of(own),
        "operation": info.operation,
        "commit_info": action_rows.dumps(info.to_dict()),
        "num_adds": len(changes.adds),
        "num_removes": len(changes.removes),
    }
    optional = {
        "expected": own.expected_version,
        "committer": info.user_name,
        "operation_parameters": action_rows.dumps(info.operation_parameters)
        if info.operation_parameters is not None
        else None,
        "metadata": action_rows.metadata_json(changes.metadata[0]) if changes.metadata else None,
        "protocol": action_rows.protocol_json(changes.protocols[0]) if changes.protocols else None,
        "txns": action_rows.txn_json(changes.txns) or None,
        "domains": action_rows.domain_json(changes.domains) or None,
        "new_shape": True if changes.metadata or changes.protocols else None,
        "details": True if details else None,
        "in_commit_timestamp": True if own.in_commit_timestamp else None,
    }
    return required | {key: value for key, value in optional.items() if value is not None}


def request_of(part: Part, *, inline: bool, head: int | None = None) -> dict[str, Any]:
    """What `dl_commit` reads for one table. Under the lock, examined winners count as read."""
    changes = part.commit.changes
    request = part.description | {
        "key": part.key,
        "commit": part.commit_id,
        "checked_version": part.commit.state.version if head is None else head,
        "num_files_delta": len(changes.adds) - len(changes.removes) - len(part.superseded),
    }
    optional: dict[str, Any] = {"borrowed": part.borrowed}
    if inline:
        request["inline"] = True
        part.partitions = Partitions()
        optional["adds"] = list(action_rows.add_rows(changes, gens_of(part), part.partitions))
        optional["partition_files"] = part.partitions.places()
        optional["removes"] = action_rows.remove_rows(changes.removes, part.places, part.superseded)
        optional["cdc"] = action_rows.cdc_rows(changes.cdc)
    optional["partitions"] = part.partitions.rows()
    return request | {key: value for key, value in optional.items() if value}


def commit_info(own: TableCommit) -> CommitInfo:
    """The commit information as stored: what the caller gave, completed by what the commit itself knows."""
    given = own.changes.infos[0]
    read = own.state.version if own.state.version >= 0 else None
    return msgspec.structs.replace(
        given,
        is_blind_append=own.is_blind_append,
        isolation_level=isolation_of(own),
        read_version=given.read_version if given.read_version is not None else read,
    )


def gens_of(part: Part) -> Iterable[int | None]:
    """The place of each path among those of its name; none for the files that this transaction named."""
    token, gens, paths = part.token, part.gens, part.commit.changes.of_adds("path")
    if not part.foreign and not gens:
        return repeat(None)
    return [None if token in path else gens.get(path, 0) for path in paths]
