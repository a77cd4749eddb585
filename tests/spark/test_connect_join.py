"""Reading and planning on Spark Connect, with the files' partition values from a join."""

from __future__ import annotations

import pytest

from tests.spark.conftest import ON_CONNECT
from tests.spark.connect import run_on_connect


@pytest.mark.long
@pytest.mark.timeout(1700)
@pytest.mark.skipif(ON_CONNECT, reason="runs on Spark Connect already")
def test_rows_are_the_same_on_connect() -> None:
    run_on_connect("join", "test_reading.py", "test_planning.py")
