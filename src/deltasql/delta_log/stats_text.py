"""Statistics that a checkpoint has only as a struct, as the JSON text of a commit file."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(decimal_format="number")


def stats_text(stats: Mapping[str, Any]) -> str:
    """Return the JSON text of statistics. Values that JSON cannot express, such as bytes, are left out: statistics are
    optional."""
    return _encoder.encode(_json(stats)).decode()


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        fields = {name: _json(inner) for name, inner in value.items()}
        return {name: inner for name, inner in fields.items() if inner is not None}
    if isinstance(value, dt.datetime):
        return _time(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if isinstance(value, bytes) else value


def _time(value: dt.datetime) -> str:
    """Return a time in milliseconds, or in microseconds if it has them."""
    precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=precision)
    return f"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec=precision)}Z"
