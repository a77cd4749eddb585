"""Tables that are older than the retention of their log."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg

import deltasql

_DAYS = 40


def age(lake: deltasql.Lake, table: deltasql.Table, schema: str = "deltasql") -> None:
    """Have all versions of a table, and the files of its log, be as if they were committed long ago."""
    log, key = Path(table.location) / "_delta_log", table.state().table_key
    with psycopg.connect(lake.dsn, autocommit=True, options=f"-csearch_path={schema}") as connection:
        there = list(log.glob("*.json"))
        for path in there:
            path.unlink()
        connection.execute(
            "update dl_table_versions set committed_at = committed_at - make_interval(days => %s) where table_key = %s",
            [_DAYS, key],
        )
        connection.execute(
            "update dl_mirror_status set status = 'PENDING' where table_key = %s and version = any(%s)",
            [key, [int(path.stem) for path in there]],
        )
    report = lake.mirror._reconcile(lake.mirror._find(table.name), look_ahead=False)
    assert report.error is None
    then = time.time() - _DAYS * 86400
    for path in log.iterdir():
        os.utime(path, (then, then))
