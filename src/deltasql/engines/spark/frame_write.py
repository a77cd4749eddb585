"""Writing a Spark DataFrame as files of a table.

Files of an unpartitioned table on a local disk are written by Spark itself, into a directory of the write's own. All
others are written by Arrow in Spark's Python workers, which name their files and hand back the list of those that
belong to successful attempts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from deltasql.engines.arrow.write.align import violation
from deltasql.engines.arrow.write.file_writer import FilePlan, decode_add
from deltasql.engines.arrow.write.parquet_files import adds_from_parquet
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.row_shape import aligned, broken, narrowing, struct_of
from deltasql.engines.spark.worker.write_task import write_batches
from deltasql.errors import UsageError
from deltasql.progress import Report, count_files
from deltasql.protocol.actions import Add
from deltasql.protocol.constraints import Constraint, quoted
from deltasql.protocol.schema import Json, arrow_schema
from deltasql.protocol.schema_fit import Fit
from deltasql.protocol.statistics import num_records
from deltasql.storage import Directory, is_local, local_path

_SHOWN = 3
# Bytes that a value takes in a file, roughly: only to keep a huge task from writing one huge file.
_WIDTHS = {"boolean": 0.1, "byte": 0.5, "short": 1, "integer": 2, "float": 4, "double": 6, "string": 8, "binary": 16}
_USUAL_WIDTH = 4
_NESTED_WIDTH = 32
_TIMESTAMPS, _MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
_MISSING = re.compile("No module named '(deltasql|pyarrow|msgspec|obstore)")


@dataclass(frozen=True, slots=True)
class FrameWrite:
    """One write of a frame to a table."""

    table: str
    plan: FilePlan
    fit: Fit
    rules: Sequence[Constraint]
    report: Report | None = None

    def run(self, frame: DataFrame) -> list[Add]:
        """Write the files and check every row on the way. Nothing is committed here."""
        checks = _Checks(self.table)
        narrowed = checks.watch(frame, narrowing(self.fit, struct_of(frame)))
        shaped = checks.watch(aligned(narrowed, self.fit), self.rules)
        native = self._is_native(frame)
        with report_jobs(frame.sparkSession, self.report):
            folder, adds = (self._write_natively(shaped), []) if native else ("", self._write_by_arrow(shaped))
            checks.raise_broken()
        return self._adds_below(folder) if native else adds

    def _is_native(self, frame: DataFrame) -> bool:
        """Does Spark see the same disk as this process, need it not tell partitions, and does it write timestamps as
        it is told?"""
        if self.plan.partition_columns or not is_local(self.plan.location) or not hasattr(frame, "_jdf"):
            return False
        return _has_no(self.fit.schema, "timestamp") or _takes_timestamp_option(frame.sparkSession)

    def _write_natively(self, frame: DataFrame) -> str:
        plan = self.plan
        folder = f"{plan.folder}w{plan.token}-{uuid4().hex[:12]}"
        (
            frame.write.option(_TIMESTAMPS, _MICROSECONDS)
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .option("compression", plan.codec)
            .option("maxRecordsPerFile", max(1, int(plan.target_size / estimated_row_bytes(self.fit.schema))))
            .parquet(f"{local_path(plan.location)}/{folder}")
        )
        return folder

    def _adds_below(self, folder: str) -> list[Add]:
        plan = self.plan
        directory = Directory(plan.location, plan.options)
        names = [entry.path for entry in directory.list(folder)]
        directory.delete([name for name in names if name.endswith(".crc")])
        paths = sorted(name for name in names if name.endswith(".parquet"))
        if self.report is not None:
            self.report(count_files(len(paths)), len(paths), len(paths))
        directory.keep(paths)
        found = adds_from_parquet(
            f"{local_path(plan.location)}/{plan.folder}".rstrip("/"),
            [path.removeprefix(plan.folder) for path in paths],
            arrow_schema(plan.schema_string),
            num_indexed_cols=plan.properties.num_indexed_columns,
            stats_columns=plan.properties.stats_columns,
        )
        adds = [
            Add(plan.folder + f.path, f.size, f.modification_time, f.partition_values, stats=f.stats) for f in found
        ]
        # A frame without rows is written as a file without rows.
        empty = [add.path for add in adds if num_records(add.stats) == 0]
        directory.delete(empty)
        return [add for add in adds if add.path not in empty]

    def _write_by_arrow(self, frame: DataFrame) -> list[Add]:
        if self.plan.partition_columns:
            # Or each task writes a file of each partition.
            frame = frame.hint("rebalance", *(F.col(quoted(c)) for c in self.plan.partition_columns))
        # mapInArrow looks columns up by their names, and does not quote them: they go by their order.
        plain = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
        # One action: the rows of a second one would be written again.
        with explain_missing_packages():
            rows = plain.mapInArrow(partial(write_batches, self.plan, self.table), "add string").collect()
        return [decode_add(row["add"]) for row in rows]


@contextmanager
def explain_missing_packages() -> Iterator[None]:
    """Say what to do where Spark's workers are another Python."""
    try:
        yield
    except PythonException as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise UsageError(
            f"Spark's Python workers have no {missing[1]}: they run another Python than this process. Install deltasql "
            f"there, or before the session is made: os.environ['PYSPARK_PYTHON'] = {sys.executable!r}"
        ) from error


def _takes_timestamp_option(spark: SparkSession) -> bool:
    """Before 4.2 only a session can be told how timestamps are written, and it is the user's."""
    release = tuple(int(part) for part in spark.version.split(".")[:2])
    return release >= (4, 2) or spark.conf.get(_TIMESTAMPS) == _MICROSECONDS


def _has_no(schema: Any, kind: str) -> bool:
    """Does a type not occur in a schema, in Delta's words, however deep?"""
    if isinstance(schema, dict):
        return all(_has_no(part, kind) for key, part in schema.items() if key not in ("name", "metadata"))
    return all(_has_no(part, kind) for part in schema) if isinstance(schema, list) else schema != kind


def estimated_row_bytes(schema: Json) -> float:
    """Bytes that a row of a schema takes in a file, roughly."""
    kinds = [field["type"] for field in schema["fields"]]
    return sum(_WIDTHS.get(kind, _USUAL_WIDTH) if isinstance(kind, str) else _NESTED_WIDTH for kind in kinds)


class _Checks:
    """Rows are counted as they pass: those that break a rule make the write fail before it is committed."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._watched: list[tuple[DataFrame, Sequence[Constraint], Any]] = []

    def watch(self, frame: DataFrame, rules: Sequence[Constraint]) -> DataFrame:
        if not rules:
            return frame
        observation = Observation()
        self._watched.append((frame, rules, observation))
        return frame.observe(observation, *broken(rules))

    def raise_broken(self) -> None:
        for frame, rules, observation in self._watched:
            counts = observation.get
            for number, rule in enumerate(rules):
                count = counts.get(f"c{number}") or 0
                if count:
                    rows = frame.where(f"NOT coalesce(({rule.sql}), false)").limit(_SHOWN).collect()
                    raise violation(rule.name, self._table, count, [row.asDict() for row in rows])
