"""Show the progress of operations that take longer than a second, on a terminal or as lines of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

AUTO, ON, OFF = "auto", "on", "off"
DELAY = 1.0
LINE_INTERVAL = 10.0

Report = Callable[[str, int, int | None], None]
"""Called with a text, the amount done and the total, if known: `report("3 files", 3, None)`."""


@contextmanager
def show_progress(mode: str, title: str) -> Iterator[Report | None]:
    """Yield the function to report progress to; None if progress is not shown.

    Args:
        mode: `auto` for terminals only, `on` or `off`.
        title: The operation, as shown before the progress.
    """
    stream = sys.stderr
    if mode == OFF or (mode == AUTO and not _is_terminal(stream)):
        yield None
        return
    display = _Bar(title, stream) if _is_terminal(stream) or _is_notebook() else _Lines(title, stream)
    try:
        yield display.report
    finally:
        display.close()


def count_files(files: int) -> str:
    """Return a number of files as text."""
    return f"{files:,} file" if files == 1 else f"{files:,} files"


class _Bar:
    """A progress bar that disappears at the end. Short operations never show it."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._start = time.monotonic()
        self._shown: Progress | None = None
        self._task: Any = None

    def report(self, text: str, done: int, total: int | None) -> None:
        if self._shown is None:
            if time.monotonic() - self._start < DELAY:
                return
            self._show()
        if self._shown is not None:
            self._shown.update(self._task, completed=done, total=total, text=text)

    def _show(self) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        console = Console(file=None if _is_notebook() else self._stream)
        self._shown = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task = self._shown.add_task(escape(self._title), total=None, text="")
        self._shown.start()

    def close(self) -> None:
        if self._shown is not None:
            self._shown.stop()


class _Lines:
    """A line of text at intervals, for output that is no terminal."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._next = time.monotonic() + DELAY
        self._last: str | None = None

    def report(self, text: str, done: int, total: int | None) -> None:
        share = f" ({done / total:.0%})" if total else ""
        self._last = f"{self._title}: {text}{share}"
        if time.monotonic() >= self._next:
            self._print()

    def _print(self) -> None:
        if self._last is not None:
            print(self._last, file=self._stream, flush=True)
        self._next, self._last = time.monotonic() + LINE_INTERVAL, None

    def close(self) -> None:
        self._print()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _is_notebook() -> bool:
    """Return whether the process is a Jupyter kernel."""
    return "ipykernel" in sys.modules
