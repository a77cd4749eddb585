"""Helpers for tests of a table's published log."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import deltasql
from deltasql.storage import Directory
from tests.factories import add


def log_of(table: deltasql.Table) -> Path:
    return Path(table.location) / "_delta_log"


def commit_file(table: deltasql.Table, version: int) -> Path:
    return log_of(table) / f"{version:020d}.json"


def stage(lake: deltasql.Lake, table: deltasql.Table, *actions: Any, **options: Any) -> int:
    with lake.begin(**options) as tx:
        tx.stage(table, actions or [add()])
    return next(iter(tx.versions.values()))


def state_of(lake: deltasql.Lake, table: deltasql.Table) -> deltasql.MirrorStatus:
    return next(s for s in lake.mirror.status() if s.table == table.name)


class blocked_publisher:
    """Block the publisher of a table until `release` is called."""

    def __init__(self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self._released = threading.Event(), threading.Event()
        original = Directory.put_if_absent

        def slow(directory: Directory, path: str, data: bytes) -> bool:
            if directory.location == table.location:
                self.started.set()
                assert self._released.wait(60)
            return original(directory, path, data)

        monkeypatch.setattr(Directory, "put_if_absent", slow)

    def release(self) -> None:
        self._released.set()

    def __enter__(self) -> blocked_publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
