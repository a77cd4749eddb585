"""Encode commit files. A version always has the same bytes, so that publishing it again is recognised.

Delta defines no canonical form. This one is: commitInfo, then protocol, metaData, txn, domainMetadata, add, remove and
cdc, one action per line; keys in alphabetical order; unset optional fields left out; null partition values and empty
maps kept, because readers reject a log without them; times as whole numbers; a newline after every action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from deltasql.protocol.actions import Action, Add, Remove
from deltasql.protocol.table_changes import LoggedCommit, epoch_millis

_sorted = msgspec.json.Encoder(order="sorted")
_plain = msgspec.json.Encoder()

Json = dict[str, Any]


def commit_bytes(commit: LoggedCommit) -> bytes:
    """Return the content of the commit file of a version."""
    table_actions: list[Action | None] = [
        commit.protocol,
        commit.metadata,
        *sorted(commit.txns, key=lambda t: t.app_id),
        *sorted(commit.domains, key=lambda d: d.domain),
    ]
    lines = [_sorted.encode({"commitInfo": _info(commit)})]
    lines += [_line(action) for action in table_actions if action is not None]
    head = b"\n".join(lines) + b"\n"
    return b"".join((head, _adds(commit.adds), _removes(commit.removes), *_each(commit.cdc)))


def _info(commit: LoggedCommit) -> Json:
    at = epoch_millis(commit.committed_at)
    info = {"timestamp": at, **commit.info}
    if commit.in_commit_timestamp:
        info |= {"timestamp": at, "inCommitTimestamp": at}
    return info


def _line(action: Action) -> bytes:
    return _sorted.encode({action.kind: action.to_dict()})


def _each(actions: Iterable[Action]) -> Iterable[bytes]:
    return (_line(action) + b"\n" for action in actions)


# A commit may hold 100,000 files, so files are encoded column by column.


class _AddBody(msgspec.Struct, omit_defaults=True, gc=False):
    baseRowId: int | None = None
    clusteringProvider: str | None = None
    dataChange: bool | None = None
    defaultRowCommitVersion: int | None = None
    deletionVector: msgspec.Raw | None = None
    modificationTime: int | None = None
    partitionValues: msgspec.Raw | None = None
    path: str | None = None
    size: int | None = None
    stats: str | None = None
    tags: msgspec.Raw | None = None


class _AddLine(msgspec.Struct, gc=False):
    add: _AddBody


class _RemoveBody(msgspec.Struct, omit_defaults=True, gc=False):
    baseRowId: int | None = None
    dataChange: bool | None = None
    defaultRowCommitVersion: int | None = None
    deletionTimestamp: int | None = None
    deletionVector: msgspec.Raw | None = None
    extendedFileMetadata: bool | None = None
    partitionValues: msgspec.Raw | None = None
    path: str | None = None
    size: int | None = None
    stats: str | None = None
    tags: msgspec.Raw | None = None


class _RemoveLine(msgspec.Struct, gc=False):
    remove: _RemoveBody


def _adds(adds: Sequence[Add]) -> bytes:
    if any(add.extra for add in adds):
        return b"".join(_each(adds))
    bodies = map(
        _AddBody,
        [a.base_row_id for a in adds],
        [a.clustering_provider for a in adds],
        [a.data_change for a in adds],
        [a.default_row_commit_version for a in adds],
        [_raw(a.deletion_vector, _fields) for a in adds],
        [a.modification_time for a in adds],
        _maps([a.partition_values for a in adds]),
        [a.path for a in adds],
        [a.size for a in adds],
        [a.stats for a in adds],
        [_raw(a.tags) for a in adds],
    )
    return _plain.encode_lines(list(map(_AddLine, bodies)))


def _removes(removes: Sequence[Remove]) -> bytes:
    if any(remove.extra for remove in removes):
        return b"".join(_each(removes))
    bodies = map(
        _RemoveBody,
        [r.base_row_id for r in removes],
        [r.data_change for r in removes],
        [r.default_row_commit_version for r in removes],
        [r.deletion_timestamp for r in removes],
        [_raw(r.deletion_vector, _fields) for r in removes],
        [r.extended_file_metadata for r in removes],
        _maps([r.partition_values for r in removes]),
        [r.path for r in removes],
        [r.size for r in removes],
        [r.stats for r in removes],
        [_raw(r.tags) for r in removes],
    )
    return _plain.encode_lines(list(map(_RemoveLine, bodies)))


def _raw(value: Any, plain: Callable[[Any], Any] = lambda value: value) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(_sorted.encode(plain(value)))


def _fields(value: Any) -> Json:
    body: Json = value.to_dict()
    return body


def _maps(values: Sequence[Mapping[str, str | None] | None]) -> list[msgspec.Raw | None]:
    """Return partition values as JSON, each distinct map encoded once: there are many files but few partitions."""
    known: dict[Any, msgspec.Raw | None] = {}
    result: list[msgspec.Raw | None] = []
    for value in values:
        key = None if value is None else tuple(value.items())
        if key not in known:
            known[key] = _raw(value)
        result.append(known[key])
    return result
