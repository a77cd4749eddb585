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
    allowed = [root.strip() for root in roots.split(",") if root.strip()]
    if not allowed or any(_is_below(path, root) for root in allowed):
        return
    raise UsageError(f"{path} is outside of storage.allowed_roots ({', '.join(allowed)})", value=path)


def _is_below(path: str, root: str) -> bool:
    place, top = _normal(path), _normal(root)
    return place == top or place.startswith(f"{top.rstrip('/')}/")


def _normal(path: str) -> str:
    """Return a location without symbolic links and `..`, so that texts can be compared."""
    if is_local(path):
        return os.path.realpath(local_path(path))
    scheme, _, rest = path.partition("://")
    return f"{scheme.replace('s3a', 's3')}://{os.path.normpath(rest)}"
