"""Jobs in the background that a process waits for when it ends, but not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundJobs:
    """Runs jobs in some threads. The threads are daemons, so a job that hangs does not keep the process alive."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._changed = threading.Condition()
        self._waiting: dict[int, Callable[[], None]] = {}
        self._threads = 0

    def add(self, key: int, job: Callable[[], None]) -> None:
        """Run a job soon, unless one of the same key waits already. While the process ends, it runs at once."""
        with self._changed:
            if key in self._waiting:
                return
            self._waiting[key] = job
            if self._threads == self._width:
                return
            self._threads += 1
        if not threading.main_thread().is_alive():  # Python starts no threads any more
            self._work()
            return
        threading.Thread(target=self._work, name="deltasql-mirror", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                job = self._waiting.pop(next(iter(self._waiting)))
            job()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no job runs or waits, at most some seconds. Return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads, seconds)
