"""Reading rows with Arrow, without Spark: snapshots, column types, partitions, storage locations, errors."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.protocol.schema import schema_string
from deltasql.storage import Directory
from tests.data_files import put, write
from tests.factories import add, remove
from tests.readers import rows
from tests.s3 import S3Server
from tests.sample_columns import NESTED, PARTITIONS, PRIMITIVES, partitioned, table_of

Make = Callable[..., deltasql.Table]
UTC = pa.timestamp("us", "UTC")
NTZ = pa.timestamp("us")


def change_schema(table: deltasql.Table, schema: str) -> None:
    """Commit a new schema."""
    metadata = table.state().metadata
    assert metadata is not None
    with table.lake.begin() as tx:
        tx.stage(table, [replace_fields(metadata, schema_string=schema_string(schema))])


def replace_fields(metadata: deltasql.Metadata, **fields: Any) -> deltasql.Metadata:
    return deltasql.Metadata(**{name: getattr(metadata, name) for name in metadata.__struct_fields__} | fields)


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def seen(table: pa.Table, column: str = "id") -> list[Any]:
    return sorted(table[column].to_pylist())


class TestTypes:
    @pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
    def test_every_type(self, make_table: Make, columns: dict[str, Any]) -> None:
        expected = table_of(columns)
        table = make_table(schema=expected.schema)
        write(table, expected)
        found = table.arrow()
        assert found.schema.equals(table.schema, check_metadata=True)
        assert [str(field.type) for field in found.schema] == [
            str(kind).replace("item: ", "element: ") for kind in expected.schema.types
        ]
        assert rows(found) == rows(expected)
        found.validate(full=True)

    @pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
    def test_as_delta_rs_reads_it(self, make_table: Make, columns: dict[str, Any]) -> None:
        expected = table_of(columns)
        table = make_table(schema=expected.schema)
        write(table, expected)
        write(table, expected.slice(1))
        delta_rs = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.location))
        assert rows(table.arrow()) == rows(pa.table(delta_rs.execute("SELECT * FROM t").read_all()))

    @pytest.mark.parametrize(
        ("stored", "type"),
        [
            (pa.large_string(), "STRING"),
            (pa.string_view(), "STRING"),
            (pa.dictionary(pa.int32(), pa.string()), "STRING"),
            (pa.binary(), "STRING"),
            (pa.large_binary(), "BINARY"),
        ],
        ids=str,
    )
    def test_texts(self, make_table: Make, stored: pa.DataType, type: str) -> None:
        table = make_table(schema=f"x {type}")
        values = [b"a", None, b"\xc3\xa9"] if pa.types.is_large_binary(stored) else ["a", None, "é"]
        array = (
            pa.array(values).cast(stored)
            if not pa.types.is_dictionary(stored)
            else pa.array(values).dictionary_encode()
        )
        write(table, pa.table({"x": array}))
        found = table.arrow()["x"]
        assert found.type == (pa.string() if type == "STRING" else pa.binary())
        assert found.to_pylist() == values

    @pytest.mark.parametrize(
        ("stored", "type", "values"),
        [
            (pa.int8(), "SMALLINT", [-128, None, 127]),
            (pa.int8(), "BIGINT", [-128, None, 127]),
            (pa.int16(), "INT", [-5, None]),
            (pa.int32(), "BIGINT", [-(2**31), 2**31 - 1, None]),
            (pa.uint8(), "SMALLINT", [255, None]),
            (pa.uint32(), "BIGINT", [2**32 - 1]),
            (pa.int32(), "DOUBLE", [2**31 - 1, None]),
            (pa.float32(), "DOUBLE", [1.5, None]),
            (pa.int32(), "DECIMAL(12, 2)", [Decimal("5.00"), None]),
            (pa.decimal128(5, 1), "DECIMAL(12, 2)", [Decimal("-1234.50"), None]),
            (pa.date32(), "TIMESTAMP_NTZ", [dt.datetime(2024, 2, 29), None]),
            (pa.int32(), "TINYINT", [-128, None, 127]),
            (pa.int32(), "SMALLINT", [-32768, None, 32767]),
        ],
        ids=str,
    )
    def test_narrower_types_are_widened(
        self, make_table: Make, stored: pa.DataType, type: str, values: list[Any]
    ) -> None:
        table = make_table(schema=f"x {type}, deep STRUCT<y: ARRAY<{type}>>")
        narrow = pa.array(values, table.schema.field("x").type).cast(stored)
        deep = pa.array([{"y": narrow.to_pylist()}] * len(values), pa.struct([("y", pa.list_(stored))]))
        write(table, pa.table({"x": narrow, "deep": deep}))
        found = table.arrow()
        assert found.schema.types == table.schema.types
        assert found["x"].to_pylist() == values
        assert found["deep"].to_pylist() == [{"y": values}] * len(values)

    @pytest.mark.parametrize(
        ("stored", "type"),
        [
            (pa.int64(), "INT"),
            (pa.string(), "BIGINT"),
            (pa.int64(), "STRING"),
            (pa.float64(), "FLOAT"),
            (pa.int64(), "DOUBLE"),
            (pa.decimal128(12, 2), "DECIMAL(5, 1)"),
            (pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ"),
            (pa.int64(), "ARRAY<BIGINT>"),
            (pa.list_(pa.int64()), "BIGINT"),
            (pa.time64("us"), "BIGINT"),
            (pa.uint64(), "BIGINT"),
        ],
        ids=str,
    )
    def test_other_types_are_rejected(self, make_table: Make, stored: pa.DataType, type: str) -> None:
        table = make_table(schema=f"x {type}")
        path = write(table, pa.table({"x": pa.nulls(1).cast(stored)}))
        with pytest.raises(deltasql.ValidationError, match=f"{table.name}.*{path}.*column 'x' is"):
            table.arrow()

    def test_times(self, make_table: Make) -> None:
        """INT96, milliseconds, nanoseconds that are whole microseconds, and other time zones give the same instants."""
        table = make_table(schema="at TIMESTAMP, deep ARRAY<TIMESTAMP>")
        moment = dt.datetime(2024, 2, 29, 1, 2, 3, 456000)
        for kind, options in [
            (pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}),
            (pa.timestamp("ns", "UTC"), {"use_deprecated_int96_timestamps": True}),
            (pa.timestamp("ms", "UTC"), {}),
            (pa.timestamp("ns", "UTC"), {"version": "2.6"}),
            (pa.timestamp("us", "Europe/Berlin"), {}),
        ]:
            at = pa.array([moment.replace(tzinfo=dt.UTC)], UTC).cast(kind)
            deep = pa.ListArray.from_arrays([0, 1], at)
            write(table, pa.table({"at": at, "deep": deep}), **options)
        found = table.arrow()
        assert found.schema.field("at").type == UTC
        assert found["at"].to_pylist() == [moment.replace(tzinfo=dt.UTC)] * 5
        assert found["deep"].to_pylist() == [[moment.replace(tzinfo=dt.UTC)]] * 5

    def test_far_times_in_int96(self, make_table: Make) -> None:
        """The values are outside the range of nanoseconds since 1970."""
        table = make_table(schema="at TIMESTAMP")
        far = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)]
        array = pa.array(far, UTC).cast(NTZ)
        write(table, pa.table({"at": array}), use_deprecated_int96_timestamps=True)
        assert table.arrow()["at"].to_pylist() == far

    def test_nanoseconds_are_not_truncated(self, make_table: Make) -> None:
        table = make_table(schema="at TIMESTAMP")
        path = write(table, pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))}), version="2.6")
        with pytest.raises(deltasql.ValidationError, match=f"{path}.*a value does not fit timestamp"):
            table.arrow()

    def test_lists_of_other_kinds(self, make_table: Make) -> None:
        table = make_table(schema="x ARRAY<STRUCT<k: STRING, v: BIGINT>>")
        values = [[{"k": "a", "v": 1}], None, [], [{"k": None, "v": None}]]
        inner = pa.struct([("v", pa.int32()), ("k", pa.large_string())])
        for kind in (pa.large_list(inner), pa.list_(inner)):
            write(table, pa.table({"x": pa.array(values, kind)}))
        fixed = pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())]), 1)
        write(table, pa.table({"x": pa.array(values[:1], fixed)}))
        found = table.arrow()
        found.validate(full=True)
        assert found["x"].to_pylist() == [*values, *values, values[0]]
        assert found["x"].type == table.schema.field("x").type


class TestColumns:
    def test_order_and_names_come_from_the_table(self, make_table: Make) -> None:
        table = make_table(schema="a INT, `b.c` INT, b STRUCT<c: INT>, Id INT")
        b = pa.array([{"c": 3}])
        write(
            table,
            pa.table({"ID": pa.array([4], pa.int32()), "b": b, "b.c": pa.array([2], pa.int32()), "a": [1]}).cast(
                pa.schema(
                    [("ID", pa.int32()), ("b", pa.struct([("c", pa.int32())])), ("b.c", pa.int32()), ("a", pa.int32())]
                )
            ),
        )
        assert table.arrow().to_pylist() == [{"a": 1, "b.c": 2, "b": {"c": 3}, "Id": 4}]
        assert table.arrow(columns=["b"]).to_pylist() == [{"b": {"c": 3}}]
        assert table.arrow(columns=["b.c"]).to_pylist() == [{"b.c": 2}]
        assert table.arrow(where="`b.c` = 2 AND b.c = 3 AND id = 4").num_rows == 1
        assert table.arrow(where="`b.c` = 3").num_rows == table.arrow(where="b.c = 2").num_rows == 0

    def test_missing_columns_are_null(self, make_table: Make) -> None:
        table = make_table(
            schema="id BIGINT, pair STRUCT<x: INT>, many ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>"
        )
        old = {"id": 1, "pair": {"x": 1}, "many": [{"x": 1}, None], "m": [("k", {"x": 1}), ("n", None)]}
        empty = {"id": 2, "pair": None, "many": None, "m": None}
        write(table, pa.Table.from_pylist([old, empty], table.schema))
        longer = "STRUCT<y: STRING, x: INT, z: ARRAY<DATE>>"
        change_schema(
            table, f"new DATE, id BIGINT, pair {longer}, many ARRAY<{longer}>, m MAP<STRING, {longer}>, s {longer}"
        )
        found = table.arrow()
        found.validate(full=True)
        assert found.schema.equals(table.schema)
        x = {"y": None, "x": 1, "z": None}
        assert found.to_pylist() == [
            {"new": None, "id": 1, "pair": x, "many": [x, None], "m": [("k", x), ("n", None)], "s": None},
            {"new": None, "id": 2, "pair": None, "many": None, "m": None, "s": None},
        ]
        assert seen(table.arrow(where="new IS NULL AND pair.y IS NULL")) == [1, 2]
        assert seen(table.arrow(where="pair.x = 1")) == [1]
        assert table.arrow(where="new = '2026-01-01'").num_rows == 0

    def test_a_file_with_none_of_the_columns(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
        write(table, ids(*range(1000)), values={"p": "7"}, row_group_size=300)
        change_schema(table, "id BIGINT, p INT, later STRING")
        assert table.arrow(columns=["p", "later"]).to_pylist() == [{"p": 7, "later": None}] * 1000
        assert table.arrow(columns=["p"], where="later IS NULL AND p > 6").num_rows == 1000
        assert table.arrow(columns=["p"], where="p = 6").num_rows == 0

    def test_selected_columns(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, Name STRING, amount DOUBLE")
        write(table, pa.table({"id": [1, 2], "Name": ["a", "b"], "amount": [0.5, 1.5]}))
        assert table.arrow(columns=["amount", "name"]).to_pylist() == [
            {"amount": 0.5, "Name": "a"},
            {"amount": 1.5, "Name": "b"},
        ]
        assert table.arrow(columns="id", where="Name = 'b'").to_pylist() == [{"id": 2}]

    @pytest.mark.parametrize(
        ("columns", "problem"),
        [
            (["amout"], 'did you mean "amount"'),
            ([], "empty"),
            (["id", "ID"], "twice"),
            ([1], 'column "1" does not exist'),
            (["zz"], "known: id"),
        ],
    )
    def test_invalid_columns(self, make_table: Make, columns: list[Any], problem: str) -> None:
        with pytest.raises(deltasql.ValidationError, match=problem):
            make_table().arrow(columns=columns)

    def test_fields_that_are_not_nullable(self, make_table: Make) -> None:
        """Nullability of the file's fields does not have to match the schema of the table."""
        table = make_table(schema="id BIGINT NOT NULL, s STRUCT<x: INT NOT NULL>, l ARRAY<STRUCT<x: INT>>")
        change_schema(table, "id BIGINT NOT NULL, s STRUCT<x: INT NOT NULL>, l ARRAY<STRUCT<x: INT NOT NULL>>")
        loose = pa.schema(
            [("id", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("l", pa.list_(pa.struct([("x", pa.int32())])))]
        )
        rows_ = [{"id": 1, "s": {"x": 1}, "l": [{"x": 2}]}, {"id": 2, "s": None, "l": [None]}]
        write(table, pa.Table.from_pylist(rows_, loose))
        found = table.arrow()
        assert found.schema.equals(table.schema)
        assert found.to_pylist() == rows_


PLAIN = dt.datetime(2024, 2, 29, 1, 2, 3)


class TestPartitions:
    @pytest.mark.parametrize("name", PARTITIONS)
    def test_as_delta_rs_writes_them(self, name: str, make_table: Make, tmp_path: Path) -> None:
        """Partition values are read from the log, not from the paths."""
        expected = partitioned(*PARTITIONS[name])
        deltalake.write_deltalake(tmp_path / "theirs", expected, partition_by=["p"])
        table = make_table(schema=expected.schema, location=str(tmp_path / "ours"), partition_by=["p"])
        log = (tmp_path / "theirs" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        for action in (json.loads(line)["add"] for line in log if line.startswith('{"add"')):
            [number] = pq.read_table(tmp_path / "theirs" / unquote(action["path"]), partitioning=None)["id"].to_pylist()
            write(table, ids(number), f"p=wrong/{number}.parquet", action["partitionValues"])
        assert rows(table.arrow()) == rows(expected)
        assert rows(table.arrow()) == rows(deltalake.DeltaTable(table.location).to_pyarrow_table())

    @pytest.mark.parametrize(
        ("type", "text", "value"),
        [
            ("TIMESTAMP", "2024-02-29T01:02:03.000000Z", PLAIN.replace(tzinfo=dt.UTC)),
            ("TIMESTAMP", "2024-02-29 01:02:03", PLAIN.replace(tzinfo=dt.UTC)),
            ("TIMESTAMP", "2024-02-29T03:02:03+02:00", PLAIN.replace(tzinfo=dt.UTC)),
            ("TIMESTAMP", "2024-02-29 01:02:03.5", PLAIN.replace(microsecond=500000, tzinfo=dt.UTC)),
            ("TIMESTAMP_NTZ", "2024-02-29 01:02:03.000001", PLAIN.replace(microsecond=1)),
            ("TIMESTAMP_NTZ", "2024-02-29T01:02:03", PLAIN),
            ("DATE", "2024-02-29", dt.date(2024, 2, 29)),
            ("DECIMAL(38, 18)", "-12345678901234567890.5", Decimal("-12345678901234567890.500000000000000000")),
            ("DECIMAL(5, 2)", "1E1", Decimal("10.00")),
            ("DOUBLE", "-Infinity", -math.inf),
            ("DOUBLE", "1e300", 1e300),
            ("FLOAT", "0.1", 0.10000000149011612),
            ("TINYINT", "-128", -128),
            ("BOOLEAN", "true", True),
            ("BINARY", "aé", "aé".encode()),
            ("STRING", "null", "null"),
            ("STRING", " ", " "),
            ("INT", None, None),
            ("STRING", None, None),
        ],
        ids=str,
    )
    def test_texts_of_the_log(self, make_table: Make, type: str, text: str | None, value: Any) -> None:
        table = make_table(schema=f"id BIGINT, p {type}, z STRING", partition_by=["p"])
        write(table, ids(1, 2), values={"p": text})
        found = table.arrow()
        assert found.column_names == ["id", "p", "z"]
        assert found["p"].type == table.schema.field("p").type
        assert found["p"].to_pylist() == [value, value]

    def test_nan(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT, p DOUBLE", partition_by=["p"])
        write(table, ids(1), values={"p": "NaN"})
        write(table, ids(2), values={"p": "1.0"})
        assert seen(table.arrow(where="p > 5")) == [1]
        assert seen(table.arrow(where="p <> 1")) == [1]
        assert seen(table.arrow(where="p < 5")) == [2]

    @pytest.mark.parametrize(("type", "text"), [("TIMESTAMP", "soon"), ("DECIMAL(5, 2)", "1.005"), ("DOUBLE", "0x1p3")])
    def test_an_invalid_value_is_rejected(self, make_table: Make, type: str, text: str) -> None:
        table = make_table(schema=f"id BIGINT, p {type}", partition_by=["p"])
        path = write(table, ids(1), values={"p": text})
        assert table.arrow(columns=["id"]).num_rows == 1
        with pytest.raises(deltasql.ValidationError, match=f"{table.name}.*{path}.*'{text}' of column 'p'"):
            table.arrow()

    def test_a_file_that_holds_its_partition_column(self, make_table: Make) -> None:
        """The partition value of the log is used, not the column of the file, which some writers keep."""
        table = make_table(schema="id BIGINT, p INT", partition_by=["p"])
        write(table, pa.table({"p": pa.array([9], pa.int32()), "id": [1]}), values={"p": "7"})
        assert table.arrow().to_pylist() == [{"id": 1, "p": 7}]


class TestSnapshots:
    def test_only_committed_rows_are_read(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table(schema="id BIGINT")
        assert table.arrow().num_rows == 0
        assert table.arrow().schema == table.schema
        gone = write(table, ids(1))
        write(table, ids(2, 3))
        put(table, "not-committed.parquet", ids(99))
        with lake.begin() as tx:
            tx.stage(table, [remove(gone)])
        assert seen(table.arrow()) == [2, 3]
        assert [seen(table.arrow(version=v)) for v in range(4)] == [[], [1], [1, 2, 3], [2, 3]]
        assert seen(table.arrow(2, where="id < 3")) == [1, 2]

    def test_time_travel(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        for number in (1, 2, 3):
            write(table, ids(number))
        for entry in table.history():
            assert seen(table.arrow(timestamp=entry.timestamp)) == list(range(1, entry.version + 1))
            assert seen(table.batches(timestamp=entry.timestamp.isoformat()).read_all()) == list(
                range(1, entry.version + 1)
            )
        with pytest.raises(deltasql.UsageError, match="not both"):
            table.arrow(version=1, timestamp=table.history()[0].timestamp)
        with pytest.raises(deltasql.ValidationError, match="no version 9"):
            table.arrow(version=9)

    def test_the_schema_of_that_version(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        write(table, ids(1))
        change_schema(table, "id BIGINT, new STRING")
        write(table, pa.table({"id": [2], "new": ["x"]}))
        assert table.arrow(version=1).to_pylist() == [{"id": 1}]
        assert table.arrow().sort_by("id").to_pylist() == [{"id": 1, "new": None}, {"id": 2, "new": "x"}]
        with pytest.raises(deltasql.ValidationError, match='column "new" does not exist'):
            table.arrow(version=1, where="new = 'x'")

    def test_a_stream_stays_at_its_version(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table(schema="id BIGINT")
        path = write(table, ids(1))
        stream = table.batches()
        with lake.begin() as tx:
            tx.stage(table, [remove(path)])
        assert seen(stream.read_all()) == [1]
        assert table.arrow().num_rows == 0

    def test_a_snapshot_of_the_lake(self, make_table: Make, lake: deltasql.Lake) -> None:
        a, b = make_table("a", schema="id BIGINT"), make_table("b", schema="id BIGINT, x INT")
        write(a, ids(1))
        write(b, ids(10, 20))
        point = lake.snapshot()
        write(a, ids(2))
        assert seen(point.arrow(a.name)) == [1]
        assert point.arrow(b.name, where="id > 10", columns=["id"]).to_pylist() == [{"id": 20}]
        assert seen(point.batches(b.name).read_all()) == [10, 20]
        with pytest.raises(deltasql.ValidationError, match="not part of this snapshot"):
            point.arrow("no.such")

    def test_the_rows_of_a_file_stay_in_order(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        for number in range(30):
            write(table, ids(*range(number * 100, number * 100 + 100)), row_group_size=7)
        found = table.arrow()["id"].to_pylist()
        pieces = [found[start : start + 100] for start in range(0, 3000, 100)]
        assert sorted(pieces) == [list(range(start, start + 100)) for start in range(0, 3000, 100)]

    def test_files_without_rows(self, make_table: Make) -> None:
        table = make_table(schema="id BIGINT")
        write(table, ids())
        write(table, ids(1))
        write(table, pa.table({"id": pa.array([], pa.int64())}), row_group_size=1)
        assert seen(table.arrow()) == [1]


LOCATIONS = ["local", "memory", "s3", *(["azure"] if os.environ.get("TEST_AZURITE") else [])]


class TestLocations:
    @pytest.fixture(params=LOCATIONS)
    def table(
        self, request: pytest.FixtureRequest, embedded_lake: deltasql.Lake, tmp_path: Path, namespace: str
    ) -> Iterator[deltasql.Table]:
        options: dict[str, str] = {}
        location = {
            "local": f"{tmp_path}/a b+é%",
            "memory": f"memory:///{uuid.uuid4()}",
            "s3": f"s3://lake/{uuid.uuid4()} é+%",
            "azure": f"az://lake/{uuid.uuid4()}",
        }[request.param]
        if request.param == "s3":
            options = request.getfixturevalue("s3").options()
        if request.param == "azure":
            options = request.getfixturevalue("azure")
        config = {"postgres.schema": f"s{uuid.uuid4().hex}"}
        with deltasql.connect(embedded_lake.dsn, config=config, storage_options=options) as lake:
            yield lake.create_table(f"{namespace}.t", "id BIGINT, p STRING", location=location, partition_by=["p"])

    def test_special_characters_in_paths(self, table: deltasql.Table) -> None:
        names = [
            "a b.parquet",
            "p=a%3Ab/ü+&.parquet",
            "100%/x#y?.parquet",
            "it's/[x]{y}~.parquet",
            "%20.parquet",
            "日本=1/ .parquet",
        ]
        for number, name in enumerate(names):
            write(table, ids(number), name, {"p": name})
        expected = [{"id": number, "p": name} for number, name in enumerate(names)]
        assert table.arrow().to_pylist() == expected
        assert table.arrow(where="p = '%20.parquet'").to_pylist() == [expected[4]]

    def test_many_row_groups(self, table: deltasql.Table) -> None:
        data = pa.table({"id": pa.array(range(200_000), pa.int64())})
        write(table, data, "x.parquet", {"p": "a"}, row_group_size=10_000)
        assert table.arrow(columns=["id"]).equals(data)
        assert seen(table.arrow(where="id BETWEEN 9999 AND 10000 OR id = 150000")) == [9999, 10000, 150000]
        assert sum(batch.num_rows for batch in table.batches()) == 200_000

    def test_a_missing_file_is_named(self, table: deltasql.Table) -> None:
        write(table, ids(1), "there.parquet", {"p": None})
        with table.lake.begin() as tx:
            tx.stage(table, [add("not%20there.parquet", partition_values={"p": None})])
        with pytest.raises(
            deltasql.StorageError, match=f"{table.name}: file 'not there.parquet' .*does not exist"
        ) as caught:
            table.arrow()
        assert caught.value.table == table.name

    def test_a_broken_file_is_named(self, table: deltasql.Table) -> None:
        Directory(table.location, table.lake.storage_options).put("broken.parquet", b"PAR1 this is not Parquet")
        with table.lake.begin() as tx:
            tx.stage(table, [add("broken.parquet", partition_values={"p": None})])
        with pytest.raises(deltasql.StorageError, match=f"{table.name}: file 'broken.parquet' .*cannot be read"):
            table.batches().read_all()


def test_a_store_that_cannot_be_reached_is_named(embedded_lake: deltasql.Lake, s3: S3Server, namespace: str) -> None:
    config = {"postgres.schema": f"s{uuid.uuid4().hex}"}
    with deltasql.connect(embedded_lake.dsn, config=config, storage_options=s3.options()) as lake:
        table = lake.create_table(f"{namespace}.t", "id BIGINT", location=f"s3://lake/{uuid.uuid4()}")
        write(table, ids(1))
    closed = s3.options("http://127.0.0.1:9")
    with deltasql.connect(embedded_lake.dsn, config={**config, "mirror.mode": "off"}, storage_options=closed) as lake:
        with pytest.raises(deltasql.StorageError, match=f"{table.name}: file .* cannot be read: .*refused") as caught:
            lake.table(table.name).arrow()
    assert s3.secret not in str(caught.value)


class TestTableFeatures:
    def test_deletion_vectors(self, make_table: Make, lake: deltasql.Lake) -> None:
        """A deletion vector applies to a file that is read in several row groups, also with a predicate."""
        table = make_table(schema="id BIGINT", properties={"delta.enableDeletionVectors": "true"})
        write(table, ids(1))
        put(table, "with vector.parquet", ids(*range(100, 130)), row_group_size=7)
        vector = deltasql.DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
        stats = json.dumps({"numRecords": 30, "minValues": {"id": 100}, "maxValues": {"id": 129}})
        marked = replace_add(add("with%20vector.parquet", stats=stats), deletion_vector=vector)
        with lake.begin() as tx:
            tx.stage(table, [marked])
        left = [i for i in range(100, 130) if i - 100 not in (3, 4, 7, 11, 18, 29)]
        assert seen(table.arrow()) == [1, *left]
        assert seen(table.arrow(where="id BETWEEN 110 AND 120")) == [i for i in left if 110 <= i <= 120]
        assert table.arrow(columns=["id"], where="id >= 128")["id"].to_pylist() == [128]
        assert seen(table.arrow(version=1)) == [1]
        assert seen(table.arrow(where="id = 1")) == [1]

    def test_an_unknown_reader_feature(self, make_table: Make, lake: deltasql.Lake) -> None:
        """Only a later release of deltasql could commit such a protocol."""
        table = make_table(schema="id BIGINT", properties={"delta.feature.v2Checkpoint": "supported"})
        write(table, ids(1))
        assert table.arrow().num_rows == 1
        snapshot = deltasql.SqlTxnLogReader(lake.store).snapshot(table.id)
        from deltasql.engines.arrow.read.scan import scan

        for protocol, properties, name in [
            (deltasql.Protocol(3, 7, ("teleport",), ("teleport",)), {}, "teleport"),
            (deltasql.Protocol(2, 5), {"delta.columnMapping.mode": "name"}, "columnMapping"),
            (deltasql.Protocol(4, 7), {}, "reader version 4"),
        ]:
            metadata = replace_fields(snapshot.metadata, configuration=properties)
            with pytest.raises(deltasql.UnsupportedFeature, match=f"{table.name}.*{name}"):
                scan(replace(snapshot, protocol=protocol, metadata=metadata), {})


def replace_add(action: deltasql.Add, **fields: Any) -> deltasql.Add:
    return deltasql.Add(**{name: getattr(action, name) for name in action.__struct_fields__} | fields)
