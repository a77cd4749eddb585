"""Run test files of this directory on Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.local_spark import java_obstacle

_NEEDS = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos", "zstandard": ""}


def run_on_connect(scan_kind: str, *names: str) -> None:
    """Run test files in a separate process, because a process has either classic or Connect sessions.

    Args:
        scan_kind: How Spark reads the tables: "literals" or "join".
        names: The names of the test files.
    """
    if obstacle := _obstacle():
        pytest.skip(obstacle)
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(str(here / name) for name in names)]
    environment = {**os.environ, "TEST_SPARK_CONNECT": scan_kind}
    done = subprocess.run(
        command, cwd=here.parents[1], env=environment, capture_output=True, text=True, timeout=1600, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


def _obstacle() -> str | None:
    missing = [package or module for module, package in _NEEDS.items() if not _is_installed(module)]
    if missing:
        return f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'"
    return java_obstacle()


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
