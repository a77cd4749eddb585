"""Delta's own table properties: what they switch on, and which values they can have."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import timedelta

from deltasql.errors import ValidationError, closest_name

_log = logging.getLogger(__name__)
_PART = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)

CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
DELETION_VECTORS = "delta.enableDeletionVectors"
FENCE = "delta.deltasql.fence"
"""Its writer feature nobody else knows: other engines read the table and refuse to write it."""
IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
STATS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Is a switch on? Spark does not mind the case of `true`."""
    return configuration.get(key, "").lower() == "true"


def stats_as_struct(configuration: Mapping[str, str]) -> bool:
    """Do checkpoints have statistics in their own types?"""
    return is_on(configuration, STATS_AS_STRUCT)


def stats_as_json(configuration: Mapping[str, str]) -> bool:
    """Do checkpoints have statistics as text? They have them in one form at least."""
    return configuration.get(STATS_AS_JSON, "true").lower() != "false" or not stats_as_struct(configuration)


def canonical_properties(table: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Properties under the names that Delta has for them, whatever their case. Names under `delta.` that there are not
    are refused, and so are values that a property cannot have: readers would fail on them, or take them for others."""
    found: dict[str, str] = {}
    for given, value in properties.items():
        key = _canonical(table, given)
        allowed = _ALLOWED.get(key)
        if allowed is not None and not allowed[1](value):
            raise ValidationError(f"table {table}: {key} is {allowed[0]}, got {value!r}", table=table, value=value)
        if key in found:
            raise ValidationError(f"table {table}: the property {key} is given twice", table=table, value=given)
        found[key] = value
    return found


def _canonical(table: str, key: str) -> str:
    lower = key.lower()
    if not lower.startswith("delta."):
        return key
    for prefix in _FAMILIES:
        if lower.startswith(prefix.lower()):
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
    return text.isascii() and text.isdigit() and int(text) > 0


def _is_number_of_columns(text: str) -> bool:
    return text == "-1" or (text.isascii() and text.isdigit())


def _is_interval(text: str) -> bool:
    try:
        parse_interval(text)
    except ValueError:
        return False
    return True


_SWITCHES = (
    "delta.appendOnly",
    STATS_AS_JSON,
    STATS_AS_STRUCT,
    "delta.enableExpiredLogCleanup",
    CHANGE_DATA_FEED,
    DELETION_VECTORS,
    FENCE,
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    IN_COMMIT_TIMESTAMPS,
    "delta.enableRowTracking",
    "delta.enableTypeWidening",
    "delta.enableVariantShredding",
)
_INTERVALS = (
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
    "delta.setTransactionRetentionDuration",
)
_ALLOWED: dict[str, tuple[str, Callable[[str], bool]]] = {
    **dict.fromkeys(_SWITCHES, ("'true' or 'false'", _is_switch)),
    **dict.fromkeys(_INTERVALS, ("a duration such as 'interval 30 days'", _is_interval)),
    "delta.checkpointInterval": ("a number of versions from 1", _is_count),
    "delta.dataSkippingNumIndexedCols": ("a number of columns, or -1 for all", _is_number_of_columns),
}
_VERSIONS = ("delta.minreaderversion", "delta.minwriterversion")
_FAMILIES = ("delta.constraints.", "delta.feature.")
_OTHERS = (
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.partSize",
    "delta.checkpointPolicy",
    "delta.checkpointRetentionDuration",
    "delta.columnMapping.maxColumnId",
    "delta.columnMapping.mode",
    "delta.compatibility.symlinkFormatManifest.enabled",
    "delta.dataSkippingStatsColumns",
    "delta.dataSkippingStringPrefixLength",
    "delta.dropFeatureTruncateHistory.retentionDuration",
    "delta.enableFullRetentionRollback",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
    "delta.isolationLevel",
    "delta.parquet.compression.codec",
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
_NAMES = {key.lower(): key for key in (*_ALLOWED, *_OTHERS)}
"""All that Delta's protocol and its engines know, by their names in small letters."""


def parse_interval(text: str) -> timedelta:
    """The duration of a table property; ValueError if it is none."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total, end = timedelta(), 0
    for match in _PART.finditer(rest):
        if match.start() != end:
            break
        total += timedelta(**{f"{match[2].lower()}s": int(match[1])})
        end = match.end()
    if not end or rest[end:].strip():
        raise ValueError(f"{text!r} is no interval such as 'interval 30 days'")
    return total


def property_interval(properties: Mapping[str, str], key: str, default: timedelta) -> timedelta:
    """A duration among a table's properties."""
    try:
        return parse_interval(properties[key]) if key in properties else default
    except ValueError:
        _log.warning("%s = %r is no interval: %s is used", key, properties[key], default)
        return default
