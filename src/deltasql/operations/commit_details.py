"""Options and commit information of a transaction: parsed, checked, completed."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from deltasql.addresses import split_name
from deltasql.config import duration
from deltasql.errors import UsageError, ValidationError, shown
from deltasql.protocol.actions import CommitInfo, Metadata, Txn
from deltasql.protocol.deletion_vectors import file_of
from deltasql.protocol.table_changes import (
    SERIALIZABLE,
    WRITE_SERIALIZABLE,
    Changes,
    NewTable,
    Reads,
    TableState,
)

_ISOLATION = {"serializable": SERIALIZABLE, "write_serializable": WRITE_SERIALIZABLE}


@dataclass(slots=True)
class StagedTable:
    """The actions that a transaction has staged for one table."""

    state: TableState
    changes: Changes = field(default_factory=Changes)
    reads: Reads = field(default_factory=Reads)
    expected_version: int | None = None
    isolation: str | None = None
    create: NewTable | None = None


def expected_version(version: Any, known: StagedTable) -> int | None:
    """Check an expected version against the one that was staged before."""
    if version is None:
        return known.expected_version
    if type(version) is not int or not 0 <= version < 2**63:
        raise ValidationError(
            f"table {known.state.name}: expected_version must be an integer from 0 to 2^63-1, got {shown(version)}",
            table=known.state.name,
            table_id=known.state.table_id,
            value=version,
        )
    if known.expected_version not in (None, version):
        raise UsageError(
            f"table {known.state.name} is already staged with expected version {known.expected_version}, not {version}",
            table=known.state.name,
            value=version,
        )
    return version


def table_names(state: TableState) -> tuple[str, ...]:
    """Return the names of a table: the full one, and the short one in the default namespace."""
    namespace, name = split_name(state.name)
    return (state.name, name) if split_name(name)[0] == namespace else (state.name,)


def combined_info(infos: Sequence[CommitInfo]) -> CommitInfo:
    """Combine the commit information of several statements: sum the metrics, list operations and parameters."""
    if len(infos) == 1:
        return infos[0]
    operations = list(dict.fromkeys(info.operation for info in infos))
    metrics: dict[str, str] = {}
    for info in infos:
        for key, value in (info.operation_metrics or {}).items():
            sums = value.isdigit() and metrics.get(key, "0").isdigit()
            metrics[key] = str(int(metrics.get(key, "0")) + int(value)) if sums else value
    parts = [{"operation": info.operation, **(info.operation_parameters or {})} for info in infos]
    return msgspec.structs.replace(
        infos[0],
        operation=operations[0] if len(operations) == 1 else "TRANSACTION",
        operation_parameters={"statements": json.dumps(parts, ensure_ascii=False)},
        operation_metrics=metrics or None,
    )


def default_operation(staged: StagedTable) -> str:
    """Return the operation that history shows for actions staged without commit information."""
    if staged.create:
        return "CREATE TABLE"
    changes = staged.changes
    if not changes.num_files and any(_other_schema(one, staged.state) for one in changes.metadata):
        return "ADD COLUMNS"
    if not changes.num_files and (changes.metadata or changes.protocols):
        return "SET TBLPROPERTIES"
    return "WRITE"


def _other_schema(metadata: Metadata, state: TableState) -> bool:
    return state.metadata is None or state.metadata.schema_string != metadata.schema_string


def parse_isolation(name: str | None) -> str | None:
    """Return Delta's name of an isolation level."""
    if name is None:
        return None
    known = {**_ISOLATION, **{value: value for value in _ISOLATION.values()}}
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"isolation must be one of {', '.join(_ISOLATION)}, got {shown(name)}", value=name)
    return known[name]


def files_of(changes: Changes, state: TableState) -> Iterator[str]:
    """Return the paths of all added data, change and deletion vector files."""
    for add in changes.adds:
        yield add.path
        with suppress(ValidationError):  # a vector from another writer that names no valid file
            if add.deletion_vector is not None and (path := file_of(add.deletion_vector, state.location, state.name)):
                yield path
    yield from (cdc.path for cdc in changes.cdc)


def table_isolation(state: TableState) -> str:
    """Return the isolation level that a table's property asks for."""
    configured = state.metadata.table_properties.isolation_level if state.metadata else None
    return configured if configured and configured in _ISOLATION.values() else WRITE_SERIALIZABLE


def parse_app(app: Any) -> Txn | None:
    """Return the application transaction of the option `app`."""
    if app is None:
        return None
    match app:
        case (str(app_id), int(version)) if app_id and type(version) is int and abs(version) < 2**63:
            return Txn(app_id, version)
    raise UsageError(f"app must be (application id, version), such as ('stream', 7), got {shown(app)}", value=app)


def positive(value: Any) -> float:
    """Parse a duration longer than 0."""
    seconds = duration(value)
    if seconds <= 0:
        raise ValueError("a duration longer than 0")
    return seconds


def text_or_none(value: Any) -> str | None:
    """Parse a text that can be left out."""
    if value is not None and not isinstance(value, str):
        raise ValueError("a text")
    return value


def checked_option(name: str, read: Any, value: Any) -> Any:
    """Parse an option; raise `UsageError` with its name if the value is not valid."""
    try:
        return read(value)
    except ValueError as error:
        raise UsageError(f"{name} must be {error}, got {shown(value)}", value=value) from None


@cache
def current_user() -> str:
    """Return the name of the operating system user."""
    try:
        return getpass.getuser()
    except OSError:  # an account without a name, as in some containers
        return "unknown"
