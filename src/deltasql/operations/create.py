"""Create tables: choose the location, stage version 0 and the first rows."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltasql import storage
from deltasql.addresses import split_name
from deltasql.config import Config
from deltasql.engines.arrow.write.input_rows import arrow_rows, is_spark_frame
from deltasql.errors import StorageError, TableExists, UsageError, ValidationError, shown
from deltasql.operations.allowed_roots import check_allowed
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.drop import reject_wide_location
from deltasql.operations.location_owner import OWNER, Owner, claim
from deltasql.operations.write import TableWriter, WriteOptions, struct_of
from deltasql.protocol.actions import CommitInfo, Metadata, Protocol
from deltasql.protocol.features import grown, needed_features
from deltasql.protocol.properties import (
    TableProperties,
    canonical_properties,
    constraint_key,
    without_requested_features,
)
from deltasql.protocol.schema import schema_string
from deltasql.protocol.schema_fit import nullable
from deltasql.protocol.schema_rules import reject_unchecked_not_null
from deltasql.protocol.table_changes import NewTable, TableState
from deltasql.store import Store

_log = logging.getLogger(__name__)
_LONGEST_NAME = 255
_LONGEST_LOCATION = 3_000  # file systems accept 4096 with the names of the files
_ILLEGAL_IN_LOCATION = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The definition of a new table."""

    schema: Any = None
    """DDL text, a pyarrow.Schema or a Spark StructType; the schema of the rows by default."""
    as_: Any = None
    """The first rows."""
    location: str | None = None
    partition_by: str | Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    constraints: Mapping[str, str] | None = None
    description: str | None = None


class TableCreator:
    """Creates tables, by default below one directory."""

    def __init__(
        self,
        store: Store,
        writer: TableWriter,
        config: Config,
        options: Mapping[str, str],
        *,
        root: str,
        database: str,
    ) -> None:
        self._store = store
        self._writer = writer
        self._config = config
        self._options = options
        self._database = database
        self._root = storage.normal_location(root)  # of the directory in which the lake was opened

    def stage(self, txn: MultiTableTransaction, name: str, spec: TableSpec) -> TableState:
        """Stage a new table with its first rows."""
        namespace, table = split_name(name)
        full = f"{namespace}.{table}"
        table_id = str(uuid.uuid4())
        defined = _defined(full, table_id, spec)
        self._store.require("write", namespace)
        location = self._location(namespace, table, table_id, spec.location)
        self._reject_existing_log(full, location, defined.configuration)
        state = TableState(0, table_id, full, -1, None, None, location)
        written = txn.begin_files(state, self._options)
        self._claim(state)
        written.add(OWNER)
        protocol = grown(None, defined.features, full) or Protocol()
        txn.create(state, NewTable(namespace, table, location), [protocol, defined.metadata])
        self._stage_rows(txn, state, "CREATE TABLE", defined)
        return state

    def _claim(self, state: TableState) -> None:
        """Claim the location of a new table, so that no other lake can. A store that fails does not prevent the table:
        its log is in the database."""
        owner = Owner(self._store.identity.current().lake_id, self._database, state.name, state.table_id)
        try:
            claim(state.location, self._options, owner, self._store.table_exists)
        except StorageError as error:
            _log.warning("table %s: its location is not protected from other lakes: %s", state.name, error)

    def replace(self, txn: MultiTableTransaction, state: TableState, spec: TableSpec) -> None:
        """Stage another definition of a table, and other rows."""
        if spec.location is not None and storage.normal_location(spec.location) != state.location:
            raise UsageError(
                f"table {state.name}: a table that is replaced stays at {state.location}: leave the location out",
                table=state.name,
                value=spec.location,
            )
        defined = _defined(state.name, state.table_id, spec)
        removed = self._writer.remove_all(txn, state)
        txn.stage_metadata(state, defined.metadata, grown(state.protocol, defined.features, state.name))
        metrics = {"numRemovedFiles": str(removed)} if removed else None
        self._stage_rows(txn, txn.state_of(state), "CREATE OR REPLACE TABLE", defined, metrics)

    def _stage_rows(
        self,
        txn: MultiTableTransaction,
        state: TableState,
        operation: str,
        defined: _Defined,
        metrics: dict[str, str] | None = None,
    ) -> None:
        """Stage the first rows of a definition, if it has any, and what history shows."""
        name = operation if defined.rows is None else f"{operation} AS SELECT"
        info = CommitInfo(name, _create_parameters(defined.metadata), metrics)
        if defined.rows is None:
            txn.stage_on(state, [info])
        else:
            self._writer.write(txn, state, defined.rows, WriteOptions(info=info))

    def _location(self, namespace: str, table: str, table_id: str, given: str | None) -> str:
        """Return the location of a new table; by default a directory that holds nothing yet."""
        if given is not None:
            _check_location(f"{namespace}.{table}", given)
            check_allowed(given, self._config["storage.allowed_roots"])
            reject_wide_location(given, f"{namespace}.{table}")
            return storage.normal_location(given)
        location = storage.normal_location(f"{self._root}/{namespace}/{table}")
        taken = self._store.location_used(location) or storage.exists_below(location, self._options)
        return f"{location}-{table_id[:8]}" if taken else location

    def _reject_existing_log(self, table: str, location: str, properties: Mapping[str, str]) -> None:
        """Reject a location that already holds a Delta log, because the mirror never overwrites one."""
        if self._config.override(properties)["mirror.mode"] == "off":
            return
        if storage.exists_below(location, self._options, "_delta_log"):
            raise TableExists(
                table,
                f"table {table}: {location} already holds a Delta log, of a dropped table or of another tool: choose "
                f"another location for the new table",
            )


def _check_location(table: str, location: Any) -> None:
    """Raise for a location that is not a text, or has characters that no file system and no store accepts."""
    is_text = isinstance(location, str) and bool(location.strip())
    if not is_text or _ILLEGAL_IN_LOCATION.search(location) or _is_too_long(location):
        problem = (
            f"the location must be a directory or a URL without control characters and names of more than "
            f"{_LONGEST_NAME} bytes, got {shown(location)}"
        )
        raise ValidationError(f"table {table}: {problem}", table=table, value=location)


def _is_too_long(location: str) -> bool:
    names = location.encode().split(b"/")
    return max(map(len, names)) > _LONGEST_NAME or len(location) > _LONGEST_LOCATION


def _texts(table: str, what: str, given: Any) -> dict[str, str]:
    """Return a mapping of texts; raise for other values."""
    values = {} if given is None else given
    for key, value in values.items() if isinstance(values, Mapping) else [(given, None)]:
        if not isinstance(key, str) or not isinstance(value, str):
            text = f"table {table}: {what} must map strings to strings, got {shown(key)}: {shown(value)}"
            raise ValidationError(text, table=table, value=key)
    return dict(values)


def _partition_columns(table: str, given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        text = f"table {table}: partition_by must be a list of column names, got {shown(given)}"
        raise ValidationError(text, table=table, value=given)
    return tuple(names)


def _configuration(
    table: str, properties: Mapping[str, str] | None, constraints: Mapping[str, str] | None
) -> dict[str, str]:
    values = _texts(table, "properties", properties)
    Config({}, {}).override(values)
    values = canonical_properties(table, values)
    for name, expression in _texts(table, "constraints", constraints).items():
        values[constraint_key(name)] = expression
    return values


@dataclass(frozen=True, slots=True)
class _Defined:
    """A checked definition."""

    metadata: Metadata
    configuration: Mapping[str, str]
    features: Collection[str]
    rows: Any


def _defined(table: str, table_id: str, spec: TableSpec) -> _Defined:
    """Check a definition and return its parts."""
    configuration = _configuration(table, spec.properties, spec.constraints)
    rows = spec.as_
    if rows is not None and not is_spark_frame(rows):
        rows = arrow_rows(rows, table)
    if spec.schema is None and rows is None:
        raise UsageError(f"table {table}: a schema is missing: pass schema, or rows with as_", table=table)
    schema = json.dumps(nullable(struct_of(rows))) if spec.schema is None else spec.schema
    text = schema_string(schema, table=table)
    reject_unchecked_not_null(text, table)
    properties = TableProperties.of(configuration)
    metadata = Metadata(
        id=table_id,
        schema_string=text,
        partition_columns=_partition_columns(table, spec.partition_by),
        configuration=without_requested_features(configuration),
        description=spec.description,
        created_time=time.time_ns() // 1_000_000,
    )
    return _Defined(metadata, configuration, needed_features(properties, text) | properties.requested_features, rows)


def _create_parameters(metadata: Metadata) -> dict[str, Any]:
    """Return the parameters for history; as in delta-spark, each value is JSON text."""
    return {
        "isManaged": "false",
        "description": metadata.description,
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "properties": json.dumps(dict(metadata.configuration), sort_keys=True),
    }
