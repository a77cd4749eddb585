"""Compaction keeps the rows, reduces the number of files, and does not block other writers."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltasql
from deltasql.operations import optimize
from tests.readers import assert_same_rows

Make = Callable[..., deltasql.Table]
ON = {"delta.enableDeletionVectors": "true"}


def numbers(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": list(ids), "part": [f"p{i % 2}" for i in ids]})


def ids(table: deltasql.Table) -> list[int]:
    return sorted(table.arrow()["id"].to_pylist())


@pytest.fixture(params=["arrow", "spark"])
def each_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "spark":
        request.getfixturevalue("spark_session")
        monkeypatch.setattr(optimize, "_HERE_BYTES", 0)


@pytest.mark.usefixtures("each_engine")
def test_small_files_become_one_for_each_partition(make_table: Make, spark_session: SparkSession) -> None:
    table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
    for start in range(0, 60, 10):
        table.append(numbers(start, 10))
    before = table.files()
    result = table.optimize()
    assert result.version == table.version == 7
    assert (table.files().num_rows, ids(table)) == (2, list(range(60)))
    assert result.metrics["numRemovedFiles"] == "12"
    entry = table.history()[0]
    assert (entry.operation, entry.metrics["numAddedFiles"]) == ("OPTIMIZE", "2")
    assert table.files()["data_change"].to_pylist() == [False, False]
    assert int(result.metrics["numRemovedBytes"]) == sum(before["size"].to_pylist())
    assert_same_rows(Path(table.location), table.arrow(), spark=spark_session)
    again = table.optimize()
    assert (again.version, again.metrics, table.version) == (7, {}, 7)


def test_large_files_are_left_alone(make_table: Make) -> None:
    table = make_table(schema="id BIGINT, part STRING")
    for start, count in ((0, 5000), (5000, 10), (5010, 10)):
        table.append(numbers(start, count))
    large = max(table.files().to_pylist(), key=lambda file: file["size"])
    result = table.optimize(target_size=large["size"])
    assert (result.metrics["numRemovedFiles"], table.files().num_rows) == ("2", 2)
    assert large["path"] in table.files()["path"].to_pylist()
    assert ids(table) == list(range(5020))


def test_files_have_the_target_size(make_table: Make) -> None:
    table = make_table(schema="id BIGINT, part STRING")
    for start in range(0, 8000, 1000):
        table.append(numbers(start, 1000))
    size = max(table.files()["size"].to_pylist())
    table.optimize(target_size=size * 2 + 100)
    assert table.files().num_rows == 4
    assert ids(table) == list(range(8000))


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("kind", ["repeated", "random", "tiny", "shared"])
def test_a_second_run_has_nothing_to_do(make_table: Make, kind: str) -> None:
    """This holds for every compression ratio of single and merged files."""
    draw = random.Random(kind)
    texts = {
        "repeated": lambda i: ["the same long text again and again"] * 20_000,
        "random": lambda i: [draw.randbytes(8).hex() for _ in range(2_000)],
        "tiny": lambda i: ["x"],
        "shared": lambda i: [f"{n:064x}" for n in range(1_000)],
    }
    table = make_table(schema="id BIGINT, s STRING")
    for i in range(8):
        found = texts[kind](i)
        table.append(pa.table({"id": [i] * len(found), "s": found}))
    before = table.arrow()
    largest = max(table.files()["size"].to_pylist())
    for target in (largest + 1, largest * 5 // 2, largest * 5, 1 << 20):
        table.optimize(target_size=target)
        files, version = table.files(), table.version
        small = sorted(size for size in files["size"].to_pylist() if size < 0.75 * target)
        assert len(small) < 2 or sum(small[:2]) > target
        again = table.optimize(target_size=target)
        assert (again.metrics, table.version, table.files()) == ({}, version, files)
    assert (table.files().num_rows, table.arrow().num_rows) == (1, before.num_rows)
    assert Counter(table.arrow()["s"].to_pylist()) == Counter(before["s"].to_pylist())
    known = {path for version in range(table.version + 1) for path in table.files(version=version)["path"].to_pylist()}
    assert {path.name for path in Path(table.location).glob("*.parquet")} == known, "no other file is left"


def test_where(make_table: Make) -> None:
    table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
    for start in range(0, 30, 10):
        table.append(numbers(start, 10))
    table.optimize(where="part = 'p1'")
    parts = [values["part"] for values in table.files()["partition_values"].to_pylist()]
    assert sorted(parts) == ["p0", "p0", "p0", "p1"]
    assert json.loads(table.history()[0].parameters["predicate"]) == ["part = 'p1'"]


@pytest.mark.usefixtures("spark_session")
@pytest.mark.parametrize(
    "where",
    ["upper(part) = 'P1'", "upper(t.part) = 'P1' AND id >= 0", "part LIKE '%1' AND dayofmonth(day) = 2"],
)
def test_any_condition_on_partitions(make_table: Make, where: str) -> None:
    table = make_table(schema="id BIGINT, part STRING, day DATE", partition_by=["part", "day"])
    for start in range(0, 30, 10):
        days = pa.array([dt.date(2026, 1, 1 + i % 2) for i in range(10)])
        table.append(numbers(start, 10).append_column("day", days))
    table.optimize(where=where)
    parts = [values["part"] for values in table.files()["partition_values"].to_pylist()]
    assert sorted(parts) == ["p0", "p0", "p0", "p1"]
    for problem in ("nosuch(part) = 1", "part / 0 = 1"):
        with pytest.raises(deltasql.ValidationError, match=re.escape(problem)):
            table.optimize(where=problem)


def test_where_over_data(make_table: Make) -> None:
    """Files whose statistics exclude matching rows are not compacted."""
    table = make_table(schema="id BIGINT, part STRING")
    for start in range(0, 40, 10):
        table.append(numbers(start, 10))
    table.optimize(where="id < 15")
    assert table.files().num_rows == 3
    assert ids(table) == list(range(40))


@pytest.mark.usefixtures("each_engine")
def test_deleted_rows_are_purged(make_table: Make, spark_session: SparkSession) -> None:
    table = make_table(schema="id BIGINT, part STRING", properties=ON)
    table.append(numbers(0, 100))
    table.delete(where="id < 5")
    assert table.optimize(target_size=1).metrics == {}, "5 % deleted rows are below the limit"
    table.delete(where="id = 5")
    result = table.optimize(target_size=1)
    assert result.metrics["numDeletionVectorsRemoved"] == "1"
    (file,) = table.files().to_pylist()
    assert (file["deletion_vector"], json.loads(file["stats"])["numRecords"]) == (None, 94)
    assert ids(table) == list(range(6, 100))
    assert_same_rows(Path(table.location), table.arrow(), spark=spark_session)


@pytest.mark.usefixtures("spark_session")
def test_compaction_does_not_conflict_with_appends(
    make_table: Make, lake: deltasql.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A concurrent append does not conflict; a concurrent delete from a compacted file makes the compaction retry."""
    table = make_table(schema="id BIGINT, part STRING")
    for start in (0, 10):
        table.append(numbers(start, 10))
    meanwhile = [lambda: table.append(numbers(20, 10)), lambda: table.delete(where="id = 3")]
    compact = lake.compactor.compact
    runs = []

    def slow(*arguments: object) -> dict[str, str]:
        found = compact(*arguments)
        runs.append(found)
        for change in meanwhile[: 2 if len(runs) == 1 else 0]:
            change()
        return found

    monkeypatch.setattr(lake.compactor, "compact", slow)
    table.optimize()
    assert len(runs) == 2, "the delete conflicts, the append does not"
    assert ids(table) == [*range(3), *range(4, 30)]
    assert [entry.operation for entry in table.history()[:3]] == ["OPTIMIZE", "DELETE", "WRITE"]
    before = {path.name for path in Path(table.location).glob("*.parquet")}
    live = {Path(path).name for path in table.files()["path"].to_pylist()}
    assert live <= before


def test_appends_continue_during_compaction(make_table: Make) -> None:
    """Threads append during several compactions: no append fails, and no row is lost."""
    table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
    table.append(numbers(0, 10))
    over = threading.Event()

    def append(thread: int) -> list[int]:
        starts = []
        while not over.is_set() or not starts:
            starts.append(1000 * (thread + 1) + 10 * len(starts))
            table.append(numbers(starts[-1], 10))
        return starts

    with ThreadPoolExecutor(3) as pool:
        appending = [pool.submit(append, thread) for thread in range(3)]
        try:
            runs = [table.optimize() for _ in range(5)]
        finally:
            over.set()
        starts = [0, *(start for one in appending for start in one.result())]
    assert ids(table) == sorted(i for start in starts for i in range(start, start + 10))
    committed = [run for run in runs if run.metrics]
    operations = [entry.operation for entry in table.history()]
    assert operations.count("OPTIMIZE") == len(committed) > 0
    assert operations.count("WRITE") == len(starts)
    table.optimize()
    assert table.files().num_rows == 2


def test_rejected_arguments(make_table: Make) -> None:
    table = make_table(schema="id BIGINT, part STRING")
    with pytest.raises(deltasql.UnsupportedFeature, match="zorder_by"):
        table.optimize(zorder_by=["id"])
    with pytest.raises(deltasql.UsageError, match="target_size must be a size such as 128MiB"):
        table.optimize(target_size="large")
    with pytest.raises(deltasql.ValidationError, match="nope"):
        table.optimize(where="nope = 1")
    assert table.optimize().version == 0
