"""`in_order` runs tasks in threads ahead of the consumer: results and errors in order, bounded, and stopped on close."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.engines.arrow.read.prefetch import Task, in_order
from tests.effort import rounds


def task(*results: int, pause: float = 0) -> Task[int]:
    def run() -> Iterator[int]:
        for result in results:
            time.sleep(pause)
            yield result

    return run


def one(_: int) -> int:
    return 1


@settings(deadline=None, max_examples=rounds(200))
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=5), max_size=12),
    st.integers(1, 5),
    st.sampled_from([0, 1, 7, float("inf")]),
)
def test_all_results_in_order(lists: list[list[int]], threads: int, room: float) -> None:
    found = list(in_order((task(*each) for each in lists), lambda n: n, threads=threads, room=room))
    assert found == [n for each in lists for n in each]


def test_tasks_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=20)

    def run() -> Iterator[int]:
        barrier.wait()
        yield 1

    assert list(in_order([run] * 3, one, threads=3, room=9)) == [1, 1, 1]


def test_no_more_tasks_than_the_limit() -> None:
    made = 0

    def run() -> Iterator[int]:
        nonlocal made
        for _ in range(50):
            made += 1
            yield 1

    results = in_order([run] * 4, one, threads=1, room=5)
    for taken in range(1, 101):
        next(results)
        time.sleep(0.001)
        assert made <= taken + 5 + 2
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_comes_after_the_results_before_it(threads: int) -> None:
    def fail() -> Iterator[int]:
        yield 3
        raise KeyError("x")

    results = in_order([task(1, 2, pause=0.01), fail, task(4)], one, threads=threads, room=9)
    assert [next(results) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(KeyError, match="x"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_an_error_in_making_tasks_is_raised() -> None:
    def tasks() -> Iterator[Task[int]]:
        yield task(1)
        raise KeyError("made")

    results = in_order(tasks(), one, threads=2, room=9)
    assert next(results) == 1
    with pytest.raises(KeyError, match="made"):
        next(results)


def test_threads_end_when_the_consumer_stops() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    results = in_order([endless], one, threads=1, room=3)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    assert closed.wait(20)


def test_nothing_starts_before_the_first_request() -> None:
    begun = threading.Event()

    def run() -> Iterator[int]:
        begun.set()
        yield 1

    results = in_order([run], one, threads=2, room=3)
    assert not begun.wait(0.05)
    assert list(results) == [1]
