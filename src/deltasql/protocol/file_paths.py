"""Paths of data files: their encoding, their Hive-style partition directories, and which paths are legal."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.errors import ValidationError
from deltasql.protocol.actions import CHANGE_DATA_FOLDER

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# Java's URI class leaves these as they are; ':' is left out because at the start it would end a scheme.
_PATH_SAFE = "/=!$&'()*+,;@~"
_LONGEST_SEGMENT = 255
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_\-./=]*")
_MAX_PATH = 4096
# Absolute paths; control characters and backslashes; empty, "." and ".." segments; names that Spark skips because
# they begin with "_" or "." (but a partition directory such as "_p=1" is read) or end with "._COPYING_".
_ESCAPING = r"^/|[\x00-\x1f\x7f\\]|^$|//|/$|(?:^|/)\.{1,2}(?:/|$)|(?:^|/)[_.][^=/]*(?:/|$)|\._COPYING_$"
_ILLEGAL_DECODED = re.compile(_ESCAPING)
_ILLEGAL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*:|" + _ESCAPING)
_OUTSIDE = re.compile(r"^/|^[A-Za-z][A-Za-z0-9+.\-]*:|(?:^|[/\\])\.\.(?:[/\\]|$)")
# A path reduced to what its legality depends on: separators, leading dots and underscores, remarkable characters.
_SHAPE = bytes(range(256)).translate(
    bytes.maketrans(
        b"/._\\%:" + bytes([*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0x100)]),
        b"\n..!!!" + b"!" * (0x1F + 0x81),
    )
)


def encode_path(path: str) -> str:
    """Return a path on disk as `add.path` holds it: URI-encoded."""
    return path if _PLAIN_PATH.fullmatch(path) else quote(path, safe=_PATH_SAFE)


def hive_values(path: str) -> dict[str, str | None]:
    """Return the partition values in the directories of a path on disk, such as `day=2026-01-01/part-0.parquet`."""
    pairs = [segment.split("=", 1) for segment in path.split("/")[:-1] if "=" in segment]
    return {unquote(key): None if value in ("", _HIVE_NULL) else unquote(value) for key, value in pairs}


def hive_directory(values: Mapping[str, str | None]) -> str:
    """Return the directory, with a trailing slash, for files with these partition values.

    The directory is plain ASCII. Readers take partition values from the log, so values that are too long for a file
    system are replaced by a hash.
    """
    segments = [f"{quote(k, safe='')}={_HIVE_NULL if v is None else quote(v, safe='')}" for k, v in values.items()]
    if any(len(segment) > _LONGEST_SEGMENT for segment in segments):
        return f"{hashlib.blake2b('/'.join(segments).encode(), digest_size=16).hexdigest()}/"
    return "".join(f"{segment}/" for segment in segments)


# --- Legal paths


def check_paths(paths: Sequence[str], table: str, *, change_data: bool = False) -> None:
    """Raise ValidationError for the first path that is illegal. Legal paths are recognised all at once."""
    if paths and (change_data or _any_suspicious(paths)):
        for path in paths:
            check_path(path, table, change_data=change_data)


def _any_suspicious(paths: Sequence[str]) -> bool:
    text = b"\n" + "\n".join(paths).encode("utf-8", "surrogatepass") + b"\n"
    shape = text.translate(_SHAPE)
    return (
        b"!" in shape
        or b"\n\n" in shape
        or b"\n." in shape
        or text.count(b"\n") != len(paths) + 1
        or max(map(len, paths)) > _MAX_PATH
    )


def check_path(path: str, table: str, *, change_data: bool = False) -> None:
    """Raise ValidationError if a path, encoded or decoded, does not name a file below the table's root."""
    if change_data and not path.startswith(CHANGE_DATA_FOLDER):
        raise _illegal(table, f"the path of a cdc file must begin with {CHANGE_DATA_FOLDER!r}, got {path!r}", path)
    below = path.removeprefix(CHANGE_DATA_FOLDER) if change_data else path
    if len(path) > _MAX_PATH:
        problem = f"path {path[:80]!r}… has {len(path)} characters, the maximum is {_MAX_PATH}"
        raise _illegal(table, problem, path)
    check_unicode(path, table)
    if _ILLEGAL.search(below) or _ILLEGAL_DECODED.search(unquote(below)):
        problem = (
            f"illegal path {path!r}: a path is relative to the table's root and URI-encoded, without '..', control "
            f"characters, backslashes, empty segments or names that begin with '_' or '.' or end with '._COPYING_'"
        )
        raise _illegal(table, problem, path)


def check_read_paths(paths: pa.ChunkedArray, table: str) -> None:
    """Raise ValidationError if a path that was read from the log leads out of the table, whoever wrote it there."""
    doubtful = pc.starts_with(paths, "/")
    for sign in ("..", ":", "%2e", "%2f", "\\"):
        doubtful = pc.or_(doubtful, pc.match_substring(paths, sign, ignore_case=sign.startswith("%")))
    for path in paths.filter(doubtful).to_pylist() if pc.any(doubtful).as_py() else ():
        if _OUTSIDE.search(path) or _OUTSIDE.search(unquote(path)):
            raise _illegal(table, f"the log names a file outside of the table, which is not read: {path!r}", path)


def check_unicode(text: str, table: str) -> None:
    """Raise ValidationError if a text cannot be encoded, because it holds half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _illegal(table, f"{text!r} is not valid Unicode", text) from None


def _illegal(table: str, problem: str, value: str) -> ValidationError:
    return ValidationError(f"table {table}: {problem}", table=table, value=value)
