"""Paths of data files, and the partition values that their directories name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# Java's URI class leaves these as they are; ':' is left out because at the start it would end a scheme.
_PATH_SAFE = "/=!$&'()*+,;@~"
_LONGEST_SEGMENT = 255
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_\-./=]*")


def encode_path(path: str) -> str:
    """A path on disk as `add.path` wants it: URI-encoded."""
    return path if _PLAIN_PATH.fullmatch(path) else quote(path, safe=_PATH_SAFE)


def hive_values(path: str) -> dict[str, str | None]:
    """The partition values in the directories of a path on disk, such as `day=2026-01-01/part-0.parquet`."""
    pairs = [segment.split("=", 1) for segment in path.split("/")[:-1] if "=" in segment]
    return {unquote(key): None if value in ("", _HIVE_NULL) else unquote(value) for key, value in pairs}


def hive_directory(values: Mapping[str, str | None]) -> str:
    """A directory for files with these partition values, with a slash at its end: plain ASCII, and never too long for a
    file system. What the values are is for the log to say; where they do not fit, the directory says nothing."""
    segments = [f"{quote(k, safe='')}={_HIVE_NULL if v is None else quote(v, safe='')}" for k, v in values.items()]
    if any(len(segment) > _LONGEST_SEGMENT for segment in segments):
        return f"{hashlib.blake2b('/'.join(segments).encode(), digest_size=16).hexdigest()}/"
    return "".join(f"{segment}/" for segment in segments)


_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def _integer(bits: int) -> Callable[[str], str]:
    def text(value: str) -> str:
        if not _INTEGER.fullmatch(value) or not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
            raise ValueError(value)
        return str(int(value))

    return text


def _number(parse: Callable[[str], Any]) -> Callable[[str], str]:
    def text(value: str) -> str:
        # Python reads 1_000 and spaces around a number, Delta readers do not.
        if "_" in value or value != value.strip():
            raise ValueError(value)
        parse(value)
        return value

    return text


def _boolean(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower()


def _date(value: str) -> str:
    if not _DATE.fullmatch(value):
        raise ValueError(value)
    return date.fromisoformat(value).isoformat()


def _timestamp(value: str) -> str:
    match = _TIMESTAMP.fullmatch(value)
    if not match:
        raise ValueError(value)
    datetime.fromisoformat(match[1])
    return value


_TEXTS: Mapping[str, Callable[[str], str]] = {
    "byte": _integer(8),
    "short": _integer(16),
    "integer": _integer(32),
    "long": _integer(64),
    "float": _number(float),
    "double": _number(float),
    "decimal": _number(Decimal),
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
}


def partition_text(kind: str, value: str) -> str | None:
    """The text that Delta keeps for a value of this type; None if it is no such value."""
    try:
        return _TEXTS.get(kind.partition("(")[0], str)(value)
    except (ValueError, ArithmeticError):
        return None
