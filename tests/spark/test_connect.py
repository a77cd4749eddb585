"""Everything that is read, once more through Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.local_spark import java_obstacle

_NEEDS = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos", "zstandard": ""}
_TESTS = ("test_reading.py", "test_planning.py", "test_changing.py")


def _obstacle() -> str | None:
    missing = [package or module for module, package in _NEEDS.items() if not _is_there(module)]
    if missing:
        return f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'"
    return java_obstacle()


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.timeout(1700)
@pytest.mark.skipif(os.environ.get("TEST_SPARK_CONNECT") == "1", reason="is running")
def test_all_of_it() -> None:
    """In a process of its own: it has one kind of session or the other."""
    obstacle = _obstacle()
    if obstacle:
        pytest.skip(obstacle)
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(str(here / name) for name in _TESTS)]
    environment = {**os.environ, "TEST_SPARK_CONNECT": "1"}
    done = subprocess.run(
        command, cwd=here.parents[1], env=environment, capture_output=True, text=True, timeout=1600, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
