"""The values that Spark's processes share: how to open the lake, and the files of a task."""

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
    """The arguments with which a Spark process opens the lake."""

    url: str | None
    config: Mapping[str, Any]
    storage_options: Mapping[str, str]

    @contextmanager
    def open(self) -> Iterator[Lake]:
        with connect(self.url, config=self.config, storage_options=self.storage_options) as lake:
            yield lake


class FilesPartition(InputPartition):
    """The files of a snapshot that one task reads."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(None)
        self.snapshot = snapshot


def read_files(partition: InputPartition, options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task's files."""
    if not isinstance(partition, FilesPartition):
        raise TypeError(f"{type(partition).__name__} is not a partition of this source")
    return iter(scan(partition.snapshot, options).batches())


def tasks_of(snapshot: Snapshot) -> list[FilesPartition]:
    """Distribute the files of a snapshot over tasks."""
    return [FilesPartition(task) for task in split_into_tasks(snapshot)]
