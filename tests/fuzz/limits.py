"""What every rejected input must keep: the class and the text of the error, the limits, and the tables."""

from __future__ import annotations

import pickle
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltasql
from deltasql import DeltaSqlError

_MOST_SECONDS = 10.0
_MOST_KILOBYTES = 1 << 20
_LONGEST_TEXT = 10_000


class Outcome:
    """The error of an input that was rejected, or None."""

    error: DeltaSqlError | None = None


@contextmanager
def only_own_errors(seconds: float = _MOST_SECONDS) -> Iterator[Outcome]:
    """Fail for other errors than DeltaSqlError, and for an input that takes too much processor time or memory.

    The time is that of this process, so that a busy machine fails no test.
    """
    outcome, limit = Outcome(), sys.getrecursionlimit()
    began, before = time.process_time(), _peak()
    try:
        yield outcome
    except DeltaSqlError as error:
        outcome.error = error
    assert time.process_time() - began < seconds
    assert _peak() - before < _MOST_KILOBYTES
    assert sys.getrecursionlimit() == limit
    if outcome.error is not None:
        _check_text(outcome.error)


def _check_text(error: DeltaSqlError) -> None:
    text = str(error)
    assert text.strip(), type(error)
    assert len(text) < _LONGEST_TEXT, f"an error has {len(text)} characters: {text[:500]}"
    text.encode()  # the command line prints it
    assert str(pickle.loads(pickle.dumps(error))) == text


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def trace(table: deltasql.Table) -> dict[str, Any]:
    """Return everything that a change of a table leaves: its version, history, live files, and files on disk.

    Checkpoints are left out, because they are written in the background.
    """
    root = Path(table.location)
    disk = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return {
        "version": table.version,
        "history": [(entry.version, entry.operation) for entry in table.history()],
        "files": sorted(table.files()["path"].to_pylist()),
        "disk": sorted(path for path in disk if "checkpoint" not in path),
    }
