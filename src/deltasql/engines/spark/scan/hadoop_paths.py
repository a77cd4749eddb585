"""Convert the paths of data files to Hadoop paths, and to the URIs that Spark reports for them."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from deltasql.errors import ValidationError
from deltasql.storage import is_local, local_path

# java.net.URI does not encode these in a path, nor characters beyond ASCII except spaces and controls.
_PLAIN = frozenset(string.ascii_letters + string.digits + "/_-!.~'()*,;:$&+=@")
_LAST_ASCII = 127
_ENCODED = ("Zs", "Zl", "Zp", "Cc")
_PATTERN = re.compile(r"[\\{}\[\]*?]")
# Hadoop registers these stores under another scheme.
_SCHEMES = {"s3": "s3a"}


def hadoop_root(location: str) -> str:
    """Return a table's location as a Hadoop path, which has a scheme and no percent-encoding."""
    if is_local(location):
        return f"file:{local_path(location)}"
    scheme, _, rest = location.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{_SCHEMES.get(scheme, scheme)}://{authority}{slash}{unquote(path)}".rstrip("/")


def hadoop_paths(location: str, paths: Iterable[str]) -> list[str]:
    """Return paths of the log as Hadoop paths."""
    root = hadoop_root(location)
    return [f"{root}/{unquote(path)}" for path in paths]


def escaped(path: str) -> str:
    """Escape the glob characters of a Hadoop path. Spark Connect drops the option that turns globbing off, and Hadoop
    fails on a colon in a glob."""
    return _PATTERN.sub(r"\\\g<0>", path)


def hadoop_uri(path: str) -> str:
    """Return the value of `_metadata.file_path` for a file: its Hadoop path as java.net.URI encodes it."""
    scheme, colon, rest = path.partition(":")
    return scheme + colon + "".join(map(_encoded, rest))


def _encoded(character: str) -> str:
    if character in _PLAIN or (ord(character) > _LAST_ASCII and unicodedata.category(character) not in _ENCODED):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode())


def check_names(paths: Iterable[str], table: str) -> None:
    """Raise ValidationError for files that Spark takes for temporary ones and silently reads as empty."""
    for path in paths:
        name = unquote(path).rpartition("/")[2]
        if name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"):
            raise ValidationError(
                f"table {table}: Spark skips the file {path!r}: its name must not begin with '_' or '.', nor end with "
                f"'._COPYING_'. Rename it, and replace it in the table",
                table=table,
                value=path,
            )
