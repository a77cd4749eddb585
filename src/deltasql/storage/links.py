"""Symbolic links below a local location: those that lead out of it are not followed."""

from __future__ import annotations

import os
from collections.abc import Iterable

from deltasql.storage.object_store import is_local, local_path


class LinkGuard:
    """Tells which paths below a directory lead out of it through a symbolic link."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._root = os.path.realpath(directory)
        self._inside: dict[str, bool] = {"": True}

    def leads_out(self, path: str, *, is_folder: bool = False) -> bool:
        """Return whether a path leads out; folders are looked at once. `is_folder` ignores what the last part is."""
        folder, _, name = path.rpartition("/")
        if not self._is_inside(folder):
            return True
        whole = os.path.join(self._root, folder, name)
        return not is_folder and os.path.islink(whole) and not self._holds(os.path.realpath(whole))

    def _is_inside(self, folder: str) -> bool:
        known = self._inside.get(folder)
        if known is None:
            known = self._inside[folder] = self._holds(os.path.realpath(os.path.join(self._root, folder)))
        return known

    def _holds(self, real: str) -> bool:
        return real == self._root or real.startswith(self._root.rstrip("/") + "/")


def first_link_out(location: str, paths: Iterable[str]) -> str | None:
    """Return the first of some paths that leads out of a local location through a symbolic link, None if none does."""
    if not is_local(location):
        return None
    guard = LinkGuard(local_path(location))
    return next((path for path in paths if guard.leads_out(path)), None)
