"""Delta's own table properties: what they switch on, and which values they can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deltasql.core.intervals import parse_interval
from deltasql.errors import ValidationError

CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
DELETION_VECTORS = "delta.enableDeletionVectors"
FENCE = "delta.deltasql.fence"
"""Its writer feature nobody else knows: other engines read the table and refuse to write it."""
IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Is a switch on? Spark does not mind the case of `true`."""
    return configuration.get(key, "").lower() == "true"


def check_properties(table: str, properties: Mapping[str, str]) -> None:
    """Refuse values that Delta's own properties cannot have: readers would fail on them, or take them for others."""
    for key, value in properties.items():
        allowed = _ALLOWED.get(key.lower())
        if allowed is not None and not allowed[1](value):
            raise ValidationError(f"table {table}: {key} is {allowed[0]}, got {value!r}", table=table, value=value)


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
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.enableExpiredLogCleanup",
    CHANGE_DATA_FEED,
    DELETION_VECTORS,
    FENCE,
    IN_COMMIT_TIMESTAMPS,
)
_INTERVALS = (
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
    "delta.setTransactionRetentionDuration",
)
_ALLOWED: dict[str, tuple[str, Callable[[str], bool]]] = {
    **{key.lower(): ("'true' or 'false'", _is_switch) for key in _SWITCHES},
    **{key.lower(): ("a duration such as 'interval 30 days'", _is_interval) for key in _INTERVALS},
    "delta.checkpointinterval": ("a number of versions from 1", _is_count),
    "delta.dataskippingnumindexedcols": ("a number of columns, or -1 for all", _is_number_of_columns),
}
