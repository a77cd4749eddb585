"""Paths of data files, and the partition values that their directories name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
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
