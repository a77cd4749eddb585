"""`_last_checkpoint`: where readers start. A hint, but one that must never name a checkpoint that is not there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

_UNRESERVED = "-._~"
_OTHER_FORMS = {"parts", "v2Checkpoint"}


def encode_hint(version: int, size: int, size_in_bytes: int, num_adds: int) -> bytes:
    """The content of the hint, with its checksum."""
    fields = {"version": version, "size": size, "sizeInBytes": size_in_bytes, "numOfAddFiles": num_adds}
    return msgspec.json.encode(fields | {"checksum": checksum(fields)})


def decode_hint(data: bytes | None) -> int | None:
    """The version that a hint names; None if it says nothing that can be trusted, or names a checkpoint of another
    form than ours."""
    try:
        fields = msgspec.json.decode(data or b"")
        version = fields["version"]
        given = fields.get("checksum")
        if fields.keys() & _OTHER_FORMS:
            return None
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return None
    if type(version) is not int or (given is not None and given != checksum(fields)):
        return None
    return version


def checksum(fields: dict[str, Any]) -> str:
    """MD5 of all fields but the checksum itself, in the canonical form that the protocol gives."""
    leaves = sorted(_leaves("", {key: value for key, value in fields.items() if key != "checksum"}))
    return hashlib.md5(",".join(leaves).encode(), usedforsecurity=False).hexdigest()


def _leaves(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(_join(path, _text(key)), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(_join(path, str(number)), inner)
    else:
        text = _text(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield f"{path}={text}"


def _join(path: str, segment: str) -> str:
    return f"{path}+{segment}" if path else segment


def _text(value: str) -> str:
    return f'"{quote(value, safe=_UNRESERVED)}"'
