"""Writing Spark DataFrames into tables, by Spark's Parquet writer or by Arrow in Spark's Python workers."""

from __future__ import annotations

import datetime as dt
import math
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltasql
from deltasql.operations.location_owner import OWNER
from tests.readers import assert_same_rows
from tests.sample_columns import NESTED, PRIMITIVES, table_of

Make = Callable[..., deltasql.Table]
WRITERS = {"native": (), "arrow": ("part",)}
"""Spark writes unpartitioned tables, and Arrow writes partitioned tables."""


@pytest.fixture(params=WRITERS)
def partition_by(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return WRITERS[request.param]


@pytest.fixture
def spark(spark_session: SparkSession) -> SparkSession:
    return spark_session


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    yield
    spark.conf.set(key, before)


def read(table: deltasql.Table, **options: Any) -> list[dict[str, Any]]:
    found = DeltaTable(table.location, **options).to_pyarrow_table()
    return found.sort_by([(found.schema.names[0], "ascending")]).to_pylist()


def data_files(table: deltasql.Table) -> list[Path]:
    files = [p for p in Path(table.location).rglob("*") if p.is_file() and "_delta_log" not in p.parts]
    return [p for p in files if p.name != OWNER]


class TestRows:
    @pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
    def test_all_types(
        self, make_table: Make, spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...], zone: str
    ) -> None:
        expected = table_of({**PRIMITIVES, **NESTED}).append_column("part", pa.array(["a", "b", None]))
        table = make_table(schema=expected.schema, location=str(tmp_path / "t"), partition_by=partition_by)
        pq.write_table(expected, tmp_path / "source.parquet", coerce_timestamps="us")
        with setting(spark, "spark.sql.session.timeZone", zone):
            table.append(spark.read.parquet(str(tmp_path / "source.parquet")))
        assert_same_rows(Path(table.location), expected, spark=spark)

    def test_timestamps_are_int64_microseconds(
        self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]
    ) -> None:
        table = make_table(schema="at TIMESTAMP, part STRING", partition_by=partition_by)
        table.append(spark.sql("SELECT timestamp'2026-01-01 12:00:00.123456Z' AS at, 'a' AS part"))
        [file] = data_files(table)
        assert pq.read_schema(file).field("at").type == pa.timestamp("us", "UTC")
        assert pq.ParquetFile(file).schema.column(0).physical_type == "INT64"

    def test_by_name_with_defaults_and_wider_types(
        self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]
    ) -> None:
        schema = "id BIGINT, s STRUCT<a: BIGINT, b: STRING>, l ARRAY<STRUCT<x: INT, y: INT>>, m MAP<STRING, DOUBLE>, part STRING"
        table = make_table(schema=schema, partition_by=partition_by)
        rows = spark.sql(
            "SELECT 'p' AS PART, map('k', 1.5F) AS m, array(named_struct('Y', 5)) AS l, named_struct('B', 'x', 'A', 1) AS s, 1 AS ID "
            "UNION ALL SELECT NULL, NULL, NULL, NULL, 2"
        )
        table.append(rows)
        assert read(table) == [
            {"id": 1, "s": {"a": 1, "b": "x"}, "l": [{"x": None, "y": 5}], "m": [("k", 1.5)], "part": "p"},
            {"id": 2, "s": None, "l": None, "m": None, "part": None},
        ]

    def test_no_rows(self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]) -> None:
        table = make_table(schema="id BIGINT, part STRING", partition_by=partition_by)
        result = table.append(spark.sql("SELECT 1L AS id, 'a' AS part WHERE false"))
        assert (result.version, result.metrics["numFiles"]) == (1, "0")
        assert table.files().num_rows == 0

    def test_create_as(self, lake: deltasql.Lake, spark: SparkSession, namespace: str) -> None:
        table = lake.create_table(f"{namespace}.t", as_=spark.range(3))
        assert table.schema.field("id").nullable
        assert [row["id"] for row in read(table)] == [0, 1, 2]

    def test_many_tables(self, lake: deltasql.Lake, make_table: Make, spark: SparkSession) -> None:
        features, labels = make_table("features", schema="id BIGINT"), make_table("labels", schema="id BIGINT, x INT")
        with lake.begin() as tx:
            tx.write(features, spark.range(3))
            tx.write(labels, pa.table({"id": [9]}), mode="overwrite")
        assert tx.versions == {features.name: 1, labels.name: 1}
        with pytest.raises(deltasql.ConstraintViolation), lake.begin() as tx:
            tx.write(features, spark.range(3))
            tx.write(labels, spark.sql("SELECT 1L AS id, 5000000000L AS x"))
        assert (features.version, labels.version) == (1, 1)


class TestOverwriting:
    def test_all_rows_and_the_schema(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT")
        table.append(spark.range(5))
        table.overwrite(spark.range(2))
        assert [row["id"] for row in read(table)] == [0, 1]
        table.overwrite(spark.sql("SELECT 'text' AS id, 1 AS more"), overwrite_schema=True)
        assert read(table) == [{"id": "text", "more": 1}]
        table.append(spark.sql("SELECT 'u' AS id, 1.5D AS even_more"), merge_schema=True)
        assert read(table)[1] == {"id": "u", "more": None, "even_more": 1.5}

    @pytest.mark.parametrize(
        "where", ["id >= 2 AND id < 5", "id % 9 BETWEEN 2 AND 4 AND id < 9"], ids=["simple", "general"]
    )
    def test_some_rows(self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...], where: str) -> None:
        table = make_table(schema="id BIGINT, x DOUBLE, part STRING", partition_by=partition_by)
        for start in (1, 4, 7):
            table.append(
                spark.range(start, start + 3, 1, 1).selectExpr("id", "IF(id = 8, NULL, 0.5D) AS x", "'p' AS part")
            )
        untouched = table.files()["path"].to_pylist()[2]
        result = table.overwrite(spark.sql("SELECT 3L AS id, 99D AS x, 'p' AS part"), where=where)
        assert [(row["id"], row["x"]) for row in read(table)] == [
            (1, 0.5), (3, 99.0), (5, 0.5), (6, 0.5), (7, 0.5), (8, None), (9, 0.5),
        ]  # fmt: skip
        assert untouched in table.files()["path"].to_pylist()
        assert result.metrics["numCopiedRows"] == "3"
        with pytest.raises(deltasql.ConstraintViolation, match="overwrite where"):
            table.overwrite(spark.sql("SELECT 30L AS id, 99D AS x, 'p' AS part"), where=where)

    def test_dynamic_partitions(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
        table.append(spark.sql("SELECT 1L AS id, 'a' AS part UNION ALL SELECT 2L, 'b'"))
        table.overwrite(spark.sql("SELECT 3L AS id, 'b' AS part"), dynamic=True)
        assert [(row["id"], row["part"]) for row in read(table)] == [(1, "a"), (3, "b")]


class TestConstraints:
    @pytest.fixture
    def table(self, make_table: Make, partition_by: tuple[str, ...]) -> deltasql.Table:
        return make_table(
            schema="id BIGINT NOT NULL, amount DOUBLE, code VARCHAR(3), n INT, s STRUCT<x: INT>, part STRING",
            constraints={"positive": "amount > 0"},
            partition_by=partition_by,
        )

    @pytest.mark.parametrize(
        ("change", "constraint", "shown"),
        [
            ("amount = IF(id = 3, -1.5D, amount)", "positive", "id=3, amount=-1.5"),
            ("amount = IF(id = 3, NULL, amount)", "positive", "id=3, amount=NULL"),
            ("id = IF(id = 3, NULL, id)", "id NOT NULL", "id=NULL, amount=4.0"),
            ("code = IF(id = 3, 'four', code)", "code VARCHAR(3)", "code='four'"),
            ("n = IF(id = 3, 5000000000, 1L)", "n fits INT", "n=5000000000"),
        ],
    )
    def test_rows_that_violate_a_constraint(
        self, table: deltasql.Table, spark: SparkSession, change: str, constraint: str, shown: str
    ) -> None:
        good = spark.range(10).selectExpr(
            "id", "id + 1D AS amount", "'abc' AS code", "1 AS n", "NULL AS s", "'p' AS part"
        )
        table.append(good)
        column, _, expression = change.partition(" = ")
        with pytest.raises(deltasql.ConstraintViolation) as caught:
            table.append(good.withColumn(column, F.expr(expression)))
        assert caught.value.constraint == constraint
        assert f"table {table.name}: one row violates the constraint {constraint}" in str(caught.value)
        assert shown in str(caught.value)
        assert table.version == 1

    def test_three_rows_are_shown(self, table: deltasql.Table, spark: SparkSession) -> None:
        with pytest.raises(deltasql.ConstraintViolation) as caught:
            table.append(spark.range(10).selectExpr("id", "-1D AS amount"))
        assert "10 rows violate" in str(caught.value)
        assert str(caught.value).count("id=") == 3

    def test_rows_of_arrow_are_checked_as_well(self, table: deltasql.Table, spark: SparkSession) -> None:
        with pytest.raises(deltasql.ConstraintViolation, match="positive"):
            table.append(pa.table({"id": [1], "amount": [-1.0]}))
        table.append(pa.table({"id": [1], "amount": [1.0]}))
        assert read(table)[0]["amount"] == 1.0

    def test_inside_structs_and_arrays(self, make_table: Make, spark: SparkSession) -> None:
        inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
        listed = pa.list_(pa.field("element", pa.int64(), nullable=False))
        table = make_table(schema=pa.schema([("s", inner), ("l", listed)]))
        table.append(spark.sql("SELECT named_struct('a', 1L) AS s, array(1L) AS l UNION ALL SELECT NULL, NULL"))
        for struct, array, name in (
            ("named_struct('a', CAST(NULL AS BIGINT))", "NULL", "s.a NOT NULL"),
            ("NULL", "array(1L, NULL)", "elements of l"),
        ):
            with pytest.raises(deltasql.ConstraintViolation, match=name):
                table.append(spark.sql(f"SELECT {struct} AS s, {array} AS l"))


class TestGeneratedColumns:
    @pytest.fixture
    def table(self, make_table: Make, partition_by: tuple[str, ...]) -> deltasql.Table:
        schema = pa.schema(
            [
                pa.field("id", pa.int64()),
                pa.field("twice", pa.int64(), metadata={"delta.generationExpression": '"id * 2"'}),
                pa.field("greeting", pa.string(), metadata={"CURRENT_DEFAULT": "concat('hel', 'lo')"}),
                pa.field("part", pa.string()),
            ]
        )
        return make_table(schema=schema, partition_by=partition_by)

    def test_missing_generated_columns_are_computed(self, table: deltasql.Table, spark: SparkSession) -> None:
        table.append(spark.range(2))
        table.append(pa.table({"id": [2], "greeting": ["bye"]}))
        assert [(r["id"], r["twice"], r["greeting"]) for r in read(table)] == [
            (0, 0, "hello"), (1, 2, "hello"), (2, 4, "bye"),
        ]  # fmt: skip

    def test_given_generated_columns_are_checked(self, table: deltasql.Table, spark: SparkSession) -> None:
        table.append(spark.sql("SELECT 1L AS id, 2L AS twice"))
        with pytest.raises(deltasql.ConstraintViolation, match=r"twice GENERATED ALWAYS AS \(id \* 2\)"):
            table.append(spark.sql("SELECT 1L AS id, 3L AS twice"))


class TestFiles:
    def test_nothing_but_data_files(self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]) -> None:
        table = make_table(schema="id BIGINT, part STRING", partition_by=partition_by)
        table.append(spark.range(10).withColumn("part", F.lit("x")))
        names = {str(path.relative_to(table.location)) for path in data_files(table)}
        assert names == set(table.files()["path"].to_pylist())
        token = table.history(1)[0].txn_id.replace("-", "")
        assert all(token in name for name in names)

    def test_few_files_per_partition(self, make_table: Make, spark: SparkSession) -> None:
        table = make_table(schema="id BIGINT, part BIGINT", partition_by=["part"])
        table.append(spark.range(0, 4000, 1, 8).withColumn("part", F.col("id") % 10))
        assert table.files().num_rows == 10

    def test_a_target_size(self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]) -> None:
        table = make_table(
            schema="id BIGINT, x DOUBLE, part STRING",
            properties={"deltasql.writer.target_file_size": "500kb"},
            partition_by=partition_by,
        )
        table.append(spark.range(0, 300_000, 1, 1).selectExpr("id", "rand() AS x", "'p' AS part"))
        sizes = table.files()["size"].to_pylist()
        assert 3 < len(sizes) < 20
        assert sum(sizes) > 2_000_000

    def test_rows_are_computed_once(
        self, make_table: Make, spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
    ) -> None:
        """A second evaluation of the frame would double the cost, and `rand()` would give other values."""
        marks = tmp_path / "marks"
        marks.mkdir()

        def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import uuid

            for batch in batches:
                (marks / uuid.uuid4().hex).touch()
                yield batch

        table = make_table(
            schema="id BIGINT NOT NULL, part STRING", constraints={"c": "id >= 0"}, partition_by=partition_by
        )
        frame = spark.range(0, 10, 1, 1).selectExpr("id", "'p' AS part")
        table.append(frame.mapInArrow(mark, frame.schema))
        assert len(list(marks.iterdir())) == 1

    def test_statistics_of_nan(self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]) -> None:
        table = make_table(schema="x DOUBLE, f FLOAT, part STRING", partition_by=partition_by)
        for values in ("(1.5D, 0.5F, 'a'), (2.5D, NULL, 'a')", "(1D, 1F, 'a'), (double('NaN'), float('NaN'), 'a')"):
            table.append(spark.sql(f"SELECT * FROM VALUES {values} AS v(x, f, part)").coalesce(1))
        with_nan, clean = sorted(table.files()["stats"].to_pylist(), key=lambda stats: '"minValues":{"x"' in stats)
        assert '"minValues":{"x":1.5,"f":0.5' in clean
        assert '"maxValues":{"x":2.5,"f":0.5' in clean
        assert '"minValues":{"x"' not in with_nan
        assert table.files("x > 100").num_rows == 1
        frame = spark.read.parquet(*(f"{table.location}/{p}" for p in table.files()["path"].to_pylist()))
        assert math.isnan(frame.where("x > 100").collect()[0]["x"])

    def test_long_texts(self, make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]) -> None:
        table = make_table(schema="t STRING, part STRING", partition_by=partition_by)
        table.append(
            spark.sql("SELECT repeat('é', 10000) AS t, 'p' AS part UNION ALL SELECT repeat('a', 40), 'p'").coalesce(1)
        )
        assert table.files("t = 'a'").num_rows <= 1
        assert table.files("t > 'é'").num_rows == 1
        assert table.files("t < 'b'").num_rows == 1


@pytest.mark.parametrize("value", ["INTERVAL '1' YEAR", "INTERVAL '1' DAY", "parse_json('{}')"])
def test_unsupported_types_are_rejected(make_table: Make, spark: SparkSession, value: str) -> None:
    table = make_table(schema="id BIGINT")
    frame = spark.sql(f"SELECT 1L AS id, {value} AS odd")
    with pytest.raises(deltasql.DeltaSqlError, match="odd"):
        table.append(frame, merge_schema=True)
    assert table.version == 0


def failing(frame: DataFrame) -> DataFrame:
    return frame.withColumn("id", F.expr("IF(id = 7, raise_error('broken on purpose'), id)").cast("bigint"))


def test_a_job_that_fails_changes_nothing(make_table: Make, spark: SparkSession, partition_by: tuple[str, ...]) -> None:
    table = make_table(schema="id BIGINT, part STRING", partition_by=partition_by)
    frame = spark.range(10).withColumn("part", F.lit("x"))
    with pytest.raises(Exception, match="broken on purpose"):
        table.append(failing(frame))
    assert (table.version, table.files().num_rows) == (0, 0)
    table.append(frame)
    assert [row["id"] for row in read(table)] == list(range(10))


def test_workers_of_another_python_are_named(
    make_table: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(schema="id BIGINT, part STRING", partition_by=["part"])
    venv.create(tmp_path / "other")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "other" / "bin" / "python"))
    with pytest.raises(deltasql.UsageError, match=r"workers cannot import \w+, .* os\.environ\['PYSPARK_PYTHON'\] = "):
        table.append(spark.range(1).selectExpr("id", "'a' AS part"))
    assert table.version == 0


def test_dates_do_not_depend_on_the_time_zone(make_table: Make, spark: SparkSession) -> None:
    table = make_table(schema="id BIGINT, at TIMESTAMP, day DATE", partition_by=["at", "day"])
    with setting(spark, "spark.sql.session.timeZone", "Asia/Kolkata"):
        table.append(spark.sql("SELECT 1L AS id, timestamp'2026-01-01 00:00:00' AS at, date'2026-01-01' AS day"))
    assert table.files()["partition_values"].to_pylist() == [{"at": "2025-12-31T18:30:00.000000Z", "day": "2026-01-01"}]
    assert read(table) == [
        {"id": 1, "at": dt.datetime(2025, 12, 31, 18, 30, tzinfo=dt.UTC), "day": dt.date(2026, 1, 1)}
    ]
