"""Delta table properties: their names, the values they accept, and one typed value with all that deltasql reads.

No other module reads a `delta.*` property from a table's configuration.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from deltasql.errors import ValidationError, closest_name

_log = logging.getLogger(__name__)
_INTERVAL_PART = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)

CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
CONSTRAINT_PREFIX = "delta.constraints."
_FEATURE_PREFIX = "delta.feature."
_APPEND_ONLY = "delta.appendOnly"
_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_CHECKPOINT_POLICY = "delta.checkpointPolicy"
_CODEC = "delta.parquet.compression.codec"
_COLUMN_MAPPING = "delta.columnMapping.mode"
_DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
_DELETION_VECTORS = "delta.enableDeletionVectors"
_EXPIRED_LOG_CLEANUP = "delta.enableExpiredLogCleanup"
# Only deltasql knows the writer feature of this property: other engines can read the table and reject writes.
_FENCE = "delta.deltasql.fence"
_ISOLATION_LEVEL = "delta.isolationLevel"
_LOG_RETENTION = "delta.logRetentionDuration"
_NUM_INDEXED_COLUMNS = "delta.dataSkippingNumIndexedCols"
_STATS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
_STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"

_LONGEST = timedelta(days=36_500)
"""Longer intervals count as this one, because times before the year 1 do not exist."""
_MOST_DIGITS = 9  # Delta reads 32-bit numbers

_FEATURE_SWITCHES = {
    _APPEND_ONLY: "appendOnly",
    CHANGE_DATA_FEED: "changeDataFeed",
    _DELETION_VECTORS: "deletionVectors",
    _FENCE: "deltasqlFence",
    IN_COMMIT_TIMESTAMPS: "inCommitTimestamp",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableIcebergCompatV3": "icebergCompatV3",
    "delta.enableVariantShredding": "variantShredding",
}
"""The table feature that each property turns on when it is `true`."""


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The `delta.*` properties of a table that deltasql reads, with Delta's defaults.

    Malformed values, which only tables of other engines can have, count as absent.
    """

    append_only: bool = False
    change_data_feed: bool = False
    checkpoint_interval: int | None = None
    codec: str = "snappy"
    column_mapping_mode: str = "none"
    constraints: Mapping[str, str] = field(default_factory=dict)
    """The CHECK constraints: conditions by name, in the order of their names."""
    deleted_file_retention: timedelta = timedelta(days=7)
    deletion_vectors: bool = False
    enabled_features: frozenset[str] = frozenset()
    """The table features that properties turn on."""
    expired_log_cleanup: bool = True
    in_commit_timestamps: bool = False
    isolation_level: str | None = None
    log_retention: timedelta = timedelta(days=30)
    num_indexed_columns: int = 32
    requested_features: frozenset[str] = frozenset()
    """The table features of `delta.feature.<name>`, which are only given when a table is created."""
    stats_as_json: bool = True
    """Whether checkpoints hold statistics as JSON text. Checkpoints hold at least one of the two forms."""
    stats_as_struct: bool = False
    """Whether checkpoints hold statistics as typed columns."""
    stats_columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> TableProperties:
        """Return the typed properties of a table's configuration; cached."""
        return _parsed(tuple(configuration.items()))


@lru_cache(maxsize=1024)
def _parsed(items: tuple[tuple[str, str], ...]) -> TableProperties:
    values = dict(items)
    default = TableProperties()
    stats_as_struct = _is_on(values, _STATS_AS_STRUCT)
    stats_columns = values.get(_STATS_COLUMNS)
    return TableProperties(
        append_only=_is_on(values, _APPEND_ONLY),
        change_data_feed=_is_on(values, CHANGE_DATA_FEED),
        checkpoint_interval=_count(values.get(_CHECKPOINT_INTERVAL, "")),
        codec=values.get(_CODEC, default.codec).lower(),
        column_mapping_mode=values.get(_COLUMN_MAPPING, default.column_mapping_mode),
        constraints=_family(values, CONSTRAINT_PREFIX),
        deleted_file_retention=_interval(values, _DELETED_FILE_RETENTION, default.deleted_file_retention),
        deletion_vectors=_is_on(values, _DELETION_VECTORS),
        enabled_features=frozenset(_enabled_features(values)),
        expired_log_cleanup=values.get(_EXPIRED_LOG_CLEANUP, "").lower() != "false",
        in_commit_timestamps=_is_on(values, IN_COMMIT_TIMESTAMPS),
        isolation_level=values.get(_ISOLATION_LEVEL),
        log_retention=_interval(values, _LOG_RETENTION, default.log_retention),
        num_indexed_columns=_number_of_columns(values, default.num_indexed_columns),
        requested_features=frozenset(_family(values, _FEATURE_PREFIX)),
        stats_as_json=values.get(_STATS_AS_JSON, "").lower() != "false" or not stats_as_struct,
        stats_as_struct=stats_as_struct,
        stats_columns=tuple(stats_columns.split(",")) if stats_columns else None,
    )


def _is_on(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "").lower() == "true"


def _count(text: str) -> int | None:
    return int(text) if _is_count(text) else None


def _family(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): values[key] for key in sorted(values) if key.startswith(prefix)}


def _enabled_features(values: Mapping[str, str]) -> set[str]:
    features = {feature for key, feature in _FEATURE_SWITCHES.items() if _is_on(values, key)}
    if _family(values, CONSTRAINT_PREFIX):
        features.add("checkConstraints")
    if values.get(_COLUMN_MAPPING, "none") != "none":
        features.add("columnMapping")
    if values.get(_CHECKPOINT_POLICY) == "v2":
        features.add("v2Checkpoint")
    return features


def _interval(values: Mapping[str, str], key: str, default: timedelta) -> timedelta:
    try:
        return parse_interval(values[key]) if key in values else default
    except ValueError as error:
        _log.warning("table property %s: %s; using %s", key, error, default)
        return default


def _number_of_columns(values: Mapping[str, str], default: int) -> int:
    try:
        return int(values.get(_NUM_INDEXED_COLUMNS, default))
    except ValueError:
        given = values[_NUM_INDEXED_COLUMNS]
        _log.warning("table property %s: %r is not a number; using %s", _NUM_INDEXED_COLUMNS, given, default)
        return default


def parse_interval(text: str) -> timedelta:
    """Return the duration of a table property; raise ValueError if the text is not an interval."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total, end = timedelta(), 0
    for match in _INTERVAL_PART.finditer(rest):
        if match.start() != end:
            break
        try:
            total = min(total + timedelta(**{f"{match[2].lower()}s": int(match[1])}), _LONGEST)
        except OverflowError:
            total = _LONGEST
        end = match.end()
    if not end or rest[end:].strip():
        raise ValueError(f"{text!r} is not an interval such as 'interval 30 days'")
    return total


# --- Properties that a table is created with


def constraint_key(name: str) -> str:
    """Return the property that holds the CHECK constraint of a name."""
    return CONSTRAINT_PREFIX + name.lower()


def without_requested_features(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties to store: `delta.feature.<name>` changes the protocol and is not stored."""
    return {key: value for key, value in configuration.items() if not key.startswith(_FEATURE_PREFIX)}


def canonical_properties(table: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties under Delta's spelling of their names.

    Raises:
        ValidationError: A `delta.*` property is unknown, has a value that readers would fail on or misread, or is
            given twice.
    """
    canonical: dict[str, str] = {}
    for given, value in properties.items():
        key = _canonical_name(table, given)
        allowed = _ALLOWED.get(key)
        if allowed is not None and not allowed[1](value):
            raise ValidationError(f"table {table}: {key} must be {allowed[0]}, got {value!r}", table=table, value=value)
        if key in canonical:
            raise ValidationError(f"table {table}: property {key} is given twice", table=table, value=given)
        canonical[key] = value
    return canonical


def _canonical_name(table: str, key: str) -> str:
    lower = key.lower()
    if not lower.startswith("delta."):
        return key
    for prefix in (CONSTRAINT_PREFIX, _FEATURE_PREFIX):
        if lower.startswith(prefix):
            return prefix + key[len(prefix) :]
    if lower in _NAMES:
        return _NAMES[lower]
    raise ValidationError(f"table {table}: unknown property {key} ({_hint(lower)})", table=table, value=key)


def _hint(key: str) -> str:
    if key in _VERSIONS:
        return "the protocol follows from the features in use; delta.feature.<name>='supported' adds a feature"
    close = closest_name(key, _NAMES.values())
    return f'did you mean "{close}"?' if close else 'custom properties must not start with "delta."'


def _is_switch(text: str) -> bool:
    return text.lower() in ("true", "false")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) > 0


def _is_number_of_columns(text: str) -> bool:
    return text == "-1" or (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS)


def _is_interval(text: str) -> bool:
    try:
        parse_interval(text)
    except ValueError:
        return False
    return True


_SWITCHES = (*_FEATURE_SWITCHES, _EXPIRED_LOG_CLEANUP, _STATS_AS_JSON, _STATS_AS_STRUCT)
_INTERVALS = (_DELETED_FILE_RETENTION, _LOG_RETENTION, "delta.setTransactionRetentionDuration")
_ALLOWED: dict[str, tuple[str, Callable[[str], bool]]] = {
    **dict.fromkeys(_SWITCHES, ("'true' or 'false'", _is_switch)),
    **dict.fromkeys(_INTERVALS, ("a duration such as 'interval 30 days'", _is_interval)),
    _CHECKPOINT_INTERVAL: ("a number of versions from 1", _is_count),
    _NUM_INDEXED_COLUMNS: ("a number of columns, or -1 for all", _is_number_of_columns),
}
_VERSIONS = ("delta.minreaderversion", "delta.minwriterversion")
_OTHER_NAMES = (
    _CHECKPOINT_POLICY,
    _CODEC,
    _COLUMN_MAPPING,
    _ISOLATION_LEVEL,
    _STATS_COLUMNS,
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.partSize",
    "delta.checkpointRetentionDuration",
    "delta.columnMapping.maxColumnId",
    "delta.compatibility.symlinkFormatManifest.enabled",
    "delta.dataSkippingStringPrefixLength",
    "delta.dropFeatureTruncateHistory.retentionDuration",
    "delta.enableFullRetentionRollback",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
    "delta.parquet.format.version",
    "delta.randomPrefixLength",
    "delta.randomizeFilePrefixes",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.sampleRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
    "delta.universalFormat.enabledFormats",
)
_NAMES = {key.lower(): key for key in (*_ALLOWED, *_OTHER_NAMES)}
"""All names that Delta's protocol and its engines know, by their names in lower case."""
