"""Helpers for tests that look at a table's published log."""

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


def stage(lake: deltasql.Lake, table: deltasql.Table, *given: Any, **options: Any) -> int:
    with lake.begin(**options) as tx:
        tx.stage(table, given or [add()])
    return next(iter(tx.versions.values()))


def state_of(lake: deltasql.Lake, table: deltasql.Table) -> deltasql.MirrorStatus:
    return next(s for s in lake.mirror.status() if s.table == table.name)


class hanging:
    """Block the publishing of a table until `set` is called."""

    def __init__(self, table: deltasql.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_work, self._goes_on = threading.Event(), threading.Event()
        original = Directory.put_if_absent

        def slow(directory: Directory, path: str, data: bytes) -> bool:
            if directory.location == table.location:
                self.at_work.set()
                assert self._goes_on.wait(60)
            return original(directory, path, data)

        monkeypatch.setattr(Directory, "put_if_absent", slow)

    def set(self) -> None:
        self._goes_on.set()

    def __enter__(self) -> hanging:
        return self

    def __exit__(self, *_: object) -> None:
        self.set()
