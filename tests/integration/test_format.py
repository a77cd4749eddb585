"""`format("deltasql")`: batch and streaming reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltasql
from deltasql.datasource.read_limits import LIMITS
from tests.effort import LONG
from tests.readers import rows
from tests.sample_columns import NESTED, PRIMITIVES, table_of

Make = Callable[..., deltasql.Table]


@pytest.fixture(scope="module")
def spark(spark_session: SparkSession, embedded_lake: deltasql.Lake) -> SparkSession:
    deltasql.register(spark_session, embedded_lake.dsn)
    return spark_session


def load(spark: SparkSession, table: deltasql.Table, **options: Any) -> DataFrame:
    return spark.read.format("deltasql").options(**options).load(table.name)


def save(frame: DataFrame, table: deltasql.Table, mode: str = "append", **options: Any) -> None:
    frame.write.format("deltasql").mode(mode).options(**options).save(table.name)


def ids(table: deltasql.Table) -> list[int]:
    return sorted(table.arrow()["id"].to_pylist())


class TestBatches:
    def test_all_types_are_read_and_written(self, make_table: Make, spark: SparkSession) -> None:
        expected = table_of({**PRIMITIVES, **NESTED}).append_column("part", pa.array(["a", "b", None]))
        source = make_table("source", schema=expected.schema, partition_by=["part"])
        source.append(expected)
        target = make_table("target", schema=expected.schema)
        save(load(spark, source), target)
        assert rows(target.arrow()) == rows(expected)
        assert load(spark, source).schema.jsonValue()["fields"][0]["name"] == "i8"

    def test_time_travel(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        for n in range(2):
            table.append(pa.table({"id": [n]}))
        assert load(spark, table, versionAsOf=1).count() == 1
        moment = table.history()[1].timestamp
        assert load(spark, table, timestampAsOf=moment.isoformat()).count() == 1
        with pytest.raises(Exception, match="has no version 7"):
            load(spark, table, versionAsOf=7).count()

    def test_a_table_without_rows(self, make_table: Make, spark: SparkSession) -> None:
        assert load(spark, make_table(schema="id BIGINT")).count() == 0

    def test_filters_follow_spark_semantics(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        table.append(pa.table({"id": range(100)}))
        frame = load(spark, table)
        assert frame.where("id = 5").count() == 1
        assert frame.count() == 100
        assert frame.where("id = 1").union(frame.where("id = 2")).count() == 2

    def test_overwriting(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
        frame = spark.sql("SELECT 1L AS id, 'a' AS part UNION ALL SELECT 2L, 'b'")
        save(frame, table)
        save(
            frame.where("id = 2").selectExpr("id + 10 AS id", "part"),
            table,
            "overwrite",
            partitionOverwriteMode="dynamic",
        )
        assert ids(table) == [1, 12]
        save(frame.where("id = 1").selectExpr("id + 20 AS id", "part"), table, "overwrite", replaceWhere="part = 'a'")
        assert ids(table) == [12, 21]
        save(frame, table, "overwrite")
        assert ids(table) == [1, 2]

    def test_a_new_column(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        save(spark.sql("SELECT 1L AS id, 'x' AS more"), table, mergeSchema="true")
        assert table.arrow().to_pylist() == [{"id": 1, "more": "x"}]

    def test_rows_that_do_not_fit(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT NOT NULL, n INT", constraints={"positive": "n > 0"})
        with pytest.raises(Exception, match="'id' is string, but long in the table"):
            save(spark.sql("SELECT 'x' AS id"), table)
        with pytest.raises(Exception, match="constraint id NOT NULL"):
            save(spark.sql("SELECT CAST(NULL AS BIGINT) AS id, 1 AS n"), table)
        with pytest.raises(Exception, match="constraint positive"):
            save(spark.sql("SELECT 1L AS id, -1 AS n"), table)
        assert table.version == 0

    def test_replace_where_that_needs_spark_is_rejected(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT", constraints={"odd": "id % 2 = 1"})
        with pytest.raises(Exception, match=r"only Spark can evaluate"):
            save(spark.range(1), table)

    def test_a_view_reads_and_writes_by_sql(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW a_view USING deltasql OPTIONS (path '{table.name}')")
        spark.sql("INSERT INTO a_view VALUES (1), (2)")
        assert [row["id"] for row in spark.sql("SELECT id FROM a_view WHERE id > 1").collect()] == [2]
        assert (table.version, ids(table)) == (1, [1, 2])

    def test_an_unknown_table(self, spark: SparkSession) -> None:
        with pytest.raises(Exception, match=r"table no\.such does not exist"):
            spark.read.format("deltasql").load("no.such").count()


class TestStreams:
    def run(self, frame: DataFrame, table: deltasql.Table, checkpoint: Path, **options: str) -> list[int]:
        """Process all available rows, and return the number of rows of each batch."""
        query = (
            frame.writeStream.format("deltasql")
            .option("checkpointLocation", str(checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start(table.name)
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def stream(self, spark: SparkSession, table: deltasql.Table, **options: Any) -> DataFrame:
        return spark.readStream.format("deltasql").options(**options).load(table.name)

    def test_existing_rows_then_new_rows(self, make_table: Make, spark: SparkSession, tmp_path: Path) -> None:
        source, sink = make_table("source", schema="id BIGINT"), make_table("sink", schema="id BIGINT")
        for n in range(3):
            source.append(pa.table({"id": [n]}))
        limit = {"maxFilesPerTrigger": 2} if LIMITS else {}
        frame = self.stream(spark, source, **limit)
        assert self.run(frame, sink, tmp_path / "c") == ([2, 1] if LIMITS else [3])
        source.append(pa.table({"id": [3, 4]}))
        source.append(pa.table({"id": [5]}))
        source.append(pa.table({"id": [6]}))
        assert self.run(frame, sink, tmp_path / "c") == ([3, 1] if LIMITS else [4])
        assert ids(sink) == list(range(7))
        assert self.run(frame, sink, tmp_path / "c") == []

    @pytest.mark.skipif(LIMITS, reason="this Spark has limits")
    def test_before_spark_4_2_a_limit_is_rejected(self, make_table: Make, spark: SparkSession, tmp_path: Path) -> None:
        table = make_table(schema="id BIGINT")
        with pytest.raises(Exception, match=r"maxFilesPerTrigger needs PySpark 4\.2"):
            self.run(self.stream(spark, table, maxFilesPerTrigger=2), table, tmp_path / "c")

    def test_from_a_version(self, make_table: Make, spark: SparkSession, tmp_path: Path) -> None:
        source = make_table("source", schema="id BIGINT")
        for n in range(4):
            source.append(pa.table({"id": [n]}))
        starts = {"0": [0, 1, 2, 3], "3": [2, 3], "latest": []}
        for start, expected in starts.items() if LONG else [("3", starts["3"])]:
            sink = make_table(f"sink_{start}", schema="id BIGINT")
            self.run(self.stream(spark, source, startingVersion=start), sink, tmp_path / start)
            assert ids(sink) == expected

    def test_a_commit_that_removes_rows(self, make_table: Make, spark: SparkSession, tmp_path: Path) -> None:
        source, sink = make_table("source", schema="id BIGINT"), make_table("sink", schema="id BIGINT")
        source.append(pa.table({"id": [1]}))
        source.overwrite(pa.table({"id": [2]}))
        source.append(pa.table({"id": [3]}))
        with pytest.raises(Exception, match="version 2 removes or changes rows"):
            self.run(self.stream(spark, source, startingVersion="0"), sink, tmp_path / "c")
        self.run(self.stream(spark, source, startingVersion="0", skipChangeCommits="true"), sink, tmp_path / "d")
        assert ids(sink) == [1, 3]

    def test_a_batch_is_committed_once(
        self, lake: deltasql.Lake, make_table: Make, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Spark repeats a batch whose end it did not record: the same application id and batch number are committed
        once.
        """
        source, sink = make_table("source", schema="id BIGINT"), make_table("sink", schema="id BIGINT")
        source.append(pa.table({"id": [1]}))
        frame = self.stream(spark, source)
        self.run(frame, sink, tmp_path / "c")
        assert sink.version == 1
        for record in (tmp_path / "c" / "commits").iterdir():
            record.unlink()
        self.run(frame, sink, tmp_path / "c")
        assert (sink.version, ids(sink)) == (1, [1])
        [txn] = lake.store.commits(sink.state(), [1])[1].txns
        assert txn.app_id in (tmp_path / "c" / "metadata").read_text()

    def test_the_application_id_identifies_the_stream(
        self, make_table: Make, spark: SparkSession, tmp_path: Path
    ) -> None:
        source, sink = make_table("source", schema="id BIGINT"), make_table("sink", schema="id BIGINT")
        source.append(pa.table({"id": [1]}))
        for checkpoint in ("a", "b"):
            self.run(self.stream(spark, source), sink, tmp_path / checkpoint, txnAppId="nightly")
        assert ids(sink) == [1]

    def test_rows_that_a_stream_wrote_can_be_replaced(
        self, make_table: Make, spark: SparkSession, tmp_path: Path
    ) -> None:
        source, sink = make_table("source", schema="id BIGINT"), make_table("sink", schema="id BIGINT")
        source.append(pa.table({"id": [1]}))
        self.run(self.stream(spark, source).withColumn("id", F.col("id") + 10), sink, tmp_path / "c")
        sink.overwrite(pa.table({"id": [5]}), where="id = 11 OR id = 5")
        assert ids(sink) == [5]

    @pytest.mark.parametrize(
        "options",
        [
            {"startingVersion": "9"},
            pytest.param({"startingVersion": "x"}, marks=pytest.mark.long),
            pytest.param({"maxFilesPerTrigger": "0"}, marks=pytest.mark.long),
        ],
    )
    def test_bad_options(self, make_table: Make, spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
        table = make_table(schema="id BIGINT")
        [(name, value)] = options.items()
        with pytest.raises(Exception, match=f"{name} must be .*got '{value}'"):
            self.run(self.stream(spark, table, **options), table, tmp_path / "c")
