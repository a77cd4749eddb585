"""Real processes for tests: a fork server that has imported deltasql already, so that each costs milliseconds."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import deltasql

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["deltasql", "tests.factories"])


def run_all(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], seconds: float = 600) -> list[Any]:
    """Run a function in a process per argument tuple, all let go at once; their results in order."""
    start = _context.Event()
    pipes, processes = [], []
    for args in arguments:
        ours, theirs = _context.Pipe(duplex=False)
        process = _context.Process(target=_run, args=(theirs, start, function, args))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    start.set()
    results = [_receive(pipe, seconds) for pipe in pipes]
    for process in processes:
        process.join(10)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _receive(pipe: Connection, seconds: float) -> Any:
    assert pipe.poll(seconds), "a process did not answer in time"
    return pipe.recv()


def _run(pipe: Connection, start: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    start.wait()
    try:
        pipe.send(function(*args))
    except deltasql.DeltaSqlError as error:
        pipe.send(error)
    except BaseException:
        pipe.send(AssertionError(traceback.format_exc()))


def spawn(function: Callable[..., Any], *args: Any) -> Any:
    """Start a function in a process of its own and return the process."""
    process = _context.Process(target=function, args=args)
    process.start()
    return process
