"""Make the files of a log older than the log retention."""

from __future__ import annotations

import os
from pathlib import Path

import deltasql


def age(table: deltasql.Table) -> None:
    """Set the modification time of all log files to 1970."""
    for path in (Path(table.location) / "_delta_log").iterdir():
        os.utime(path, (0, 0))


def clean(lake: deltasql.Lake, table: deltasql.Table) -> None:
    """Clean up a log to its last checkpoint, as after a checkpoint."""
    age(table)
    lake.mirror._checkpoints._clean(lake.mirror._find(table.name))
