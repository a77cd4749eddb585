"""What the options of reads say."""

from __future__ import annotations

from collections.abc import Mapping

from deltasql.errors import UsageError

_MOMENTS = {"startingtimestamp": "startingVersion", "endingtimestamp": "endingVersion"}


def reads_changes(given: Mapping[str, str]) -> bool:
    """Are changes asked for, not rows? Names of options are in lower case."""
    return any(given.get(name, "false").lower() == "true" for name in ("readchangefeed", "readchangedata"))


def refuse_moments(table: str, given: Mapping[str, str]) -> None:
    """Changes are asked for by versions."""
    for name, instead in _MOMENTS.items():
        if name in given:
            raise UsageError(
                f"table {table}: this release of deltasql takes no {instead.replace('Version', 'Timestamp')}: give "
                f"{instead}, as the table's history tells it",
                table=table,
                value=given[name],
            )
