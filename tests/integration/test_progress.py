"""Long writes show progress on a terminal, and print nothing to a pipe unless `progress` is on."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import deltasql
from tests.local_spark import java, java_obstacle

ARROW = """
import sys, time
import pyarrow as pa
import deltasql

def rows():
    for number in range(8):
        time.sleep(float(sys.argv[1]))
        yield pa.RecordBatch.from_pydict({"id": pa.array([number] * 1000, pa.int64())})

with deltasql.connect() as lake:
    t = lake.create_table("sales", "id long", location="sales")
    t.append(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), rows()))
    print(t.arrow().num_rows)
"""

SPARK = """
import sys, time
import deltasql

seconds = float(sys.argv[1])

def slow(batches):
    for batch in batches:
        time.sleep(seconds)
        yield batch

with deltasql.connect() as lake:
    t = lake.create_table("sales", "id long", location="sales")
    t.append(lake.spark.range(0, 4000, numPartitions=8).mapInArrow(slow, "id long"))
    print(t.arrow().num_rows)
"""

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a script with a terminal or a pipe as stderr, and return its stdout and stderr."""

    def run(script: str, *, terminal: bool, seconds: float, progress: str | None = None) -> tuple[str, str]:
        environment = {**os.environ, **java(), "TERM": "xterm", "COLUMNS": "120"}
        if progress:
            environment["DELTASQL_PROGRESS"] = progress
        command = [sys.executable, "-c", script, str(seconds)]
        reader, stderr = pty.openpty() if terminal else os.pipe()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, cwd=tmp_path) as child:
            os.close(stderr)
            shown = _all_of(reader)
            stdout = child.stdout.read().decode() if child.stdout else ""
        assert child.returncode == 0, shown
        return stdout, shown

    return run


def _all_of(descriptor: int) -> str:
    chunks = []
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while chunk := _read(stream.fileno()):
            chunks.append(chunk)
    return b"".join(chunks).decode(errors="replace")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # a terminal raises this error when the other end is closed
        return b""


def test_a_long_write_shows_rows_and_files_on_a_terminal(run: Run) -> None:
    stdout, shown = run(ARROW, terminal=True, seconds=0.3)
    assert stdout == "8000\n"
    assert "writing public.sales" in shown
    assert "8,000 rows, 1 file" in shown


def test_a_short_write_shows_nothing(run: Run) -> None:
    short = ARROW.replace("import deltasql\n", "import deltasql.progress\ndeltasql.progress.DELAY = 600\n")
    stdout, shown = run(short, terminal=True, seconds=0)
    assert (stdout, shown) == ("8000\n", "")


def test_a_pipe_stays_silent(run: Run) -> None:
    stdout, shown = run(ARROW, terminal=False, seconds=0.3)
    assert (stdout, shown) == ("8000\n", "")


def test_off_is_silent_on_a_terminal(run: Run) -> None:
    stdout, shown = run(ARROW, terminal=True, seconds=0.3, progress="off")
    assert (stdout, shown) == ("8000\n", "")


def test_a_pipe_gets_plain_lines_with_progress_on(run: Run) -> None:
    stdout, shown = run(ARROW, terminal=False, seconds=0.3, progress="on")
    assert stdout == "8000\n"
    assert shown.splitlines()[-1] == "writing public.sales: 8,000 rows, 1 file"
    assert "\x1b" not in shown


@pytest.mark.long
def test_spark_shows_stages_and_tasks_on_a_terminal(run: Run) -> None:
    if obstacle := java_obstacle():
        pytest.skip(obstacle)
    stdout, shown = run(SPARK, terminal=True, seconds=1)
    assert stdout == "4000\n"
    assert "stage 1 of 1" in shown
    assert " of 8 tasks" in shown


def test_the_setting_has_three_values() -> None:
    with pytest.raises(deltasql.UsageError, match=r"progress must be auto, on or off, got 'loud'"):
        deltasql.connect(config={"progress": "loud"})
