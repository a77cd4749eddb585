"""Logs that are older than their tables want to keep them."""

from __future__ import annotations

import os
from pathlib import Path

import deltasql


def age(table: deltasql.Table) -> None:
    """Have all files of a log be as if they were written long ago."""
    for path in (Path(table.location) / "_delta_log").iterdir():
        os.utime(path, (0, 0))


def clean(lake: deltasql.Lake, table: deltasql.Table) -> None:
    """Clean a log up to its last checkpoint, as is done after a checkpoint when that is old enough."""
    age(table)
    lake.mirror._checkpoints._clean(lake.mirror._find(table.name))
