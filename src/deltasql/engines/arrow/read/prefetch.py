"""Work done by threads ahead of one consumer, who gets the results in order.

What waits for the consumer is bounded by its size, not by its number, so memory is bounded however large the pieces
are. The threads are daemons, since a process must be able to end while a consumer is in the middle of its results; but
they are stopped before the interpreter goes, which would tear them out of the middle of native code.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Task = Callable[[], Iterator[T]]

_LANES_PER_THREAD = 4
_LAST_WAIT = 30.0


def in_order(tasks: Iterable[Task[T]], size: Callable[[T], int], *, threads: int, room: float) -> Iterator[T]:
    """The results of all tasks, those of the first task first; at most about `room` of them wait."""
    line = _Line(iter(tasks), size, room, threads * _LANES_PER_THREAD)
    try:
        line.start(threads)
        while (lane := line.first()) is not None:
            while results := line.next(lane):
                yield from results
            if lane.error is not None:
                raise lane.error
            line.leave(lane)
    finally:
        line.stop()


class _Lane(Generic[T]):
    """The results of one task that nobody has taken yet, with their sizes."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.results: deque[tuple[T, int]] = deque()
        self.error = error
        self.done = error is not None


class _Line(Generic[T]):
    """The lanes of the tasks that have begun, in order; every field is guarded by the condition."""

    def __init__(self, tasks: Iterator[Task[T]], size: Callable[[T], int], room: float, lanes: int) -> None:
        self._tasks, self._size, self._room, self._most = tasks, size, room, lanes
        self._lanes: deque[_Lane[T]] = deque()
        self._held = 0
        self._ended = self._stopped = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        _open.add(self)

    # --- the consumer's side

    def start(self, threads: int) -> None:
        """Begin to work."""
        for number in range(threads):
            thread = threading.Thread(target=self._work, name=f"deltasql-read-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def first(self) -> _Lane[T] | None:
        """The lane whose turn it is; None if all are done."""
        with self._changed:
            while not self._lanes and not self._ended:
                self._wait()
            return self._lanes[0] if self._lanes else None

    def next(self, lane: _Lane[T]) -> list[T]:
        """The next result, once there is one; none if the task is done."""
        with self._changed:
            while not lane.results and not lane.done:
                self._wait()
            if not lane.results:
                return []
            result, size = lane.results.popleft()
            self._held -= size
            self._changed.notify_all()
            return [result]

    def _wait(self) -> None:
        if self._stopped:
            raise RuntimeError("the interpreter ends while rows are read")
        self._changed.wait()

    def leave(self, lane: _Lane[T]) -> None:
        """A lane is done: the next one's turn."""
        with self._changed:
            self._lanes.remove(lane)
            self._changed.notify_all()

    def stop(self) -> None:
        """Nobody wants more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the threads to notice."""
        for thread in self._threads:
            thread.join(_LAST_WAIT)

    # --- the threads' side

    def _work(self) -> None:
        """Do one task after the other until there are no more."""
        while (begun := self._begin()) is not None:
            task, lane = begun
            try:
                for result in task():
                    if not self._put(lane, result):
                        return
            except BaseException as error:
                lane.error = error  # the consumer's to raise
            with self._changed:
                lane.done = True
                self._changed.notify_all()

    def _begin(self) -> tuple[Task[T], _Lane[T]] | None:
        with self._changed:
            while len(self._lanes) >= self._most and not self._stopped:
                self._changed.wait()
            if self._stopped or self._ended:
                return None
            self._changed.notify_all()
            try:
                task = next(self._tasks, None)
            except BaseException as error:
                self._lanes.append(_Lane(error))
                task = None
            if task is None:
                self._ended = True
                return None
            lane: _Lane[T] = _Lane()
            self._lanes.append(lane)
            return task, lane

    def _put(self, lane: _Lane[T], result: T) -> bool:
        size = self._size(result)
        with self._changed:
            while not self._stopped and self._held + size > self._room and not self._awaited(lane):
                self._changed.wait()
            if self._stopped:
                return False
            lane.results.append((result, size))
            self._held += size
            self._changed.notify_all()
            return True

    def _awaited(self, lane: _Lane[T]) -> bool:
        """Does the consumer wait for this lane? Then one result gets through, or nothing would ever move."""
        return lane is self._lanes[0] and not lane.results


_open: weakref.WeakSet[_Line[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    lines = list(_open)
    for line in lines:
        line.stop()
    for line in lines:
        line.join()
