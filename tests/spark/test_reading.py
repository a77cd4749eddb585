"""`Table.df` returns exactly the rows of a snapshot, with the schema and the partition values of the log."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql import SqlTxnLogReader
from deltasql.engines.spark.scan.snapshot_frame import read_snapshot
from deltasql.protocol.schema_fit import nullable
from tests.factories import remove
from tests.readers import rows
from tests.sample_columns import NESTED, PARTITIONS, PRIMITIVES, table_of
from tests.spark.conftest import IDS, ODD_NAMES, ON_CONNECT, Put, add_of, file_of, ids, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Make = Callable[..., deltasql.Table]
ZONES = ("UTC", "America/New_York")


def assert_rows(df: DataFrame, expected: pa.Table) -> None:
    assert df.columns == expected.column_names
    assert rows(df.toArrow()) == rows(expected)


class TestTypes:
    @pytest.mark.parametrize("zone", ZONES)
    @pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
    def test_every_type(
        self, make_table: Make, put: Put, time_zone: Callable[[str], None], columns: dict[str, Any], zone: str
    ) -> None:
        time_zone(zone)
        expected = table_of(columns)
        table = make_table(schema=expected.schema)
        put(table, expected)
        assert_rows(table.df(), expected)

    @pytest.mark.parametrize("zone", ZONES)
    def test_int96(
        self,
        make_table: Make,
        lake: deltasql.Lake,
        session: SparkSession,
        time_zone: Callable[[str], None],
        zone: str,
    ) -> None:
        """Timestamps in INT96, which is Spark's default and common in old tables."""
        time_zone(zone)
        table = make_table(schema="at TIMESTAMP")
        written = session.sql("SELECT timestamp_micros(1709168523456789) AS at")
        key = "spark.sql.parquet.outputTimestampType"
        written.coalesce(1).write.option(key, "INT96").mode("append").parquet(table.location)
        [path] = Path(table.location).glob("*.parquet")
        assert pq.read_schema(path).field("at").type == pa.timestamp("ns")
        with lake.begin() as tx:
            tx.stage(table, [add_of(path, path.name)])
        moment = dt.datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=dt.UTC)
        assert_rows(table.df(), pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))}))

    def test_void(self, make_table: Make, put: Put) -> None:
        table = make_table(schema="id BIGINT, nothing VOID, s STRUCT<a: INT, nothing: VOID>")
        put(table, pa.table({"id": [1], "s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))}))
        [row] = table.df().collect()
        assert row.asDict(recursive=True) == {"id": 1, "nothing": None, "s": {"a": 1, "nothing": None}}

    def test_widened_columns(self, make_table: Make, lake: deltasql.Lake, put: Put) -> None:
        """Files written before a type was widened keep the narrower type."""
        table = make_table(
            schema="n INT, f FLOAT, d DECIMAL(5,2)", properties={"delta.feature.typeWidening": "supported"}
        )
        small = pa.table(
            {
                "n": pa.array([1], pa.int32()),
                "f": pa.array([0.5], pa.float32()),
                "d": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
            }
        )
        put(table, small)
        fields = [("n", "long"), ("f", "double"), ("d", "decimal(10,2)")]
        wider = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]
        metadata = deltasql.Metadata(id=table.id, schema_string=json.dumps({"type": "struct", "fields": wider}))
        with lake.begin() as tx:
            tx.stage(table, [metadata])
        schema = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(10, 2))])
        large = pa.table([[2**40], [0.1], [Decimal("12345678.25")]], schema=schema)
        put(table, large, "b.parquet")
        assert_rows(table.df(), pa.concat_tables([small.cast(schema), large]))


class TestSchema:
    def test_order_types_and_metadata_come_from_the_log(self, make_table: Make, put: Put) -> None:
        inner = pa.struct([pa.field("x", pa.int32(), False)])
        schema = pa.schema(
            [
                pa.field("b", pa.string(), metadata={"comment": "the second"}),
                pa.field("p", pa.date32(), False, {"comment": "by day"}),
                pa.field("id", pa.int64(), False),
                pa.field("s", inner),
                pa.field("l", pa.list_(pa.field("element", pa.int32(), False))),
                pa.field("q", pa.int32()),
            ]
        )
        table = make_table(schema=schema, partition_by=["q", "p"])
        expected = expected_schema(table)
        assert json.loads(table.df().schema.json()) == expected
        data = pa.table(
            [["x"], [1], [{"x": 1}], [[1]]], schema=pa.schema([schema.field(n) for n in ("b", "id", "s", "l")])
        )
        for day, name in (("2026-01-01", "a.parquet"), ("2026-01-02", "b.parquet")):
            put(table, data, name, values={"p": day, "q": None})
            assert json.loads(table.df().schema.json()) == expected
        one, _ = table.df().orderBy("p").collect()
        assert one.asDict(True) == {"b": "x", "p": dt.date(2026, 1, 1), "id": 1, "s": {"x": 1}, "l": [1], "q": None}

    def test_a_null_in_a_not_null_column(self, make_table: Make, put: Put) -> None:
        """With a non-nullable schema, Spark would show the value of another row instead of the null."""
        table = make_table(schema="id BIGINT NOT NULL, x INT")
        put(table, pa.table({"id": [1, None, 3], "x": pa.array([1, 2, 3], pa.int32())}))
        assert [row["id"] for row in table.df().orderBy("x").collect()] == [1, None, 3]

    def test_a_missing_column_is_null(self, make_table: Make, lake: deltasql.Lake, put: Put) -> None:
        """A default value in the metadata is not filled in."""
        table = make_table(schema="id BIGINT")
        put(table, IDS)
        metadata = {"CURRENT_DEFAULT": "42", "EXISTS_DEFAULT": "42", "comment": "new"}
        fields = expected_schema(table)["fields"]
        fields.append({"name": "n", "type": "integer", "nullable": True, "metadata": metadata})
        protocol = deltasql.Protocol(1, 7, None, ("allowColumnDefaults", "appendOnly", "invariants"))
        wider = deltasql.Metadata(id=table.id, schema_string=json.dumps({"type": "struct", "fields": fields}))
        with lake.begin() as tx:
            tx.stage(table, [protocol, wider])
        put(table, pa.table({"id": [3], "n": pa.array([3], pa.int32())}), "b.parquet")
        df = table.df()
        assert_rows(df, pa.table({"id": [1, 2, 3], "n": pa.array([None, None, 3], pa.int32())}))
        assert df.schema["n"].metadata == metadata
        assert ids(table.df(where="n IS NULL")) == [1, 2]

    def test_an_extra_column_is_not_read(self, make_table: Make, put: Put) -> None:
        table = make_table(schema="id BIGINT")
        put(table, IDS.append_column("other", [["x", "y"]]))
        assert_rows(table.df(), IDS)

    def test_names_that_sql_quotes(self, make_table: Make, put: Put) -> None:
        names = ["a.b", "select", "tick`", "größe", "_metadata", "file", "VALUES", "file_"]
        schema = pa.schema([(name, pa.int64()) for name in [*names, "p.q"]])
        table = make_table(schema=schema, partition_by=["p.q"])
        data = pa.table({name: [i] for i, name in enumerate(names)})
        put(table, data, values={"p.q": "8"})
        assert_rows(table.df(), data.append_column("p.q", [[8]]))
        assert table.df(where="`a.b` = 0 AND `p.q` = 8 AND `tick``` = 2").count() == 1

    def test_char_columns_are_padded_as_spark_does(self, make_table: Make, put: Put) -> None:
        table = make_table(schema="id BIGINT, c CHAR(4), v VARCHAR(4), p CHAR(4)", partition_by=["p"])
        put(table, pa.table({"id": [1], "c": ["ab"], "v": ["ab"]}), values={"p": "ab"})
        assert ids(table.df(where="c = 'ab' AND v = 'ab'")) == [1]

    def test_an_empty_table(self, make_table: Make) -> None:
        table = make_table(schema=table_of({**PRIMITIVES, **NESTED}).schema, partition_by=["i32", "day"])
        df = table.df()
        assert df.count() == 0
        assert df.columns == table.schema.names
        assert table.df(where="i32 = 1").count() == 0


def expected_schema(table: deltasql.Table) -> Any:
    """Return the schema that Spark reads: all fields are nullable."""
    metadata = table.state().metadata
    assert metadata is not None
    return nullable(json.loads(metadata.schema_string))


BINARY = (pa.binary(), [None, b"\x01\x02", "ü".encode()])
MORE_PARTITIONS = {
    **PARTITIONS,
    "byte": (pa.int8(), [None, -128, 127]),
    "short": (pa.int16(), [None, -(2**15), 2**15 - 1]),
    "long": (pa.int64(), [None, -(2**63), 2**63 - 1]),
    "float": (pa.float32(), [None, 0.1, float("inf"), float("-inf"), float("nan")]),
    "not_a_number": (pa.float64(), [None, 1e300, float("inf"), float("nan")]),
    "large_decimal": (pa.decimal128(38, 18), [None, Decimal("-12345678901234567890.123456789012345678")]),
    "binary": BINARY,
}

TEXTS = [
    ("TIMESTAMP", "2024-02-29 01:02:03.456789", "2024-02-29 01:02:03.456789"),
    ("TIMESTAMP", "2024-02-29 01:02:03", "2024-02-29 01:02:03"),
    ("TIMESTAMP", "2024-02-29T01:02:03.5Z", "2024-02-29 01:02:03.5"),
    ("TIMESTAMP", "2024-02-29T01:02:03+05:45", "2024-02-28 19:17:03"),
    ("TIMESTAMP", "1883-11-18T12:03:57-07:52:58", "1883-11-18 19:56:55"),
    ("TIMESTAMP", "+12024-02-29T00:00:00Z", "+12024-02-29 00:00:00"),
    ("TIMESTAMP_NTZ", "2024-02-29 01:02:03.456789", "2024-02-29 01:02:03.456789"),
    ("TIMESTAMP_NTZ", "0001-01-01 00:00:00", "0001-01-01 00:00:00"),
    ("DATE", "0001-01-01", "0001-01-01"),
    ("DATE", "+12024-02-29", "+12024-02-29"),
    ("BOOLEAN", "TRUE", "true"),
    ("DECIMAL(10,2)", "1.5", "1.50"),
    ("DECIMAL(10,2)", "15E-1", "1.50"),
    ("INT", "-007", "-7"),
]
"""Partition columns: type, text in the log, and value as a string in Spark."""


def text_of(value: Any, kind: pa.DataType) -> str | None:
    """Return a value in the format of Delta's partition values."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode()
        case dt.datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
            return text.replace(" ", "T") + "Z" if kind.tz else text
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value), str(value))
    return str(value)


class TestPartitions:
    def test_values(self, make_table: Make, lake: deltasql.Lake, time_zone: Callable[[str], None]) -> None:
        """The table has one partition column of each type; the first file has null in all of them."""
        time_zone("America/New_York")
        count = max(len(values) for _, values in MORE_PARTITIONS.values())
        filled = {
            name: (kind, [*values, *values[-1:] * (count - len(values))])
            for name, (kind, values) in MORE_PARTITIONS.items()
        }
        expected = table_of({"id": (pa.int64(), list(range(count))), **filled})
        table = make_table(schema=expected.schema, partition_by=list(filled))
        with lake.begin() as tx:
            for i in range(count):
                texts = {name: text_of(values[i], kind) for name, (kind, values) in filled.items()}
                tx.stage(table, [file_of(table, pa.table({"id": [i]}), f"{i}.parquet", texts)])
        assert_rows(table.df(), expected)
        for name in filled:
            assert ids(table.df(where=f"`{name}` IS NULL")) == [0], name
        there = " AND ".join(f"`{name}` IS NOT NULL" for name in filled)
        assert ids(table.df().where(there)) == list(range(1, count))

    def test_texts(self, make_table: Make, put: Put, time_zone: Callable[[str], None]) -> None:
        """All formats of a log are read in every session time zone; a timestamp without a zone is in UTC."""
        columns = {f"p{number}": kind for number, (kind, _, _) in enumerate(TEXTS)}
        schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        table = make_table(schema=f"id BIGINT, {schema}", partition_by=list(columns))
        put(table, IDS, values={name: text for name, (_, text, _) in zip(columns, TEXTS, strict=True)})
        time_zone("America/New_York")
        df = table.df()
        time_zone("UTC")
        for row in df.selectExpr(*(f"CAST({name} AS STRING)" for name in columns)).collect():
            assert list(row) == [shown for _, _, shown in TEXTS]

    def test_an_invalid_value_is_rejected(self, make_table: Make, put: Put) -> None:
        """Spark would read the value as null."""
        table = make_table(schema="id BIGINT, p DECIMAL(4,2)", partition_by=["p"])
        put(table, IDS, values={"p": "1234.5"})
        with pytest.raises(deltasql.ValidationError, match=r"'p': invalid decimal\(4,2\) value '1234.5'"):
            table.df()

    def test_partition_values_come_from_the_log_not_the_path(self, make_table: Make, put: Put) -> None:
        """Hive directories and partition columns inside a file are ignored."""
        table = make_table(schema="p INT, id BIGINT, q STRING", partition_by=["p", "q"])
        own = IDS.append_column("p", pa.array([8, 9], pa.int32())).append_column("q", [["x", "y"]])
        put(table, own, "p=5/q=__HIVE_DEFAULT_PARTITION__/other=1/a.parquet", values={"p": "1", "q": "z"})
        put(table, IDS, "q=y/a.parquet", values={"p": None, "q": "__HIVE_DEFAULT_PARTITION__"})
        put(table, IDS, "deep/er/a.parquet", values={"p": "3", "q": None})
        expected = pa.table(
            {
                "p": pa.array([1, 1, None, None, 3, 3], pa.int32()),
                "id": [1, 2] * 3,
                "q": ["z", "z", *["__HIVE_DEFAULT_PARTITION__"] * 2, None, None],
            }
        )
        assert_rows(table.df(), expected)

    def test_a_filter_prunes_files(self, make_table: Make, put: Put, scan_kind: str) -> None:
        if scan_kind == "join":
            pytest.skip("a join reads every file of the snapshot")
        table = make_table(schema="id BIGINT, p STRING, q DATE", partition_by=["p", "q"])
        for p, q in [("a", "2026-01-01"), ("a", None), ("b", "2026-01-01"), (None, None)]:
            put(table, IDS, f"{p}{q}.parquet", values={"p": p, "q": q})
        df = table.df()
        for gone in ("aNone", "b2026-01-01", "NoneNone"):
            (Path(table.location) / f"{gone}.parquet").unlink()
        assert df.where("p = 'a' AND q >= '2026-01-01'").count() == 2
        assert df.where("q = '2026-01-01' AND lower(p) IN ('a', 'A') AND id > 1").count() == 1
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            df.where("q = '2026-01-01'").count()

    def test_a_join_prunes_partitions(self, make_table: Make, put: Put, session: SparkSession, scan_kind: str) -> None:
        """Dynamic pruning skips partitions without a match on the other side of the join."""
        if scan_kind != "index":
            pytest.skip("only the file index knows partitions")
        table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
        for p in range(3):
            put(table, IDS, f"{p}.parquet", values={"p": str(p)})
        df = table.df()
        (Path(table.location) / "2.parquet").unlink()
        few = session.range(10).where("id % 10 = 1").selectExpr("CAST(id AS INT) AS p")
        assert df.join(few.hint("broadcast"), "p").count() == 2


class TestNames:
    @pytest.mark.parametrize("root", ["plain", "odd [root] {a,b} *ü %41"])
    def test_special_characters_in_paths(
        self, make_table: Make, lake: deltasql.Lake, tmp_path: Path, root: str
    ) -> None:
        table = make_table(schema="id BIGINT, p STRING", partition_by=["p"], location=str(tmp_path / root))
        # Hadoop fails on a colon below a root that Spark Connect treats as a pattern.
        names = [name for name in ODD_NAMES if not (ON_CONNECT and root != "plain" and ":" in name)]
        with lake.begin() as tx:
            tx.stage(table, [file_of(table, pa.table({"id": [i]}), n, {"p": n}) for i, n in enumerate(names)])
        assert_rows(table.df(), pa.table({"id": range(len(names)), "p": names}))

    def test_a_name_like_a_pattern_is_not_one(self, make_table: Make, put: Put) -> None:
        """Files that the name would match as a pattern, and that are not in the table, are not read."""
        table = make_table(schema="id BIGINT")
        for name in ("a1.parquet", "ab.parquet", "[a]b.parquet"):
            file_of(table, pa.table({"id": [9]}), name)
        for number, name in enumerate(("a*.parquet", "a?.parquet", "{a,b}b.parquet", "[b]b.parquet")):
            put(table, pa.table({"id": [number]}), name)
        assert ids(table.df()) == [0, 1, 2, 3]

    @pytest.mark.parametrize("name", [".a=b.parquet", "a.parquet._COPYING_"])
    def test_names_that_spark_skips_are_rejected(self, make_table: Make, put: Put, name: str) -> None:
        table = make_table(schema="id BIGINT")
        put(table, IDS, name)
        with pytest.raises(deltasql.ValidationError, match=f"Spark skips the file '{name}'"):
            table.df()

    def test_names_that_resemble_skipped_names(self, make_table: Make, put: Put) -> None:
        table = make_table(schema="id BIGINT")
        for name in ("_a=b.parquet", "x_.y", "_x=1/.y=2/a.parquet"):
            put(table, IDS, name)
        assert ids(table.df()) == [1, 1, 1, 2, 2, 2]


class TestSnapshots:
    def test_by_version_and_by_timestamp(self, make_table: Make, lake: deltasql.Lake, put: Put) -> None:
        table = make_table(schema="id BIGINT")
        put(table, pa.table({"id": [1]}), "a.parquet")
        put(table, pa.table({"id": [2]}), "b.parquet")
        with lake.begin() as tx:
            tx.stage(table, [remove("a.parquet")])
        moments = {entry.version: entry.timestamp for entry in table.history()}
        for version, expected in enumerate([[], [1], [1, 2], [2]]):
            assert ids(table.df(version)) == expected
            assert ids(table.df(timestamp=moments[version])) == expected
        assert ids(table.df()) == [2]
        assert ids(table.df(version=2, where="id = 1")) == [1]

    def test_an_older_version_has_its_schema(self, make_table: Make, lake: deltasql.Lake, put: Put) -> None:
        table = make_table(schema="id BIGINT, x INT")
        put(table, IDS)
        narrow = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
        with lake.begin() as tx:
            tx.stage(table, [deltasql.Metadata(id=table.id, schema_string=narrow)])
        assert schema_of(table.df(version=1)) == [("id", "bigint"), ("x", "int")]
        assert schema_of(table.df()) == [("id", "bigint")]

    def test_later_commits_do_not_change_a_dataframe(self, make_table: Make, lake: deltasql.Lake, put: Put) -> None:
        table = make_table(schema="id BIGINT")
        put(table, pa.table({"id": [1]}), "a.parquet")
        df, point = table.df(), lake.snapshot()
        put(table, pa.table({"id": [2]}), "b.parquet")
        assert ids(df) == ids(point.df(table.name)) == [1]
        assert ids(point.df(table.name, "id > 1")) == []
        assert ids(table.df()) == [1, 2]
        with pytest.raises(deltasql.ValidationError, match="not part of this snapshot"):
            point.df("nowhere.to_be_seen")

    def test_the_same_snapshot_twice_is_one_scan(self, make_table: Make, put: Put) -> None:
        table = make_table(schema="id BIGINT")
        put(table, IDS)
        first = table.df()
        assert first.sameSemantics(table.df())
        put(table, IDS, "b.parquet")
        assert not first.sameSemantics(table.df())
        assert first.join(table.df(), "id").count() == 4

    def test_missing_and_corrupt_files_are_errors(self, make_table: Make, put: Put, session: SparkSession) -> None:
        """The settings of the session that ignore such files have no effect."""
        table = make_table(schema="id BIGINT")
        for name in ("a.parquet", "b.parquet"):
            put(table, IDS, name)
        df = table.df()
        (Path(table.location) / "a.parquet").unlink()
        settings = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
        for key in settings:
            session.conf.set(key, "true")
        try:
            with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
                df.collect()
            (Path(table.location) / "a.parquet").write_text("not Parquet at all")
            with pytest.raises(Exception, match=r"not a Parquet file|FAILED_READ_FILE|CANNOT_READ"):
                table.df().collect()
        finally:
            for key in settings:
                session.conf.unset(key)

    def test_an_empty_file_is_rejected(self, make_table: Make, lake: deltasql.Lake) -> None:
        """Spark would skip the file."""
        table = make_table(schema="id BIGINT")
        with lake.begin() as tx:
            tx.stage(table, [deltasql.Add("a.parquet", 0, 0)])
        with pytest.raises(deltasql.ValidationError, match=r"'a\.parquet' has size 0"):
            table.df()


class TestPredicates:
    def test_files_are_pruned_by_the_log(self, make_table: Make, put: Put) -> None:
        table = make_table(schema="id BIGINT, p STRING", partition_by=["p"])
        location = Path(table.location)
        names = [f"p={p}/{n}.parquet" for p in "ab" for n in (0, 10)]
        for name in names:
            (location / name).parent.mkdir(parents=True, exist_ok=True)
            start = int(Path(name).stem)
            pq.write_table(pa.table({"id": pa.array(range(start, start + 10), pa.int64())}), location / name)
        table.add_files(names)
        df = table.df(where="p = 'b' AND id BETWEEN 12 AND 14")
        assert [Path(file).relative_to(location).as_posix() for file in _files(df)] == ["p=b/10.parquet"]
        assert ids(df) == [12, 13, 14]
        assert table.df(where="id > 100").count() == 0

    @pytest.mark.parametrize("where", ["{table}.id = 1", "ID = 1", "id = 1 AND rand() >= 0", "id = 1 -- yes"])
    def test_predicates_in_spark_syntax(self, make_table: Make, put: Put, where: str) -> None:
        table = make_table(schema="id BIGINT")
        put(table, IDS)
        assert ids(table.df(where=where.format(table="t"))) == [1]

    def test_an_unknown_column_is_suggested(self, make_table: Make) -> None:
        with pytest.raises(deltasql.ValidationError, match='did you mean "amount"'):
            make_table().df(where="amout > 1")


def _files(df: DataFrame) -> list[str]:
    return [file.removeprefix("file://").removeprefix("file:") for file in df.inputFiles()]


class TestFeatures:
    def test_deletion_vectors(self, make_table: Make, lake: deltasql.Lake, put: Put) -> None:
        table = make_table(
            schema="id BIGINT, p STRING", partition_by=["p"], properties={"delta.enableDeletionVectors": "true"}
        )
        put(table, IDS, "a.parquet", values={"p": "a"})
        assert ids(table.df()) == [1, 2]
        rows = pa.table({"id": range(100, 130)})
        plain = file_of(table, rows, "b c.parquet", {"p": "b"}, row_group_size=7)
        vector = deltasql.DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
        marked = deltasql.Add(
            plain.path,
            plain.size,
            plain.modification_time,
            {"p": "b"},
            stats='{"numRecords":30}',
            deletion_vector=vector,
        )
        with lake.begin() as tx:
            tx.stage(table, [marked])
        left = [i for i in range(100, 130) if i - 100 not in (3, 4, 7, 11, 18, 29)]
        assert ids(table.df()) == [1, 2, *left]
        assert ids(table.df(where="id BETWEEN 110 AND 120")) == [i for i in left if 110 <= i <= 120]
        assert table.df().groupBy("p").count().orderBy("p").collect() == [("a", 2), ("b", 24)]
        assert table.df().select("p").distinct().count() == 2
        assert ids(table.df(where="p = 'a'")) == [1, 2]
        assert ids(table.df(version=1)) == [1, 2]

    @pytest.mark.parametrize(
        ("protocol", "name"),
        [
            (deltasql.Protocol(3, 7, ("variantType",), ("variantType",)), "variantType"),
            (deltasql.Protocol(2, 5), "columnMapping"),
            (deltasql.Protocol(4, 7), "version 4"),
        ],
    )
    def test_unsupported_features_are_rejected_by_name(
        self, make_table: Make, lake: deltasql.Lake, protocol: deltasql.Protocol, name: str
    ) -> None:
        from dataclasses import replace

        table = make_table()
        snapshot = replace(SqlTxnLogReader(lake.store).snapshot(table.id), protocol=protocol)
        with pytest.raises(deltasql.UnsupportedFeature, match=name):
            read_snapshot(lake.spark, snapshot)
