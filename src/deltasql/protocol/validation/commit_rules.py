"""Validation of a commit from its actions and the table's state, before any lock.

The checks run over all values of a field at once, because a commit may have 100,000 files. The invalid action is only
searched for when a check fails.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from deltasql.errors import UnsupportedFeature, ValidationError, shown
from deltasql.expressions.partition_bounds import partition_bounds
from deltasql.protocol.actions import CHANGE_COLUMNS, Add, Cdc, Metadata, Remove
from deltasql.protocol.constraints import StoredExpression, stored_expressions
from deltasql.protocol.features import (
    check_change,
    check_protocol,
    features_of,
    needed_features,
)
from deltasql.protocol.file_paths import check_paths, check_unicode
from deltasql.protocol.properties import CHANGE_DATA_FEED, IN_COMMIT_TIMESTAMPS
from deltasql.protocol.schema import arrow_schema, primitive_name
from deltasql.protocol.schema_fit import parse_struct
from deltasql.protocol.schema_rules import validate_schema
from deltasql.protocol.table_changes import Changes, TableState, misfit
from deltasql.protocol.validation.staged_values import check_labels, check_maps, check_vectors

_FAR_DATE = re.compile(r"[+-]\d{4,}-\d\d-\d\d")
_MAX_INT64 = 2**63 - 1


def validate(changes: Changes, state: TableState) -> None:
    """Raise for the first rule that a commit violates."""
    table = state.name
    _check_counts(changes, table)
    _check_protocol(changes, state)
    _check_metadata(changes, state)
    _check_files(changes, state)
    _check_domains(changes, state)
    _check_txns(changes, table)


def _fail(table: str, problem: str, value: Any) -> NoReturn:
    raise ValidationError(f"table {table}: {problem}", table=table, value=value)


def _check_counts(changes: Changes, table: str) -> None:
    for what, values in (
        ("metaData", changes.metadata),
        ("protocol", changes.protocols),
        ("commitInfo", changes.infos),
    ):
        if len(values) > 1:
            _fail(table, f"a commit must have at most one {what} action, got {len(values)}", values)
    _check_unique("txn action per application id", (t.app_id for t in changes.txns), table)
    _check_unique("domainMetadata action per domain", (d.domain for d in changes.domains), table)


def _check_unique(what: str, keys: Iterable[str], table: str) -> None:
    for key, count in Counter(keys).items():
        if count > 1:
            _fail(table, f"a commit must have at most one {what}, got {count} for {key!r}", key)


def _check_protocol(changes: Changes, state: TableState) -> None:
    if changes.protocols:
        check_protocol(changes.protocols[0], state.name)
        check_change(state.protocol, changes.protocols[0], state.name)
    elif state.protocol is not None:
        check_protocol(state.protocol, state.name)
    if state.version < 0 and not (changes.protocols and changes.metadata):
        _fail(state.name, "version 0 must have a protocol and a metaData action", None)


def _check_metadata(changes: Changes, state: TableState) -> None:
    for metadata in changes.metadata:
        _check_text(state.name, "metaData id", metadata.id)
        if metadata.format.provider != "parquet":
            _fail(
                state.name,
                f"the file format must be parquet, got {shown(metadata.format.provider)}",
                metadata.format.provider,
            )
        validate_schema(metadata.schema_string, metadata.partition_columns, state.name)
        _check_feed(metadata, state.name)
        _check_expressions(metadata, state)
        _check_features(metadata, changes, state)
        _check_fits(metadata, changes, state)


def _check_expressions(metadata: Metadata, state: TableState) -> None:
    """Raise for a new expression that must not run in the processes of all writers."""
    known = {one.sql for one in _expressions(state.metadata)} if state.metadata is not None else set()
    for one in _expressions(metadata):
        if one.sql not in known:
            one.check(state.name)


def _expressions(metadata: Metadata) -> list[StoredExpression]:
    schema = parse_struct(metadata.schema_string)
    return list(stored_expressions(schema, metadata.table_properties.constraints))


def _check_feed(metadata: Metadata, table: str) -> None:
    """Raise if a column of a table with a change data feed has a reserved name."""
    for name in arrow_schema(metadata.schema_string).names if metadata.table_properties.change_data_feed else ():
        if name.lower() in CHANGE_COLUMNS:
            _fail(
                table,
                f"column {name!r} is reserved for the change data feed: rename it, or turn {CHANGE_DATA_FEED} off",
                name,
            )


def _check_features(metadata: Metadata, changes: Changes, state: TableState) -> None:
    """Raise if the metadata needs a feature that the protocol does not have: readers would reject the table."""
    for feature in sorted(needed_features(metadata.table_properties, metadata.schema_string)):
        _require(feature, "the metadata", changes, state)


def _check_fits(metadata: Metadata, changes: Changes, state: TableState) -> None:
    """Raise if new metadata does not fit the files that the commit does not replace."""
    if state.metadata is not None and metadata.id != state.metadata.id:
        _fail(
            state.name,
            f"the metaData id must not change from {state.metadata.id!r} to {metadata.id!r}",
            metadata.id,
        )
    stamped = metadata.table_properties.in_commit_timestamps
    if state.metadata is not None and stamped and not state.metadata.table_properties.in_commit_timestamps:
        _fail(
            state.name,
            f"{IN_COMMIT_TIMESTAMPS} can only be set when a table is created: earlier versions would have no in-commit "
            f"timestamps",
            metadata.configuration,
        )
    problem = misfit(changes, state)
    if problem is not None and len(changes.removes) != state.num_files:
        carried_over = state.num_files - len(changes.removes)
        _fail(
            state.name,
            f"{problem}, but {carried_over} files are not replaced: rewrite the whole table in the same commit",
            metadata,
        )


def _check_text(table: str, what: str, value: Any) -> None:
    if type(value) is not str or not value:
        _fail(table, f"{what} must be a non-empty string, got {shown(value)}", value)


def _check_files(changes: Changes, state: TableState) -> None:
    metadata = changes.metadata[0] if changes.metadata else state.metadata
    _check_paths(changes, state.name)
    _check_sizes(changes, state.name)
    _check_flags(changes, state.name)
    check_maps("partition_values", [r.partition_values for r in changes.removes], state.name)
    for files, values in (
        (changes.adds, changes.of_adds("partition_values")),
        (changes.cdc, [c.partition_values for c in changes.cdc]),
    ):
        if files:
            _check_partition_values(files, values, metadata, state.name)
    _check_texts(changes, state.name)
    check_labels(changes, state.name)
    _check_vectors(changes, state)
    _check_pairs(changes, state.name)
    _check_append_only(changes, metadata, state.name)


def _check_paths(changes: Changes, table: str) -> None:
    removed, changed = [r.path for r in changes.removes], [c.path for c in changes.cdc]
    for what, paths in (("add", changes.of_adds("path")), ("remove", removed), ("cdc", changed)):
        if not all_of(paths, str):
            bad = next(p for p in paths if type(p) is not str)
            _fail(table, f"the path of {what} must be a string, got {shown(bad)}", bad)
        if len(set(paths)) != len(paths):
            path, count = Counter(paths).most_common(1)[0]
            _fail(table, f"a commit must have at most one {what} per path, got {count} for {path!r}", path)
        check_paths(paths, table, change_data=what == "cdc")


def _check_sizes(changes: Changes, table: str) -> None:
    numbers: list[tuple[str, Sequence[Any], bool]] = [
        ("size of add", changes.of_adds("size"), True),
        ("modification_time of add", changes.of_adds("modification_time"), True),
        ("size of cdc", [c.size for c in changes.cdc], True),
        ("size of remove", [r.size for r in changes.removes], False),
        ("deletion_timestamp of remove", [r.deletion_timestamp for r in changes.removes], False),
        ("base_row_id of add", changes.of_adds("base_row_id"), False),
        ("default_row_commit_version of add", changes.of_adds("default_row_commit_version"), False),
        ("base_row_id of remove", [r.base_row_id for r in changes.removes], False),
        ("default_row_commit_version of remove", [r.default_row_commit_version for r in changes.removes], False),
    ]
    for what, values, required in numbers:
        if not required and values.count(None) == len(values):
            continue
        present = values if required else [v for v in values if v is not None]
        if not all_of(present, int) or (present and not 0 <= min(present) <= max(present) <= _MAX_INT64):
            bad = next(v for v in present if type(v) is not int or not 0 <= v <= _MAX_INT64)
            _fail(table, f"the {what} must be a whole number from 0 to 2^63-1, got {shown(bad)}", bad)


def _check_flags(changes: Changes, table: str) -> None:
    added, removed = changes.of_adds("data_change"), [r.data_change for r in changes.removes]
    if not all_of(added, bool) or not all_of(removed, bool):
        _fail(table, "data_change must be True or False", None)
    if not {type(r.extended_file_metadata) for r in changes.removes} <= {bool, type(None)}:
        _fail(table, "extended_file_metadata must be True, False or None", None)
    if any(c.data_change is not False for c in changes.cdc):
        _fail(table, "data_change of a cdc file must be False", True)
    if not removed and False in added:
        _fail(
            table,
            "adds with data_change=False only rearrange rows, so the commit must also remove files",
            False,
        )


def all_of(values: Iterable[Any], kind: type) -> bool:
    """Return whether every value has exactly this type; True is not an int."""
    return set(map(type, values)) <= {kind}


def _check_partition_values(
    files: Sequence[Add | Cdc], given: Sequence[Mapping[str, str | None]], metadata: Metadata | None, table: str
) -> None:
    columns = metadata.partition_columns if metadata else ()
    try:
        if all_of(given, dict) and set(map(len, given)) <= {len(columns)}:
            for column in columns:
                distinct = {values[column] for values in given}
                for value in distinct:
                    _check_partition_value(column, value, table)
                _check_partition_type(column, frozenset(v for v in distinct if v is not None), metadata, table)
            return
    except (KeyError, TypeError):
        pass  # the checks below name the value or the file
    check_maps("partition_values", given, table)
    for file in files:
        if file.partition_values.keys() != set(columns):
            _fail(
                table,
                f"file {file.path!r} has partition values for {sorted(file.partition_values)}, but the table is "
                f"partitioned by {sorted(columns)}: give exactly one value per partition column, None for null",
                file.path,
            )


def _check_partition_value(column: str, value: Any, table: str) -> None:
    if type(value) is str:
        check_unicode(value, table)
    if value is not None and (type(value) is not str or not value or "\x00" in value):
        _fail(
            table,
            f"the value of partition column {column!r} must be a non-empty string in Delta's text form, or None "
            f"for null, got {shown(value)}",
            value,
        )


def _check_partition_type(column: str, values: frozenset[str], metadata: Metadata | None, table: str) -> None:
    """Raise for an invalid whole number, date or boolean, on which readers fail. Other types have many text forms."""
    kind = arrow_schema(metadata.schema_string).field(column).type if metadata else pa.null()
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind)):
        return
    for value in _invalid_texts(kind, values):
        _fail(table, f"partition column {column!r}: invalid {primitive_name(kind)} value {value!r}", value)


@lru_cache(maxsize=256)
def _invalid_texts(kind: pa.DataType, values: frozenset[str]) -> list[str]:
    """Return the texts that are not values of the type; cached, because commits often have the same partitions."""
    texts = sorted(values)
    parsed = partition_bounds(pa.array(texts, pa.string()), kind).min
    return [t for t, value in zip(texts, parsed, strict=True) if not value.is_valid and not _FAR_DATE.fullmatch(t)]


def _check_texts(changes: Changes, table: str) -> None:
    stats = [text for text in changes.of_adds("stats") if text is not None]
    stats += [r.stats for r in changes.removes if r.stats is not None]
    if not all_of(stats, str):
        bad = next(s for s in stats if type(s) is not str)
        _fail(table, f"stats must be a JSON string, got {type(bad).__name__}: use json.dumps()", bad)
    if not stats:
        return
    try:
        whole = len(_stats_heads.decode(f"[{','.join(stats)}]")) == len(stats)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        whole = False
    if not whole:
        for text in stats:
            _check_stats(text, table)


class _StatsHead(msgspec.Struct, rename="camel", gc=False):
    num_records: int | None = None


_stats_heads = msgspec.json.Decoder(list[_StatsHead])


def _check_stats(text: str, table: str) -> None:
    try:
        msgspec.json.decode(text, type=_StatsHead)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        _fail(table, f"stats must be a JSON object, got {text[:120]!r} ({error})", text)
    if "\x00" in text:
        _fail(table, "stats must not contain NUL characters", text)


def _check_pairs(changes: Changes, table: str) -> None:
    """Raise if a path is removed and added with the same deletion vector."""
    removed = {r.path: r for r in changes.removes}
    if not removed:
        return
    for add in changes.adds:
        remove = removed.get(add.path)
        if remove is not None and _vector(add) == _vector(remove):
            _fail(
                table,
                f"path {add.path!r} is both added and removed with the same deletion vector, which readers "
                f"interpret differently: write the new file under a new name",
                add.path,
            )


def _vector(file: Add | Remove) -> str | None:
    return file.deletion_vector.unique_id if file.deletion_vector else None


def _check_append_only(changes: Changes, metadata: Metadata | None, table: str) -> None:
    if metadata is None or not metadata.table_properties.append_only:
        return
    for remove in changes.removes:
        if remove.data_change:
            _fail(
                table,
                f"the table is append-only (delta.appendOnly=true), so {remove.path!r} cannot be removed: "
                f"set the property to false first",
                remove.path,
            )


def _check_vectors(changes: Changes, state: TableState) -> None:
    vectors = [vector for vector in changes.of_adds("deletion_vector") if vector is not None]
    if vectors:
        _require("deletionVectors", "a deletion vector", changes, state)
        check_vectors(changes, state)


def _check_domains(changes: Changes, state: TableState) -> None:
    for domain in changes.domains:
        _check_text(state.name, "domainMetadata domain", domain.domain)
    if changes.domains:
        _require("domainMetadata", "a domainMetadata action", changes, state)


def _require(feature: str, what: str, changes: Changes, state: TableState) -> None:
    protocol = changes.protocols[0] if changes.protocols else state.protocol
    if protocol is None or feature not in features_of(protocol):
        raise UnsupportedFeature(
            f"table {state.name}: {what} needs the table feature {feature}: add it to the protocol first",
            features=(feature,),
            table=state.name,
        )


def _check_txns(changes: Changes, table: str) -> None:
    for txn in changes.txns:
        _check_text(table, "txn app_id", txn.app_id)
