"""Reading and changing rows, and in long runs planning, on Spark Connect, with the files' partition values as literals."""

from __future__ import annotations

import pytest

from tests.effort import LONG
from tests.spark.conftest import ON_CONNECT
from tests.spark.connect import run_on_connect


@pytest.mark.timeout(1700)
@pytest.mark.skipif(ON_CONNECT, reason="runs on Spark Connect already")
def test_rows_are_the_same_on_connect() -> None:
    planning = ["test_planning.py"] if LONG else []
    run_on_connect("literals", "test_reading.py", "test_changing.py", *planning)
