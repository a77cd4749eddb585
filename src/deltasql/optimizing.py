"""Compaction: the same rows in fewer files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from deltasql.config import size
from deltasql.core.actions import Add, CommitInfo, Protocol, Remove
from deltasql.core.changes import TableState
from deltasql.data.compaction import bins, rewrite
from deltasql.data.files import FilePlan, count_rows
from deltasql.data.marking import live_rows
from deltasql.errors import StorageError, UnsupportedFeature, UsageError
from deltasql.progress import Report, counted, showing
from deltasql.store import Snapshot
from deltasql.store.reader import parse_where
from deltasql.transaction import MultiTableTransaction
from deltasql.writing import TableWriter, metadata_of, removal_of

if TYPE_CHECKING:
    from deltasql.spark.types import SparkSession

OPTIMIZE = "OPTIMIZE"
_HERE_BYTES = 512 << 20
"""What is written anew in this process; more is Spark's work."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is asked of a compaction."""

    where: str | None = None
    """Only files that may hold such rows."""
    zorder_by: Sequence[str] | None = None
    target_size: int | str | None = None

    def target(self, table: str, usual: int) -> int:
        """How large files should become; what cannot be done is refused."""
        if self.zorder_by:
            raise UnsupportedFeature(
                f"table {table}: this release of deltasql does not order rows by several columns (zorder_by): leave it "
                f"out to compact files as they are",
                table=table,
            )
        try:
            return usual if self.target_size is None else size(self.target_size)
        except ValueError as error:
            text = f"table {table}: target_size is {error}, got {self.target_size!r}"
            raise UsageError(text, table=table, value=self.target_size) from None


class Compactor:
    """Compacts the tables of a store."""

    def __init__(self, writer: TableWriter, options: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self._writer = writer
        self._options = options
        self._spark = spark

    def compact(self, txn: MultiTableTransaction, state: TableState, asked: Compaction) -> dict[str, str]:
        """Write the files anew, and stage what commits them; what was done, nothing if there is nothing to do."""
        began = time.monotonic()
        state = txn.seen(state)
        metadata = metadata_of(state)
        config = self._writer.config_of(metadata)
        target = asked.target(state.name, config["writer.target_file_size"])
        files = txn.files(state, parse_where(asked.where, state))
        groups = bins(files, target, config["optimize.deleted_share"])
        if not groups:
            return {}
        snapshot = Snapshot(
            state.table_id, state.name, state.version, metadata, state.protocol or Protocol(), files, state.location
        )
        parts = [replace(snapshot, files=files.take(pa.array(places, pa.int64()))) for places in groups]
        plan = replace(self._writer.begin(txn, state, metadata), target_size=target)
        with showing(config["progress"], f"optimize {state.name}") as report:
            adds = self._rewrite(parts, plan, report)
        gone = pa.concat_tables([part.files for part in parts])
        _check_rows(gone, adds, state.name)
        removes = [msgspec.structs.replace(remove, data_change=False) for remove in removal_of(gone)]
        metrics = _metrics(removes, adds, (time.monotonic() - began) * 1000)
        shown = json.dumps([] if asked.where is None else [asked.where], ensure_ascii=False)
        info = CommitInfo(OPTIMIZE, {"predicate": shown, "zOrderBy": "[]"}, metrics)
        txn.stage_on(state, [*adds, *removes, info], written=[add.path for add in adds])
        return metrics

    def _rewrite(self, parts: Sequence[Snapshot], plan: FilePlan, report: Report | None) -> list[Add]:
        if sum(sum(part.files["size"].to_pylist()) for part in parts) > _HERE_BYTES:
            from deltasql.spark.compaction import rewrite_by_spark

            return rewrite_by_spark(self._spark(), parts, plan, report)
        adds: list[Add] = []
        with ThreadPoolExecutor(min(len(parts), pa.cpu_count()), "deltasql-optimize") as pool:
            for done, found in enumerate(pool.map(lambda part: rewrite(part, self._options, plan), parts), 1):
                adds += found
                if report is not None:
                    report(f"{counted(len(adds))} of {done} groups", done, len(parts))
        return adds


def _check_rows(gone: pa.Table, adds: Sequence[Add], table: str) -> None:
    """What is committed here is believed to change nothing: so it is counted."""
    before = live_rows(gone)
    known = [count for count in before if count is not None]
    if len(known) == len(before) and sum(known) != count_rows(adds):
        raise StorageError(
            f"table {table}: files that have {sum(known)} rows by the log had {count_rows(adds)} when they were read: "
            f"nothing was changed"
        )


def _metrics(removes: Sequence[Remove], adds: Sequence[Add], milliseconds: float) -> dict[str, str]:
    """As Delta's own Spark writes them."""
    sizes = sorted(add.size for add in adds)
    found = {
        "numRemovedFiles": len(removes),
        "numAddedFiles": len(adds),
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": sum(remove.deletion_vector is not None for remove in removes),
        "minFileSize": sizes[0] if sizes else 0,
        "p50FileSize": sizes[len(sizes) // 2] if sizes else 0,
        "maxFileSize": sizes[-1] if sizes else 0,
        "executionTimeMs": int(milliseconds),
    }
    return {key: str(value) for key, value in found.items()}
