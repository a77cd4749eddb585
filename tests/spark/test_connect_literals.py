"""Reading and changing rows, and in long runs planning, on Spark Connect, with the files' partition values as literals."""

from __future__ import annotations

import pytest

from tests.effort import LONG
from tests.spark.conftest import ON_CONNECT
from tests.spark.connect import run_on_connect

SHORT_RUN = ("TestPartitions",)
"""The classes of test_reading.py in a short run."""


@pytest.mark.timeout(1700)
@pytest.mark.skipif(ON_CONNECT, reason="runs on Spark Connect already")
def test_rows_are_the_same_on_connect() -> None:
    reading = ["test_reading.py", "test_planning.py"] if LONG else [f"test_reading.py::{name}" for name in SHORT_RUN]
    run_on_connect("literals", "test_changing.py", "test_held_rows.py", *reading)
