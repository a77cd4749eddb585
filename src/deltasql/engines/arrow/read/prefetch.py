"""Run tasks in threads ahead of one consumer, which receives the results in order.

The size of the results that wait for the consumer is bounded, and so is memory. The threads are daemons, because a
process must be able to exit while a consumer is in the middle of its results; they are stopped before the interpreter
shuts down, which would interrupt native code.
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
_JOIN_SECONDS = 30.0


def in_order(tasks: Iterable[Task[T]], size: Callable[[T], int], *, threads: int, room: float) -> Iterator[T]:
    """Yield the results of all tasks in the order of the tasks; results of at most about the size `room` wait."""
    pipeline = _Pipeline(iter(tasks), size, room, threads * _LANES_PER_THREAD)
    try:
        pipeline.start(threads)
        while (lane := pipeline.first()) is not None:
            while results := pipeline.next(lane):
                yield from results
            if lane.error is not None:
                raise lane.error
            pipeline.leave(lane)
    finally:
        pipeline.stop()


class _Lane(Generic[T]):
    """The results of one task that the consumer has not taken yet, with their sizes."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.results: deque[tuple[T, int]] = deque()
        self.error = error
        self.done = error is not None


class _Pipeline(Generic[T]):
    """The lanes of started tasks, in order; every field is guarded by the condition."""

    def __init__(self, tasks: Iterator[Task[T]], size: Callable[[T], int], room: float, lanes: int) -> None:
        self._tasks, self._size, self._room, self._max_lanes = tasks, size, room, lanes
        self._lanes: deque[_Lane[T]] = deque()
        self._held = 0
        self._ended = self._stopped = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        _open.add(self)

    # --- the consumer's side

    def start(self, threads: int) -> None:
        """Start the threads."""
        for number in range(threads):
            thread = threading.Thread(target=self._work, name=f"deltasql-read-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def first(self) -> _Lane[T] | None:
        """Return the lane to consume next; None if all tasks are done."""
        with self._changed:
            while not self._lanes and not self._ended:
                self._wait()
            return self._lanes[0] if self._lanes else None

    def next(self, lane: _Lane[T]) -> list[T]:
        """Wait for the next result, and return it in a list; the list is empty if the task is done."""
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
            raise RuntimeError("the interpreter is shutting down while rows are read")
        self._changed.wait()

    def leave(self, lane: _Lane[T]) -> None:
        """Remove a lane that is done."""
        with self._changed:
            self._lanes.remove(lane)
            self._changed.notify_all()

    def stop(self) -> None:
        """Tell the threads to stop."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the threads to end."""
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    # --- the threads' side

    def _work(self) -> None:
        """Run tasks until none is left."""
        while (started := self._next_task()) is not None:
            task, lane = started
            try:
                for result in task():
                    if not self._put(lane, result):
                        return
            except BaseException as error:
                lane.error = error  # raised by the consumer
            with self._changed:
                lane.done = True
                self._changed.notify_all()

    def _next_task(self) -> tuple[Task[T], _Lane[T]] | None:
        with self._changed:
            while len(self._lanes) >= self._max_lanes and not self._stopped:
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
            while not self._stopped and self._held + size > self._room and not self._is_awaited(lane):
                self._changed.wait()
            if self._stopped:
                return False
            lane.results.append((result, size))
            self._held += size
            self._changed.notify_all()
            return True

    def _is_awaited(self, lane: _Lane[T]) -> bool:
        """Return whether the consumer waits for this lane, so that one result must pass to prevent a deadlock."""
        return lane is self._lanes[0] and not lane.results


_open: weakref.WeakSet[_Pipeline[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    pipelines = list(_open)
    for pipeline in pipelines:
        pipeline.stop()
    for pipeline in pipelines:
        pipeline.join()
