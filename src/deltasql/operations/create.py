"""Making tables: where they lie, what their first version says, and their first rows."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltasql import storage
from deltasql.addresses import split_name
from deltasql.config import Config
from deltasql.engines.arrow.write.input_rows import arrow_rows, is_spark_frame
from deltasql.errors import TableExists, UsageError, ValidationError
from deltasql.operations.commit import MultiTableTransaction
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a new table."""

    schema: Any = None
    """DDL text, a pyarrow.Schema or a Spark StructType; that of the rows where there is none."""
    as_: Any = None
    """Its first rows."""
    location: str | None = None
    partition_by: str | Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    constraints: Mapping[str, str] | None = None
    description: str | None = None


class TableCreator:
    """Makes the tables of a store, by default below one directory."""

    def __init__(
        self, store: Store, writer: TableWriter, config: Config, options: Mapping[str, str], root: str
    ) -> None:
        self._store = store
        self._writer = writer
        self._config = config
        self._options = options
        self._root = root

    def stage(self, txn: MultiTableTransaction, name: str, wanted: Wanted) -> TableState:
        """A table that a transaction creates, with its rows."""
        namespace, table = split_name(name)
        full = f"{namespace}.{table}"
        table_id = str(uuid.uuid4())
        partitions = wanted.partition_by
        configuration = _configuration(full, wanted.properties, wanted.constraints)
        rows = wanted.as_
        if rows is not None and not is_spark_frame(rows):
            rows = arrow_rows(rows, full)
        if wanted.schema is None and rows is None:
            raise UsageError(f"table {full}: give a schema, or rows with as_=…", table=full)
        schema = json.dumps(nullable(struct_of(rows))) if wanted.schema is None else wanted.schema
        text = schema_string(schema, table=full)
        reject_unchecked_not_null(text, full)
        protocol = _protocol(full, configuration, text)
        metadata = Metadata(
            id=table_id,
            schema_string=text,
            partition_columns=(partitions,) if isinstance(partitions, str) else tuple(partitions),
            configuration=without_requested_features(configuration),
            description=wanted.description,
            created_time=time.time_ns() // 1_000_000,
        )
        place = self._location(namespace, table, table_id, wanted.location)
        self._refuse_foreign_log(full, place, configuration)
        state = TableState(0, table_id, full, -1, None, None, place)
        info = CommitInfo("CREATE TABLE", _create_parameters(metadata))
        txn.create(state, NewTable(namespace, table, place), [protocol, metadata, info])
        if rows is not None:
            self._writer.write(txn, state, rows, WriteOptions())
        return state

    def _location(self, namespace: str, table: str, table_id: str, given: str | None) -> str:
        """Where a new table's files go; by default a directory that holds nothing yet."""
        if given is not None:
            return _absolute(given)
        place = _absolute(f"{self._root}/{namespace}/{table}")
        taken = self._store.location_used(place) or storage.exists_below(place, self._options)
        return f"{place}-{table_id[:8]}" if taken else place

    def _refuse_foreign_log(self, table: str, place: str, properties: Mapping[str, str]) -> None:
        """A log that is there already could never become this table's: nothing is overwritten."""
        if self._config.override(properties)["mirror.mode"] == "off":
            return
        if storage.exists_below(place, self._options, "_delta_log"):
            raise TableExists(
                table,
                f"table {table}: {place} holds a Delta log already, of a dropped table or of another tool: "
                f"choose another location, or delete the log",
            )


def _absolute(location: str) -> str:
    """A location as the log keeps it: local paths absolute, no slash at the end."""
    place = str(storage.local_path(location).resolve()) if storage.is_local(location) else location
    scheme, separator, path = place.rpartition("://")
    return f"{scheme}{separator}{path.rstrip('/')}" or "/"


def _configuration(
    table: str, properties: Mapping[str, str] | None, constraints: Mapping[str, str] | None
) -> dict[str, str]:
    values = dict(properties or {})
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValidationError(
                f"table {table}: properties map strings to strings, got {key!r}: {value!r}",
                table=table,
                value=key,
            )
    Config({}, {}).override(values)
    values = canonical_properties(table, values)
    for name, expression in (constraints or {}).items():
        values[constraint_key(name)] = expression
    return values


def _protocol(table: str, configuration: Mapping[str, str], text: str) -> Protocol:
    properties = TableProperties.of(configuration)
    needed = needed_features(properties, text) | properties.requested_features
    return grown(None, needed, table) or Protocol()


def _create_parameters(metadata: Metadata) -> dict[str, Any]:
    """Spark writes the values of operation parameters as JSON texts."""
    return {
        "isManaged": "false",
        "description": metadata.description,
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "properties": json.dumps(dict(metadata.configuration), sort_keys=True),
    }
