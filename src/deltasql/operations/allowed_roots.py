"""Locations and files that the configuration allows."""

from __future__ import annotations

import os

from deltasql.errors import UsageError
from deltasql.storage import is_local, local_path


def check_allowed(path: str, roots: str) -> None:
    """Raise `UsageError` for a location or a file outside of all allowed roots.

    Args:
        path: A path or a URL.
        roots: The value of `storage.allowed_roots`; if it is empty, everything is allowed.
    """
    allowed = _parsed(roots)
    if not allowed or any(_is_below(path, root) for root in allowed):
        return
    raise UsageError(
        f"{path} is outside of storage.allowed_roots ({', '.join(allowed)}): use a path below one of them, or add it",
        value=path,
    )


def check_allowed_files(path: str, roots: str) -> None:
    """Raise `UsageError` for files outside of all allowed roots, or for a pattern, which could match a link that leads
    out.

    Args:
        path: A path or a URL, in which Spark resolves patterns.
        roots: The value of `storage.allowed_roots`; if it is empty, everything is allowed.
    """
    check_allowed(path, roots)
    if _parsed(roots) and any(character in path for character in "*?[{"):
        raise UsageError(
            f"{path} is a pattern, which storage.allowed_roots does not allow: name a file or a directory", value=path
        )


def _parsed(roots: str) -> list[str]:
    return [root.strip() for root in roots.split(",") if root.strip()]


def _is_below(path: str, root: str) -> bool:
    place, top = _normal(path), _normal(root)
    return place == top or place.startswith(f"{top.rstrip('/')}/")


def _normal(path: str) -> str:
    """Return a location without symbolic links and `..`, so that texts can be compared."""
    if is_local(path):
        return os.path.realpath(local_path(path))
    scheme, _, rest = path.partition("://")
    return f"{scheme.replace('s3a', 's3')}://{os.path.normpath(rest)}"
