"""Work done by threads ahead of one consumer, who gets the results in order.

What waits for the consumer is bounded by its size, not by its number, so memory is bounded however large the pieces
are. Threads, not a pool: a process must be able to end while a consumer is in the middle of its results, and a pool is
waited for before anything could tell its threads to stop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Task = Callable[[], Iterator[T]]

_LOOK_UP = 1.0  # seconds between looks at whether anybody still waits
_LANES_PER_THREAD = 4


def in_order(tasks: Iterable[Task[T]], size: Callable[[T], int], *, threads: int, room: float) -> Iterator[T]:
    """The results of all tasks, those of the first task first; at most about `room` of them wait."""
    line = _Line(iter(tasks), size, room, threads * _LANES_PER_THREAD)
    try:
        for number in range(threads):
            threading.Thread(target=line.work, name=f"deltasql-read-{number}").start()
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

    def __init__(self) -> None:
        self.results: deque[tuple[T, int]] = deque()
        self.done = False
        self.error: BaseException | None = None


class _Line(Generic[T]):
    """The lanes of the tasks that have begun, in order; every field is guarded by the condition."""

    def __init__(self, tasks: Iterator[Task[T]], size: Callable[[T], int], room: float, lanes: int) -> None:
        self._tasks, self._size, self._room, self._most = tasks, size, room, lanes
        self._lanes: deque[_Lane[T]] = deque()
        self._held = 0
        self._ended = self._stopped = False
        self._changed = threading.Condition()

    # --- the consumer's side

    def first(self) -> _Lane[T] | None:
        """The lane whose turn it is."""
        with self._changed:
            while not self._lanes and not self._ended:
                self._changed.wait()
            return self._lanes[0] if self._lanes else None

    def next(self, lane: _Lane[T]) -> list[T]:
        """The next result, once there is one; none if the task is done."""
        with self._changed:
            while not lane.results and not lane.done:
                self._changed.wait()
            if not lane.results:
                return []
            result, size = lane.results.popleft()
            self._held -= size
            self._changed.notify_all()
            return [result]

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

    # --- the threads' side

    def work(self) -> None:
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
            while len(self._lanes) >= self._most and not self._gone():
                self._changed.wait(_LOOK_UP)
            task = None if self._ended or self._gone() else next(self._tasks, None)
            if task is None:
                self._ended = True
                self._changed.notify_all()
                return None
            lane: _Lane[T] = _Lane()
            self._lanes.append(lane)
            self._changed.notify_all()
            return task, lane

    def _put(self, lane: _Lane[T], result: T) -> bool:
        size = self._size(result)
        with self._changed:
            while not self._gone() and self._held + size > self._room and not self._next_to_go(lane):
                self._changed.wait(_LOOK_UP)
            if self._gone():
                return False
            lane.results.append((result, size))
            self._held += size
            self._changed.notify_all()
            return True

    def _next_to_go(self, lane: _Lane[T]) -> bool:
        """Does the consumer wait for this lane? Then one result gets through, or nothing would ever move."""
        return lane is self._lanes[0] and not lane.results

    def _gone(self) -> bool:
        """Is there nobody to work for? A process that ends waits for its threads before it closes any iterator."""
        return self._stopped or not threading.main_thread().is_alive()
