"""The options of reads."""

from __future__ import annotations

from collections.abc import Mapping

from deltasql.errors import UsageError

_TIMESTAMPS = {"startingtimestamp": "startingVersion", "endingtimestamp": "endingVersion"}


def reads_changes(given: Mapping[str, str]) -> bool:
    """Return whether the options ask for the change data feed. Option names are in lower case."""
    return any(given.get(name, "false").lower() == "true" for name in ("readchangefeed", "readchangedata"))


def reject_timestamps(table: str, given: Mapping[str, str]) -> None:
    """Reject options that select changes by timestamp."""
    for name, instead in _TIMESTAMPS.items():
        if name in given:
            raise UsageError(
                f"table {table}: {instead.replace('Version', 'Timestamp')} is not supported by this release: "
                f"use {instead}; `history` shows the versions",
                table=table,
                value=given[name],
            )
