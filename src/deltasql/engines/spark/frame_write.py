"""Write a Spark DataFrame to files of a table.

For an unpartitioned table on a local disk, Spark writes the files natively, to a directory that only this write uses.
In all other cases Arrow writes them in Spark's Python workers, which return the files of successful task attempts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from deltasql.engines.arrow.write.align import violation
from deltasql.engines.arrow.write.file_writer import FilePlan, decode_add
from deltasql.engines.arrow.write.parquet_files import adds_from_parquet
from deltasql.engines.spark.job_progress import report_jobs
from deltasql.engines.spark.row_shape import aligned, narrowing, struct_of, violation_counts
from deltasql.engines.spark.sql_text import verbatim
from deltasql.engines.spark.worker.write_task import write_batches
from deltasql.errors import UsageError
from deltasql.progress import Report, count_files
from deltasql.protocol.actions import Add
from deltasql.protocol.constraints import Constraint, quoted
from deltasql.protocol.schema import Json, arrow_schema
from deltasql.protocol.schema_fit import Fit
from deltasql.protocol.statistics import num_records
from deltasql.storage import Directory, is_local, local_path

_MAX_SHOWN = 3
# Estimated bytes of a value in a file; used only to keep a huge task from writing one huge file.
_WIDTHS = {"boolean": 0.1, "byte": 0.5, "short": 1, "integer": 2, "float": 4, "double": 6, "string": 8, "binary": 16}
_DEFAULT_WIDTH = 4
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
        """Write the files and check every row. Nothing is committed."""
        checks = _ObservedChecks(self.table)
        narrowed = checks.observe(frame, narrowing(self.fit, struct_of(frame)))
        shaped = checks.observe(aligned(narrowed, self.fit), self.rules)
        native = self._is_native(frame)
        with report_jobs(frame.sparkSession, self.report):
            folder, adds = (self._write_natively(shaped), []) if native else ("", self._write_by_arrow(shaped))
            checks.raise_violation()
        return self._adds_in(folder) if native else adds

    def _is_native(self, frame: DataFrame) -> bool:
        """Return whether Spark can write natively: to a local disk, without partitions, with timestamps in
        microseconds."""
        if self.plan.partition_columns or not is_local(self.plan.location) or not hasattr(frame, "_jdf"):
            return False
        return not _contains_type(self.fit.schema, "timestamp") or _takes_timestamp_option(frame.sparkSession)

    def _write_natively(self, frame: DataFrame) -> str:
        plan = self.plan
        folder = f"{plan.folder}w{plan.token}-{uuid4().hex[:12]}"
        if plan.written is not None:
            plan.written.add_folder(folder)
        (
            frame.write.option(_TIMESTAMPS, _MICROSECONDS)
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .option("compression", plan.codec)
            .option("maxRecordsPerFile", max(1, int(plan.target_size / estimated_row_bytes(self.fit.schema))))
            .parquet(f"{local_path(plan.location)}/{folder}")
        )
        return folder

    def _adds_in(self, folder: str) -> list[Add]:
        plan = self.plan
        directory = Directory(plan.location, plan.options)
        names = [entry.path for entry in directory.list(folder)]
        directory.delete([name for name in names if name.endswith(".crc")])
        paths = sorted(name for name in names if name.endswith(".parquet"))
        if self.report is not None:
            self.report(count_files(len(paths)), len(paths), len(paths))
        directory.sync(paths)
        files = adds_from_parquet(
            f"{local_path(plan.location)}/{plan.folder}".rstrip("/"),
            [path.removeprefix(plan.folder) for path in paths],
            arrow_schema(plan.schema_string),
            num_indexed_cols=plan.properties.num_indexed_columns,
            stats_columns=plan.properties.stats_columns,
        )
        adds = [
            Add(plan.folder + f.path, f.size, f.modification_time, f.partition_values, stats=f.stats) for f in files
        ]
        # Spark writes an empty file for a DataFrame without rows.
        empty = [add.path for add in adds if num_records(add.stats) == 0]
        directory.delete(empty)
        return [add for add in adds if add.path not in empty]

    def _write_by_arrow(self, frame: DataFrame) -> list[Add]:
        if self.plan.partition_columns:
            # Without the hint, each task writes a file for each partition.
            frame = frame.hint("rebalance", *(F.col(quoted(c)) for c in self.plan.partition_columns))
        # mapInArrow looks up columns by unquoted names, so the columns get plain names.
        plain = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
        # A second action would write the rows again.
        with explain_missing_packages(), collected_files(self.plan) as adds:
            rows = plain.mapInArrow(partial(write_batches, self.plan, self.table), "add string").collect()
            adds += [decode_add(row["add"]) for row in rows]
        return adds


@contextmanager
def collected_files(plan: FilePlan) -> Iterator[list[Add]]:
    """Surround a job whose tasks write files; the list takes the files that the tasks report."""
    adds: list[Add] = []
    written = plan.written
    with nullcontext() if written is None else written.by_tasks():
        yield adds
    if written is not None:
        written.add(*(unquote(add.path) for add in adds))


@contextmanager
def explain_missing_packages() -> Iterator[None]:
    """Raise UsageError with a way out if Spark's Python workers lack a package."""
    try:
        yield
    except PythonException as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise UsageError(
            f"Spark's Python workers cannot import {missing[1]}, because they run another Python than this process: "
            f"install deltasql there, or set os.environ['PYSPARK_PYTHON'] = {sys.executable!r} before the session is "
            f"created"
        ) from error


def _takes_timestamp_option(spark: SparkSession) -> bool:
    """Return whether a write can set the timestamp type. Before Spark 4.2 only the user's session can."""
    release = tuple(int(part) for part in spark.version.split(".")[:2])
    return release >= (4, 2) or spark.conf.get(_TIMESTAMPS) == _MICROSECONDS


def _contains_type(schema: Any, kind: str) -> bool:
    """Return whether a type occurs in a Delta schema, at any depth."""
    if isinstance(schema, dict):
        return any(_contains_type(part, kind) for key, part in schema.items() if key not in ("name", "metadata"))
    return any(_contains_type(part, kind) for part in schema) if isinstance(schema, list) else schema == kind


def estimated_row_bytes(schema: Json) -> float:
    """Return the estimated bytes of a row in a file."""
    kinds = [field["type"] for field in schema["fields"]]
    return sum(_WIDTHS.get(kind, _DEFAULT_WIDTH) if isinstance(kind, str) else _NESTED_WIDTH for kind in kinds)


class _ObservedChecks:
    """Counts the rows that violate constraints while they are written, so that the write fails before its commit."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._observed: list[tuple[DataFrame, Sequence[Constraint], Any]] = []

    def observe(self, frame: DataFrame, rules: Sequence[Constraint]) -> DataFrame:
        if not rules:
            return frame
        observation = Observation()
        self._observed.append((frame, rules, observation))
        return frame.observe(observation, *violation_counts(rules))

    def raise_violation(self) -> None:
        for frame, rules, observation in self._observed:
            counts = observation.get
            for number, rule in enumerate(rules):
                count = counts.get(f"c{number}") or 0
                if count:
                    rows = frame.where(verbatim(f"NOT coalesce(({rule.sql}), false)")).limit(_MAX_SHOWN).collect()
                    raise violation(rule.name, self._table, count, [row.asDict() for row in rows])
