"""Delta's actions as frozen values.

Field names are Delta's in snake_case. `extra` keeps fields that this release does not know, under their names in the
log, so that an action read from a log is written back unchanged. `validation` checks actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from deltasql.protocol.properties import TableProperties

Json = dict[str, Any]


class _Fields(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A JSON object of the log. An optional field that is absent is None, and None is not written."""

    def to_dict(self) -> Json:
        """Return the JSON object of this value, with Delta's field names and without unset fields."""
        body: Json = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if name == "extra":
                body.update({k: v for k, v in value.items() if k not in self.__struct_encode_fields__})
            elif value is not None:
                body[key] = _plain(value)
        return body


def _plain(value: Any) -> Any:
    if isinstance(value, _Fields):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


class DeletionVector(_Fields, frozen=True, gc=False):
    """The reference to the deletion vector of a data file: the numbers of its deleted rows.

    Attributes:
        storage_type: `u` for a file below the table, `i` for an inline vector, `p` for an absolute path.
        path_or_inline_dv: The encoded file name, the encoded vector, or the absolute path.
        size_in_bytes: The size of the vector.
        cardinality: The number of deleted rows.
        offset: The position of the vector in its file; None for inline vectors.
        extra: Unknown fields.
    """

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None
    extra: Json = {}

    @property
    def unique_id(self) -> str:
        """Return the id that tells a file with this deletion vector from the same file with another one."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


class Format(_Fields, frozen=True, gc=False):
    """The file format of a table.

    Attributes:
        provider: The name of the format, always `parquet`.
        options: Options of the format.
        extra: Unknown fields.
    """

    provider: str = "parquet"
    options: dict[str, str] = {}
    extra: Json = {}


class Action(_Fields, frozen=True, gc=False):
    """An entry of a commit.

    Attributes:
        kind: The key of the action in the log, such as `add`.
    """

    kind: ClassVar[str]


class Add(Action, frozen=True, gc=False):
    """Add a data file to the table.

    Attributes:
        path: The path below the table's location, URI-encoded.
        size: The size in bytes.
        modification_time: When the file was written, in milliseconds since 1970.
        partition_values: The text of each partition value by column name; None is null.
        data_change: Whether the file changes the rows of the table. False for files that only rearrange rows.
        stats: Statistics as a JSON text, such as `{"numRecords":3}`.
        tags: Labels of the writer.
        deletion_vector: The rows of the file that are deleted.
        base_row_id: The first row id, in tables with row tracking.
        default_row_commit_version: The commit version of rows, in tables with row tracking.
        clustering_provider: The implementation that clustered the file.
        extra: Unknown fields.
    """

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
    """Remove a data file from the table. The file itself stays in the storage until it expires.

    Attributes:
        path: The path of the file, as in its `Add`.
        deletion_timestamp: When the file was removed, in milliseconds since 1970.
        data_change: Whether the removal changes the rows of the table.
        extended_file_metadata: Whether `partition_values`, `size` and `tags` are set.
        partition_values: The text of each partition value by column name; None is null.
        size: The size in bytes.
        stats: Statistics as a JSON text.
        tags: Labels of the writer.
        deletion_vector: The deletion vector of the removed file, which is part of its identity.
        base_row_id: The first row id, in tables with row tracking.
        default_row_commit_version: The commit version of rows, in tables with row tracking.
        extra: Unknown fields.
    """

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
    """A file with changed rows, for readers of the change data feed.

    Attributes:
        path: The path below the table's location, URI-encoded; it starts with `_change_data/`.
        size: The size in bytes.
        partition_values: The text of each partition value by column name; None is null.
        data_change: Always False: the data files of the commit change the rows.
        tags: Labels of the writer.
        extra: Unknown fields.
    """

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
    """The schema, partitioning and properties of the table. It replaces the previous metadata.

    Attributes:
        id: The id of the table, which never changes.
        schema_string: The schema as Delta's JSON.
        partition_columns: The names of the partition columns, in order.
        configuration: The table properties.
        name: A name for people.
        description: A description for people.
        format: The file format, always Parquet.
        created_time: When the table was created, in milliseconds since 1970.
        extra: Unknown fields.
    """

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
    """The protocol versions and table features that readers and writers of the table must support.

    Attributes:
        min_reader_version: The lowest protocol version of a reader.
        min_writer_version: The lowest protocol version of a writer.
        reader_features: The features of readers; given with reader version 3 and only then.
        writer_features: The features of writers; given with writer version 7 and only then.
        extra: Unknown fields.
    """

    kind: ClassVar[str] = "protocol"
    min_reader_version: int = 1
    min_writer_version: int = 2
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Json = {}


class Txn(Action, frozen=True, gc=False):
    """The progress of an application, such as a stream, that writes to the table exactly once.

    Attributes:
        app_id: The id of the application.
        version: The last version of the application's input that is committed.
        last_updated: When it was committed, in milliseconds since 1970.
        extra: Unknown fields.
    """

    kind: ClassVar[str] = "txn"
    app_id: str
    version: int
    last_updated: int | None = None
    extra: Json = {}


class DomainMetadata(Action, frozen=True, gc=False):
    """A named piece of configuration that is stored with the table.

    Attributes:
        domain: The name of the domain.
        configuration: The configuration as a text.
        removed: Whether the domain is removed.
        extra: Unknown fields.
    """

    kind: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool = False
    extra: Json = {}


class CommitInfo(Action, frozen=True, gc=False):
    """The description of a commit for its history. Delta does not prescribe its fields.

    Attributes:
        operation: The name of the operation, such as `WRITE`.
        operation_parameters: The parameters of the operation.
        operation_metrics: The metrics of the operation, as texts.
        timestamp: When the commit was made, in milliseconds since 1970.
        in_commit_timestamp: The timestamp of the version, in tables with in-commit timestamps.
        user_id: The id of the committer.
        user_name: The name of the committer.
        read_version: The version that the operation read.
        isolation_level: The isolation level of the commit.
        is_blind_append: Whether the commit only adds files and read nothing.
        user_metadata: A message of the user.
        tags: Labels of the writer.
        engine_info: The engine that made the commit.
        txn_id: The id of the transaction.
        extra: Unknown fields.
    """

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
    """Return the value of a JSON object of the log, with unknown fields in `extra`."""
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
