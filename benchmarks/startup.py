"""Start-up: what importing deltasql, a command and the first read of a process cost."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

import deltasql
from benchmarks.measure import Result, at_most, in_turns

SUITE = "startup"
ROUNDS = 11
TABLE = "bench.small"
LIBRARIES = "psycopg, pyarrow, obstore, msgspec"
FIRST_READ = """
import statistics, sys, time
import deltasql

def read():
    began = time.perf_counter()
    table.arrow()
    return (time.perf_counter() - began) * 1000

with deltasql.connect(sys.argv[1]) as lake:
    table = lake.table(sys.argv[2])
    print(read(), statistics.median(read() for _ in range(50)))
"""


def run(lake: deltasql.Lake) -> list[Result]:
    """Return all measurements of this suite."""
    table = lake.create_table(TABLE, "id BIGINT NOT NULL, name STRING")
    table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    with tempfile.TemporaryDirectory() as compiled:
        python = partial(_python, _environment(Path(compiled)))
        spent = in_turns(
            ROUNDS,
            libraries=lambda: python("-c", f"import {LIBRARIES}"),
            package=lambda: python("-c", "import deltasql"),
            connect=lambda: python("-c", "from deltasql import connect"),
            help=lambda: python("-m", "deltasql.cli", "--help"),
            tables=lambda: python("-m", "deltasql.cli", "--url", lake.dsn, "tables"),
        )
        first, later = _reads(lambda: python("-c", FIRST_READ, lake.dsn, TABLE))
    beside = f"beside `import {LIBRARIES}`"
    return [
        at_most(SUITE, f"import deltasql, {beside}", spent["package"], spent["libraries"], 1.5),
        at_most(SUITE, f"from deltasql import connect, {beside}", spent["connect"], spent["libraries"], 2.0),
        at_most(SUITE, f"deltasql --help, {beside}", spent["help"], spent["libraries"], 2.0),
        at_most(SUITE, f"deltasql tables, {beside}", spent["tables"], spent["libraries"], 2.0),
        at_most(SUITE, "first read of a small table in a process, beside a later one", first, later, 5.0),
    ]


def _environment(compiled: Path) -> dict[str, str]:
    """Return an environment in which every module is compiled once, as in an installed package."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = [str(Path(deltasql.__file__).parent.parent), kept.get("PYTHONPATH", "")]
    return {**kept, "PYTHONPYCACHEPREFIX": str(compiled), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _python(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def _reads(process: Callable[[], str]) -> tuple[float, float]:
    """Return the medians of the first and of later reads over several processes."""
    process()
    pairs = [tuple(map(float, process().split())) for _ in range(ROUNDS)]
    first, later = (statistics.median(values) for values in zip(*pairs, strict=True))
    return first, later
