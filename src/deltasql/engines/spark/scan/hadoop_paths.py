"""Data files as Spark addresses them: Hadoop's paths, and the URIs that it shows for them."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from deltasql.errors import ValidationError
from deltasql.storage import is_local, local_path

# What java.net.URI leaves as it is in a path: these, and all beyond ASCII but spaces and controls.
_PLAIN = frozenset(string.ascii_letters + string.digits + "/_-!.~'()*,;:$&+=@")
_LAST_ASCII = 127
_ENCODED = ("Zs", "Zl", "Zp", "Cc")
_PATTERN = re.compile(r"[\\{}\[\]*?]")
# Hadoop's own names for what object stores are called elsewhere.
_SCHEMES = {"s3": "s3a"}


def hadoop_root(location: str) -> str:
    """A table's location as a Hadoop path: nothing in it is encoded, and it names its file system."""
    if is_local(location):
        return f"file:{local_path(location)}"
    scheme, _, rest = location.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{_SCHEMES.get(scheme, scheme)}://{authority}{slash}{unquote(path)}".rstrip("/")


def hadoop_paths(location: str, paths: Iterable[str]) -> list[str]:
    """The files of a log as Hadoop paths."""
    root = hadoop_root(location)
    return [f"{root}/{unquote(path)}" for path in paths]


def escaped(path: str) -> str:
    """A Hadoop path that is no pattern, whatever characters it has: Spark Connect does not pass on the option that
    says so. (A colon in what it takes for a pattern is an error of Hadoop's.)"""
    return _PATTERN.sub(r"\\\g<0>", path)


def hadoop_uri(path: str) -> str:
    """What `_metadata.file_path` says of a file: the Hadoop path as java.net.URI encodes it."""
    scheme, colon, rest = path.partition(":")
    return scheme + colon + "".join(map(_encoded, rest))


def _encoded(character: str) -> str:
    if character in _PLAIN or (ord(character) > _LAST_ASCII and unicodedata.category(character) not in _ENCODED):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode())


def check_names(paths: Iterable[str], table: str) -> None:
    """Refuse files that Spark takes for temporary ones: it reads them as empty, without a word."""
    for path in paths:
        name = unquote(path).rpartition("/")[2]
        if name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"):
            raise ValidationError(
                f"table {table}: Spark skips the file {path!r}: its name must not begin with '_' or '.', nor end with "
                f"'._COPYING_'. Rename it, and replace it in the table",
                table=table,
                value=path,
            )
