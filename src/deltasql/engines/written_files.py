"""The files that a transaction writes, so that they can be deleted if it does not commit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from deltasql.storage import Directory


class WrittenFiles:
    """The files of one transaction below one table's location.

    A writer in this process adds every path before it opens the file. Files of Spark tasks are known only once the job
    has returned; if a job fails, the location is searched for names that carry the transaction's token.
    """

    def __init__(self, location: str, options: Mapping[str, str], token: str, *, new_location: bool = False) -> None:
        self.location = location
        self._options = options
        self._token = token
        self._new_location = new_location
        self._paths: set[str] = set()
        self._folders: set[str] = set()
        self._complete = True

    def add(self, *paths: str) -> None:
        """Record paths below the location, as they are on disk."""
        self._paths.update(paths)

    def add_folder(self, path: str) -> None:
        """Record a folder that only this transaction writes to."""
        self._folders.add(path)

    @contextmanager
    def by_tasks(self) -> Iterator[None]:
        """Surround a Spark job whose tasks write files. If the job fails, nobody knows which files exist."""
        try:
            yield
        except BaseException:
            self._complete = False
            raise

    def discard(self, keep: Collection[str]) -> None:
        """Delete the files that were written, except those to keep.

        Files are compared by name without folder: names are unique, and stores may spell folders differently.
        """
        names = {_name(path) for path in keep}
        if self._complete and not self._folders and not self._new_location and names >= set(map(_name, self._paths)):
            return
        directory = Directory(self.location, self._options)
        directory.delete(sorted(path for path in self._all(directory) if _name(path) not in names))
        for folder in self._folders:
            directory.remove_empty_folders(folder)
        if self._new_location and not keep:
            directory.remove_empty_folders("")

    def _all(self, directory: Directory) -> set[str]:
        found = set(self._paths)
        for folder in self._folders:
            found.update(entry.path for entry in directory.list(folder))
        if not self._complete:
            found.update(entry.path for entry in directory.list() if self._token in entry.path)
        return found


def _name(path: str) -> str:
    return path.rpartition("/")[2]
