"""Planning a read starts no Spark jobs and does not change the settings of the session."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import pytest

import deltasql
from deltasql.engines.spark.scan import file_index, snapshot_frame
from deltasql.engines.spark.scan.listing_settings import PARALLELISM, THRESHOLD, quick_listing
from tests.effort import rounds
from tests.spark.conftest import IDS, ON_CONNECT, file_of, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., deltasql.Table]
FILES = rounds(2_000, 10_000)


@pytest.fixture
def jobs(session: SparkSession) -> Iterator[Callable[[], int]]:
    """Return the number of Spark jobs since the begin of the test."""
    if ON_CONNECT:
        pytest.skip("a Connect session does not count its jobs")
    context, group = session.sparkContext, os.urandom(8).hex()
    context.setJobGroup(group, "a test's")
    yield lambda: len(context.statusTracker().getJobIdsForGroup(group))
    context.setLocalProperty("spark.jobGroup.id", None)


def link_files(table: deltasql.Table, lake: deltasql.Lake, count: int, partitions: int = 1) -> None:
    """Commit many hard links to one file."""
    one = file_of(table, IDS, "one.parquet")
    source = Path(table.location) / "one.parquet"
    actions = []
    for number in range(count):
        name = f"{number}.parquet"
        os.link(source, source.with_name(name))
        values = {"p": str(number % partitions)} if table.partition_columns else {}
        actions.append(deltasql.Add(name, one.size, one.modification_time, values))
    with lake.begin() as tx:
        tx.stage(table, actions)


@pytest.mark.parametrize("partitions", [1, 10, 1000])
def test_many_files_are_planned_without_a_job(
    make_table: Make, lake: deltasql.Lake, scan_kind: str, jobs: Callable[[], int], partitions: int
) -> None:
    if scan_kind == "join" and partitions == 1:
        pytest.skip("one partition needs no join")
    table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
    link_files(table, lake, FILES, partitions)
    df = table.df()
    assert jobs() == 0
    plan = df.where("p = 0 AND id = 1")._jdf.queryExecution().executedPlan().toString()
    assert jobs() == 0
    assert ("SnapshotFileIndex" in plan) == (scan_kind == "index")
    if scan_kind == "index":
        assert "PartitionFilters: [isnotnull(p" in plan
        if partitions > 10:
            assert df.where("p = 7 AND id = 1").count() == FILES // partitions


@pytest.mark.parametrize("user_value", [None, "7"])
def test_user_settings_are_restored(
    make_table: Make,
    lake: deltasql.Lake,
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    user_value: str | None,
) -> None:
    table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
    link_files(table, lake, 40, 2)
    if user_value is not None:
        session.conf.set(THRESHOLD, user_value)
    before = session.conf.getAll
    try:
        assert table.df().count() == 80
        assert session.conf.getAll == before
        (Path(table.location) / "3.parquet").unlink()
        with pytest.raises(Exception, match=r"PATH_NOT_FOUND|FILE_NOT_EXIST|does not exist"):
            table.df().count()
        assert session.conf.getAll == before
    finally:
        session.conf.unset(THRESHOLD)


def test_reads_side_by_side_leave_the_settings_alone(
    make_table: Make, lake: deltasql.Lake, session: SparkSession
) -> None:
    """A concurrent read does not mistake the temporary setting of another read for the user's."""
    table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
    link_files(table, lake, 40, 2)
    before = session.conf.getAll
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: table.df().count(), range(12)))
    assert counts == [80] * 12
    assert session.conf.getAll == before


@pytest.mark.parametrize(("root", "key"), [("file:/t", THRESHOLD), ("s3a://bucket/t", PARALLELISM)])
def test_object_stores_are_listed_by_few_tasks_and_disks_by_none(session: SparkSession, root: str, key: str) -> None:
    before = session.conf.getAll
    with quick_listing(session, root, 33):
        assert session.conf.getAll.keys() - before.keys() == {key}
    with quick_listing(session, root, 32):
        assert session.conf.getAll == before
    assert session.conf.getAll == before


def test_a_session_that_rejects_settings_can_read() -> None:
    class ReadOnlySettings:
        getAll: ClassVar[dict[str, str]] = {}

        def set(self, key: str, value: str) -> None:
            raise RuntimeError("CONFIG_NOT_AVAILABLE")

        def unset(self, key: str) -> None:
            raise AssertionError("nothing was set")

    with quick_listing(SimpleNamespace(conf=ReadOnlySettings()), "file:/t", 33):
        pass


@pytest.mark.skipif(ON_CONNECT, reason="a Connect session has no file index")
class TestFallback:
    """Without the file index, the same rows are read."""

    def fails(self, *_: Any) -> None:
        raise RuntimeError("another Spark")

    def test_a_failing_fast_scan_warns_once_and_reads_the_same_rows(
        self,
        lakes: dict[str, deltasql.Lake],
        namespace: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        lake = lakes["index"]
        table = lake.create_table(f"{namespace}.t", "id BIGINT")
        with lake.begin() as tx:
            tx.stage(table, [file_of(table, IDS, "a.parquet")])
        monkeypatch.setattr(file_index, "_java_source", lambda: "this is not Java")
        monkeypatch.setattr(file_index, "_compiled", WeakKeyDictionary())
        monkeypatch.setattr(file_index, "_has_warned", threading.Event())
        with caplog.at_level(logging.DEBUG, logger="deltasql.engines.spark"):
            assert ids(table.df()) == ids(table.df()) == [1, 2]
        failures = [record for record in caplog.records if "the fast scan failed" in record.message]
        assert [record.levelno for record in failures] == [logging.WARNING, logging.DEBUG]
        assert "CompileException" in failures[0].message
        assert "spark.fast_scan" in failures[0].message

    @pytest.mark.parametrize("switch", ["configuration", "property"])
    def test_the_fast_scan_can_be_switched_off(
        self, lakes: dict[str, deltasql.Lake], namespace: str, monkeypatch: pytest.MonkeyPatch, switch: str
    ) -> None:
        monkeypatch.setattr(snapshot_frame, "read_with_index", self.fails)
        lake = lakes["literals" if switch == "configuration" else "index"]
        properties = {"deltasql.spark.fast_scan": "off"} if switch == "property" else {}
        assert lake.create_table(f"{namespace}.t", "id BIGINT", properties=properties).df().count() == 0
