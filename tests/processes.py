"""Start processes from a fork server that has already imported deltasql, which takes milliseconds."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import deltasql

_context = multiprocessing.get_context("forkserver")
# Modules that the processes would otherwise import one by one; pyarrow imports pandas when it converts Python values.
_context.set_forkserver_preload(
    ["deltasql.lake.lake", "deltasql.protocol.schema_ddl", "adbc_driver_postgresql.dbapi", "pandas", "tests.factories"]
)


def run_all(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], seconds: float = 600) -> list[Any]:
    """Run a function in one process per argument tuple, all started at once, and return the results in order."""
    start = _context.Event()
    pipes, processes = [], []
    for args in arguments:
        receiver, sender = _context.Pipe(duplex=False)
        process = _context.Process(target=_run, args=(sender, start, function, args))
        process.start()
        sender.close()
        pipes.append(receiver)
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
    """Run a function in a separate process and return the process."""
    process = _context.Process(target=function, args=args)
    process.start()
    return process
