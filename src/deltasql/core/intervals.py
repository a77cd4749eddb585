"""Delta's durations: `interval 30 days`, `interval 1 week`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import timedelta

_log = logging.getLogger(__name__)
_PART = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)


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
