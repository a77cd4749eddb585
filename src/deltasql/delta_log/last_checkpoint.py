"""`_last_checkpoint`: the hint which checkpoint readers start from. It must name an existing checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

_UNRESERVED = "-._~"
_OTHER_CHECKPOINT_KINDS = {"parts", "v2Checkpoint"}


def encode_hint(version: int, size: int, size_in_bytes: int, num_adds: int) -> bytes:
    """Return the content of the hint, with its checksum."""
    fields = {"version": version, "size": size, "sizeInBytes": size_in_bytes, "numOfAddFiles": num_adds}
    return msgspec.json.encode(fields | {"checksum": checksum(fields)})


def decode_hint(data: bytes | None) -> int | None:
    """Return the version that a hint names, None if the hint is invalid or names another kind of checkpoint than the
    classic one."""
    try:
        fields = msgspec.json.decode(data or b"")
        version = fields["version"]
        given = fields.get("checksum")
        is_classic = not fields.keys() & _OTHER_CHECKPOINT_KINDS
        is_valid = type(version) is int and (given is None or given == checksum(fields))
    except (msgspec.DecodeError, UnicodeError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return version if is_classic and is_valid and 0 <= version < 2**63 else None


def checksum(fields: dict[str, Any]) -> str:
    """Return the MD5 of all fields except the checksum, in the canonical form of the Delta protocol."""
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
