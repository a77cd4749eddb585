"""What the processes of Spark's share: how to open the lake, and which files a task reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from deltasql.engines.arrow.read.scan import scan, split_into_tasks
from deltasql.lake import Lake, connect
from deltasql.store import Snapshot


@dataclass(frozen=True, slots=True)
class LakeAddress:
    """How a process of Spark's opens the lake."""

    url: str | None
    config: Mapping[str, Any]
    storage_options: Mapping[str, str]

    @contextmanager
    def open(self) -> Iterator[Lake]:
        with connect(self.url, config=self.config, storage_options=self.storage_options) as lake:
            yield lake


class FilesPartition(InputPartition):
    """Some files of a snapshot, for one task."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(None)
        self.snapshot = snapshot


def read_files(partition: InputPartition, options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task's files."""
    if not isinstance(partition, FilesPartition):
        raise TypeError(f"{type(partition).__name__} is not a partition of this source")
    return iter(scan(partition.snapshot, options).batches())


def tasks_of(snapshot: Snapshot) -> list[FilesPartition]:
    """A snapshot's files, some for each task."""
    return [FilesPartition(task) for task in split_into_tasks(snapshot)]
