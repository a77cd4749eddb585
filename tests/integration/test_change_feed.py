"""The change data feed, compared with the reader of Delta's Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltasql
from deltasql.datasource.read_limits import LIMITS
from tests.change_feed import assert_changes_lead_to_each_version
from tests.effort import LONG
from tests.local_spark import PLAIN

pytestmark = pytest.mark.usefixtures("spark_session")
Make = Callable[..., deltasql.Table]
FEED = {"delta.enableChangeDataFeed": "true"}
LAYOUTS = {"copied": FEED, "marked": FEED | {"delta.enableDeletionVectors": "true"}}


def numbers(start: int, count: int, n: int = 0) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": list(ids), "part": [f"p{i % 2}" for i in ids], "n": pa.array([n for _ in ids], pa.int32())})


@pytest.fixture(params=LAYOUTS)
def table(request: pytest.FixtureRequest, make_table: Make) -> deltasql.Table:
    """A table with one file of 50 rows in version 1."""
    table = make_table(schema="id BIGINT, part STRING, n INT", properties=LAYOUTS[request.param])
    table.append(numbers(0, 50))
    return table


def change_rows(frame: Any) -> list[tuple[Any, ...]]:
    columns = ["_commit_version", "_change_type", "id", "n"]
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def has_change_files(table: deltasql.Table, version: int | None = None) -> bool:
    state = table.state()
    at = table.version if version is None else version
    return bool(table.lake.store.commits(state, [at])[at].cdc)


def assert_same_as_delta(table: deltasql.Table, spark: SparkSession, first: int = 0) -> None:
    """Assert that Delta's Spark reads the same changes."""
    if PLAIN:
        return
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
    assert change_rows(table.changes(first)) == change_rows(reader.load(str(table.location)))


def test_each_statement(table: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession) -> None:
    assert not has_change_files(table), "appends need no change files"
    table.update({"n": "n + 1"}, where="id IN (3, 4)")
    assert has_change_files(table)
    before_and_after = [(k, i, n) for k, n in (("update_postimage", 1), ("update_preimage", 0)) for i in (3, 4)]
    assert change_rows(table.changes(2)) == [(2, *rest) for rest in before_and_after]
    table.delete(where="id = 5")
    assert has_change_files(table)
    assert change_rows(table.changes(3)) == [(3, "delete", 5, 0)]
    lake.sql(
        f"MERGE INTO {table.name} t USING (VALUES (3, 7), (6, 8), (100, 9)) AS s(id, n) ON t.id = s.id "
        "WHEN MATCHED AND s.n = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n "
        "WHEN NOT MATCHED THEN INSERT (id, part, n) VALUES (s.id, 'new', s.n)"
    )
    assert change_rows(table.changes(4, 4)) == [
        (4, "delete", 3, 1),
        (4, "insert", 100, 9),
        (4, "update_postimage", 6, 8),
        (4, "update_preimage", 6, 0),
    ]
    lake.sql(f"INSERT INTO {table.name} VALUES (200, 'x', 1)")
    assert not has_change_files(table)
    assert change_rows(table.changes(5)) == [(5, "insert", 200, 1)]
    table.update({"n": "n"})
    assert len(change_rows(table.changes(6))) == 2 * table.arrow().num_rows
    table.optimize()
    table.delete()
    assert not has_change_files(table), "removed files need no change files"
    assert {kind for _, kind, _, _ in change_rows(table.changes(table.version))} == {"delete"}
    if LONG or "delta.enableDeletionVectors" in table.properties:
        assert_same_as_delta(table, spark_session)
    times = {row["_commit_version"]: row["_commit_timestamp"] for row in table.changes(0).collect()}
    assert sorted(times, key=times.__getitem__) == sorted(times)
    assert_changes_lead_to_each_version(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions(make_table: Make, spark_session: SparkSession, layout: str) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT", partition_by=["part"], properties=LAYOUTS[layout])
    table.append(numbers(0, 50))
    table.update({"part": "'ä=ö'", "n": "7"}, where="id < 2")
    table.delete(where="id = 10")
    table.delete(where="part = 'p1'")
    assert not has_change_files(table)
    assert_same_as_delta(table, spark_session)
    rows = table.changes(2, 2).select("id", "part", "_change_type").collect()
    assert {(r["id"], r["part"]) for r in rows if r["_change_type"] == "update_postimage"} == {(0, "ä=ö"), (1, "ä=ö")}
    assert_changes_lead_to_each_version(table)


def test_overwrites(table: deltasql.Table, spark_session: SparkSession) -> None:
    table.overwrite(numbers(3, 1, n=9), where="id BETWEEN 2 AND 4")
    assert change_rows(table.changes(2)) == [
        (2, "delete", 2, 0),
        (2, "delete", 3, 0),
        (2, "delete", 4, 0),
        (2, "insert", 3, 9),
    ]
    table.overwrite(spark_session.createDataFrame(numbers(4, 1, n=8)), where="id BETWEEN 3 AND 4")
    assert change_rows(table.changes(3)) == [(3, "delete", 3, 9), (3, "insert", 4, 8)]
    table.overwrite(numbers(0, 2))
    assert len(change_rows(table.changes(4))) == 48 + 2
    assert_same_as_delta(table, spark_session)
    assert_changes_lead_to_each_version(table)


class TestTransactions:
    def test_change_files_are_written_only_when_needed(
        self, table: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession
    ) -> None:
        with lake.begin() as tx:
            tx.write(table, numbers(100, 2))
            tx.update(table, {"n": "5"}, where="id IN (1, 100)")
            tx.write(table, numbers(200, 1))
            tx.delete(table, where="id = 101")
        assert table.version == 2
        counts = Counter((kind, i) for _, kind, i, _ in change_rows(table.changes(2)))
        assert counts[("insert", 200)] == counts[("insert", 100)] == counts[("delete", 101)] == 1
        assert counts[("update_preimage", 1)] == 1
        assert_same_as_delta(table, spark_session)
        assert_changes_lead_to_each_version(table)

    def test_files_staged_by_hand(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        for name in ("before.parquet", "after.parquet"):
            pq.write_table(numbers(100 if name[0] == "b" else 200, 3), Path(table.location) / name)
        size = (Path(table.location) / "after.parquet").stat().st_size
        adds = [deltasql.Add(n, size, 0, stats='{"numRecords":3}') for n in ("before.parquet", "after.parquet")]
        with lake.begin() as tx:
            tx.stage(table, adds[:1])
            tx.update(table, {"n": "1"}, where="id = 1")
            tx.stage(table, adds[1:])
        inserted = [i for _, kind, i, _ in change_rows(table.changes(2)) if kind == "insert"]
        assert inserted == [100, 101, 102, 200, 201, 202]
        assert_changes_lead_to_each_version(table)

    def test_whole_files_after_parts(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table(schema="id BIGINT, part STRING, n INT", partition_by=["part"], properties=FEED)
        table.append(numbers(0, 10))
        with lake.begin() as tx:
            tx.delete(table, where="part = 'p0'")
            tx.update(table, {"n": "1"}, where="id = 1")
            tx.delete(table, where="part = 'p1'")
            tx.write(table, numbers(50, 1))
        assert_changes_lead_to_each_version(table)
        assert table.arrow()["id"].to_pylist() == [50]

    def test_a_failure_leaves_no_files(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        with pytest.raises(ZeroDivisionError), lake.begin() as tx:
            tx.update(table, {"n": "5"}, where="id = 1")
            assert list(Path(table.location).rglob("_change_data/**/*.parquet"))
            raise ZeroDivisionError
        assert not list(Path(table.location).rglob("_change_data/**/*.parquet"))


def test_generated_columns_and_a_new_column(make_table: Make, spark_session: SparkSession) -> None:
    table = make_table(schema="id BIGINT, n INT, twice BIGINT GENERATED ALWAYS AS (id * 2)", properties=FEED)
    table.append(pa.table({"id": [1, 2], "n": pa.array([0, 0], pa.int32())}))
    table.update({"id": "id + 10"}, where="id = 1", returning=["id"])
    rows = {(r["_change_type"], r["id"], r["twice"]) for r in table.changes(2).collect()}
    assert rows == {("update_preimage", 1, 2), ("update_postimage", 11, 22)}
    table.append(pa.table({"id": [3], "n": pa.array([0], pa.int32()), "more": ["x"]}), merge_schema=True)
    assert {r["more"] for r in table.changes(1).collect()} == {None, "x"}
    assert_same_as_delta(table, spark_session, 1)


def test_rejected_requests(make_table: Make, lake: deltasql.Lake) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT")
    table.append(numbers(0, 2))
    with pytest.raises(deltasql.UnsupportedFeature, match=r"version 0 were not recorded.*enableChangeDataFeed"):
        table.changes(0)
    lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    table.append(numbers(2, 1))
    assert change_rows(table.changes(2)) == [(3, "insert", 2, 0)]
    with pytest.raises(deltasql.UnsupportedFeature, match="version 1 were not recorded"):
        table.changes(1)
    with pytest.raises(deltasql.ValidationError, match="no version 9"):
        table.changes(9)
    with pytest.raises(deltasql.UsageError, match="is after the last"):
        table.changes(3, 2)
    for name in ("_change_type", "_commit_version", "_COMMIT_TIMESTAMP"):
        with pytest.raises(deltasql.ValidationError, match=f"(?i){name}.*change data feed"):
            make_table("other", schema=f"id BIGINT, {name} STRING", properties=FEED)


def test_changes_of_removed_versions_are_rejected(make_table: Make, lake: deltasql.Lake) -> None:
    """The version is rejected if one of its files is missing."""
    table = make_table(schema="id BIGINT, part STRING, n INT", properties=FEED)
    table.append(numbers(0, 5))
    table.update({"n": "1"}, where="id = 1")
    assert table.changes(1).count() == 7
    (gone,) = Path(table.location).rglob("_change_data/**/*.parquet")
    gone.unlink()
    with pytest.raises(
        deltasql.StorageError, match=r"changes of version 2 are no longer available.*Read later versions"
    ):
        table.changes(1)
    assert change_rows(table.changes(1, 1)) == [(1, "insert", i, 0) for i in range(5)]


def test_changes_across_a_type_change_are_rejected(make_table: Make) -> None:
    """A version that changes a column type is rejected, alone and together with earlier versions."""
    table = make_table(schema="id BIGINT, n INT", properties=FEED)
    table.append(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
    table.overwrite(pa.table({"id": ["one"], "n": pa.array([1], pa.int32())}), overwrite_schema=True)
    table.append(pa.table({"id": ["two"], "n": pa.array([2], pa.int32())}))
    for first in (1, 2):
        with pytest.raises(deltasql.UnsupportedFeature, match=r"columns of other types \(id from long to string\)"):
            table.changes(first)
    assert [row["id"] for row in table.changes(3).collect()] == ["two"]


def test_changes_across_a_dropped_column(make_table: Make, spark_session: SparkSession, tmp_path: Path) -> None:
    """Changes are read up to the version that drops the columns, or from that version on."""
    table = make_table(schema="id BIGINT, n INT, s STRUCT<a: INT, b: INT>", properties=FEED)
    nested = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    rows = pa.table({"id": [1], "n": pa.array([1], pa.int32()), "s": pa.array([{"a": 1, "b": 2}], nested)})
    table.append(rows)
    table.append(rows.append_column("m", pa.array([5])), merge_schema=True)
    assert {row["m"] for row in table.changes(1).collect()} == {None, 5}, "an added column is included"
    left = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    table.overwrite(pa.table({"id": [2], "m": [6], "s": left}), overwrite_schema=True)
    table.append(pa.table({"id": [3], "m": [7], "s": left}))
    deltasql.register(spark_session, table.lake.dsn)
    for first in (1, 2):
        problem = rf"version 3 drops columns that version {first} has \(n, s\.b\): start at version 3"
        with pytest.raises(deltasql.UnsupportedFeature, match=problem):
            table.changes(first)
    stream = spark_session.readStream.format("deltasql").option("readChangeFeed", "true")
    query = stream.option("startingVersion", 2).load(table.name).writeStream.format("noop")
    with pytest.raises(Exception, match=problem):
        query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert [(row["id"], row["n"]) for row in table.changes(1, 1).collect()] == [(1, 1)]
    found = table.changes(3).select("id", "_change_type").collect()
    assert sorted(map(tuple, found)) == [(1, "delete"), (1, "delete"), (2, "insert"), (3, "insert")]
    if not PLAIN:
        by_delta = spark_session.read.format("delta").option("readChangeFeed", "true")
        at = str(table.location)
        assert by_delta.option("startingVersion", 3).load(at).count() == len(found)
        with pytest.raises(Exception, match="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"):
            by_delta.option("startingVersion", 1).load(at).count()


def test_a_column_added_and_dropped_again(make_table: Make) -> None:
    table = make_table(schema="id BIGINT", properties=FEED)
    table.append(pa.table({"id": [1], "more": [1]}), merge_schema=True)
    table.overwrite(pa.table({"id": [2]}), overwrite_schema=True)
    with pytest.raises(deltasql.UnsupportedFeature, match=r"version 2 drops columns that version 1 has \(more\)"):
        table.changes(0)
    table.append(pa.table({"id": [3], "more": [3]}), merge_schema=True)
    assert sorted(row["more"] or 0 for row in table.changes(1).collect()) == [0, 1, 1, 3]


class TestFormat:
    @pytest.fixture
    def spark(self, spark_session: SparkSession, lake: deltasql.Lake) -> SparkSession:
        deltasql.register(spark_session, lake.dsn)
        return spark_session

    def changed(self, make_table: Make) -> deltasql.Table:
        table = make_table(schema="id BIGINT, part STRING, n INT", properties=LAYOUTS["marked"])
        table.append(numbers(0, 50))
        table.update({"n": "1"}, where="id = 7")
        table.delete(where="id = 8")
        return table

    def test_batches(self, make_table: Make, spark: SparkSession) -> None:
        table = self.changed(make_table)
        reader = spark.read.format("deltasql").option("readChangeFeed", "true")
        assert change_rows(reader.option("startingVersion", 0).load(table.name)) == change_rows(table.changes(0))
        some = reader.option("startingVersion", 2).option("endingVersion", 2).load(table.name)
        assert change_rows(some) == change_rows(table.changes(2, 2))
        options = {"readChangeData": "true", "startingVersion": 2}
        other = spark.read.format("deltasql").options(**options)
        assert change_rows(other.load(table.name)) == change_rows(table.changes(2))
        for option, value in {"endingTimestamp": "2020-01-01 00:00:00", "versionAsOf": "1"}.items():
            with pytest.raises(Exception, match=option):
                spark.read.format("deltasql").options(**options, **{option: value}).load(table.name).collect()
        with pytest.raises(Exception, match="needs readChangeFeed=true"):
            spark.read.format("deltasql").option("startingVersion", 2).load(table.name).collect()
        with pytest.raises(Exception, match="startingVersion"):
            spark.read.format("deltasql").option("readChangeFeed", "true").load(table.name).collect()

    def test_streams(self, make_table: Make, spark: SparkSession, tmp_path: Path) -> None:
        """A stream starts at the first version, or at the current rows."""
        table = self.changed(make_table)
        seen: dict[str, list[Any]] = {"0": [], "now": []}

        def run(start: str) -> None:
            options = {"readChangeFeed": "true"} | ({"startingVersion": start} if start.isdigit() else {})
            frame = spark.readStream.format("deltasql").options(**options).load(table.name)
            query = frame.writeStream.foreachBatch(lambda batch, _: seen[start].extend(change_rows(batch)))
            query.option("checkpointLocation", str(tmp_path / start)).trigger(
                availableNow=True
            ).start().awaitTermination()

        run("0")
        assert sorted(seen["0"]) == change_rows(table.changes(0))
        run("now")
        assert sorted(seen["now"]) == sorted((3, "insert", r["id"], r["n"]) for r in table.arrow().to_pylist())
        table.delete(where="id = 9")
        early = make_table("early", schema="id BIGINT, part STRING, n INT")
        early.append(numbers(0, 5))
        early.lake.sql(f"ALTER TABLE {early.name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
        options = {"readChangeFeed": "true", "startingVersion": "1"}
        frame = spark.readStream.format("deltasql").options(**options).load(early.name)
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "early"))
        with pytest.raises(Exception, match="changes of version 1 were not recorded"):
            query.trigger(availableNow=True).start().awaitTermination()
        for start, found in seen.items():
            found.clear()
            run(start)
            assert found == [(4, "delete", 9, 0)]

    @pytest.mark.skipif(not LIMITS, reason="this Spark has no read limits")
    def test_a_version_stays_in_one_batch(self, make_table: Make, spark: SparkSession, tmp_path: Path) -> None:
        """A batch ends at the end of a version, even if it exceeds maxFilesPerTrigger."""
        table = make_table(schema="id BIGINT, part STRING, n INT", partition_by=["part"], properties=FEED)
        table.append(numbers(0, 10))
        table.update({"part": "concat(part, '!')"}, where="id < 4")
        table.append(numbers(10, 1))
        table.append(numbers(11, 1))
        assert len(table.lake.store.commits(table.state(), [2])[2].cdc) == 4
        for most in (1, 5):
            seen: list[list[Any]] = []
            options = {"readChangeFeed": "true", "startingVersion": "1", "maxFilesPerTrigger": most}
            frame = spark.readStream.format("deltasql").options(**options).load(table.name)
            query = frame.writeStream.foreachBatch(lambda batch, _, to=seen: to.append(change_rows(batch)))
            query.option("checkpointLocation", str(tmp_path / str(most))).trigger(
                availableNow=True
            ).start().awaitTermination()
            assert sorted(row for batch in seen for row in batch) == change_rows(table.changes(1))
            versions = [sorted({row[0] for row in batch}) for batch in seen]
            assert versions == {1: [[1], [2], [3], [4]], 5: [[1, 2], [3, 4]]}[most]
