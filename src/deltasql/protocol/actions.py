"""Delta's actions as frozen values, with every field of the protocol and whatever fields came besides.

Field names are Delta's in snake_case. `extra` keeps fields this release does not know, under their own names, so
that an action read from a log is written back whole. Nothing here validates: that is `core.validate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from deltasql.protocol.properties import TableProperties

Json = dict[str, Any]


class _Fields(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A value with Delta's field names; absent means None, and None is not written."""

    def to_dict(self) -> Json:
        """The JSON object of this value: Delta's names, no optional field that is unset."""
        body: Json = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if name == "extra":
                body.update(value)
            elif value is not None:
                body[key] = _plain(value)
        return body


def _plain(value: Any) -> Any:
    if isinstance(value, _Fields):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


class DeletionVector(_Fields, frozen=True, gc=False):
    """Where the deleted row numbers of a file are kept."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None
    extra: Json = {}

    @property
    def unique_id(self) -> str:
        """What makes two versions of one file different files."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


class Format(_Fields, frozen=True, gc=False):
    """The file format of a table: always Parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}
    extra: Json = {}


class Action(_Fields, frozen=True, gc=False):
    """One entry of a commit."""

    kind: ClassVar[str]


class Add(Action, frozen=True, gc=False):
    """A data file becomes part of the table."""

    kind: ClassVar[str] = "add"
    path: str
    size: int
    modification_time: int
    partition_values: dict[str, str | None] = {}
    data_change: bool = True
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: Json = {}


class Remove(Action, frozen=True, gc=False):
    """A data file is no longer part of the table."""

    kind: ClassVar[str] = "remove"
    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    extra: Json = {}


class Cdc(Action, frozen=True, gc=False):
    """A file of row-level changes, for readers of the change data feed."""

    kind: ClassVar[str] = "cdc"
    path: str
    size: int
    partition_values: dict[str, str | None] = {}
    data_change: bool = False
    tags: dict[str, str | None] | None = None
    extra: Json = {}


# --- Files of changed rows: the columns they have besides the table's, and the types of change

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
CHANGE_DATA_FOLDER = "_change_data/"
INSERTED, DELETED, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"


class Metadata(Action, frozen=True, gc=False):
    """Schema, partitioning and properties of the table; replaces the one before."""

    kind: ClassVar[str] = "metaData"
    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = {}
    name: str | None = None
    description: str | None = None
    format: Format = Format()
    created_time: int | None = None
    extra: Json = {}

    @property
    def table_properties(self) -> TableProperties:
        """Return the typed `delta.*` properties of `configuration`."""
        return TableProperties.of(self.configuration)


class Protocol(Action, frozen=True, gc=False):
    """What a reader and a writer of the table must understand."""

    kind: ClassVar[str] = "protocol"
    min_reader_version: int = 1
    min_writer_version: int = 2
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Json = {}


class Txn(Action, frozen=True, gc=False):
    """How far an application has come: its id and its own version."""

    kind: ClassVar[str] = "txn"
    app_id: str
    version: int
    last_updated: int | None = None
    extra: Json = {}


class DomainMetadata(Action, frozen=True, gc=False):
    """A named piece of configuration that travels with the table."""

    kind: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool = False
    extra: Json = {}


class CommitInfo(Action, frozen=True, gc=False):
    """Where a commit came from. Free-form by the protocol: unknown fields live in `extra`."""

    kind: ClassVar[str] = "commitInfo"
    operation: str = "WRITE"
    operation_parameters: dict[str, Any] | None = None
    operation_metrics: dict[str, str] | None = None
    timestamp: int | None = None
    in_commit_timestamp: int | None = None
    user_id: str | None = None
    user_name: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    tags: dict[str, str] | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    extra: Json = {}


ACTIONS: Mapping[str, type[Action]] = {
    cls.kind: cls for cls in (Add, Remove, Cdc, Metadata, Protocol, Txn, DomainMetadata, CommitInfo)
}

_NESTED: Mapping[str, type[_Fields]] = {"deletionVector": DeletionVector, "format": Format}

_F = TypeVar("_F", bound=_Fields)


def from_dict(cls: type[_F], body: Mapping[str, Any]) -> _F:
    """The value for a JSON object of the log, with unknown fields in `extra`."""
    names = dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))
    known: Json = {}
    extra: Json = {}
    for key, value in body.items():
        if key in names and key != "extra":
            if value is not None:
                known[names[key]] = _typed(key, value)
        else:
            extra[key] = value
    return cls(**known, extra=extra)


def _typed(key: str, value: Any) -> Any:
    if key in _NESTED and isinstance(value, dict):
        return from_dict(_NESTED[key], value)
    return tuple(value) if isinstance(value, list) else value
