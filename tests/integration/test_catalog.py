"""Creating, opening, listing and dropping tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltasql
from tests.factories import add

Make = Callable[..., deltasql.Table]


class TestCreate:
    def test_from_ddl(self, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(
            f"{namespace}.orders",
            "id BIGINT NOT NULL, day DATE, amount DECIMAL(10,2)",
            partition_by=["day"],
            properties={"delta.checkpointInterval": "20"},
            constraints={"positive": "amount > 0"},
        )
        assert table.schema == pa.schema(
            [pa.field("id", pa.int64(), False), ("day", pa.date32()), ("amount", pa.decimal128(10, 2))]
        )
        assert (table.version, table.partition_columns) == (0, ("day",))
        assert table.properties == {"delta.checkpointInterval": "20", "delta.constraints.positive": "amount > 0"}
        assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 3)
        assert table.history()[0].operation == "CREATE TABLE"
        assert lake.table(table.name).id == lake.table(table.id).id == table.id

    def test_from_arrow(self, make_table: Make) -> None:
        schema = pa.schema([("id", pa.int32()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("ns"))])
        table = make_table(schema=schema)
        assert table.schema.names == ["id", "tags", "at"]
        assert table.protocol == deltasql.Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))

    @pytest.mark.parametrize(
        ("schema", "field"),
        [
            ("a ARRAY<STRUCT<x: INT NOT NULL>>", "a.element.x"),
            ("s STRUCT<m: MAP<STRING, STRUCT<y: STRUCT<z: INT NOT NULL>>>>", "s.m.value.y.z"),
            (pa.schema([("a", pa.list_(pa.struct([pa.field("x", pa.int32(), False)])))]), "a.element.x"),
        ],
    )
    def test_not_null_inside_arrays_and_maps_is_rejected(self, make_table: Make, schema: Any, field: str) -> None:
        with pytest.raises(
            deltasql.ValidationError, match=f"field '{field}': NOT NULL is not supported inside an array or a map"
        ):
            make_table(schema=schema)
        make_table(schema="s STRUCT<x: INT NOT NULL>")

    def test_default_namespace(self, lake: deltasql.Lake, namespace: str) -> None:
        table = lake.create_table(f"plain_{namespace}", "id BIGINT")
        assert table.name == f"public.plain_{namespace}"
        assert lake.table(f"plain_{namespace}").id == table.id

    def test_an_existing_name_is_rejected(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table()
        with pytest.raises(deltasql.TableExists, match=table.name):
            lake.create_table(table.name, "id BIGINT")

    @pytest.mark.parametrize("inside", ["", "/below", "/.."])
    def test_an_occupied_location_is_rejected(
        self, lake: deltasql.Lake, make_table: Make, tmp_path: Path, inside: str
    ) -> None:
        make_table(location=str(tmp_path / "a"))
        with pytest.raises(deltasql.TableExists, match="location"):
            make_table("other", location=f"{tmp_path}/a{inside}")
        make_table("sibling", location=f"{tmp_path}/ab")

    def test_a_default_location_inside_another_table(self, lake: deltasql.Lake, namespace: str) -> None:
        lake.create_table(f"{namespace}.a", "id INT", location=f".deltasql/tables/{namespace}")
        with pytest.raises(deltasql.TableExists, match="overlaps"):
            lake.create_table(f"{namespace}.b", "id INT")

    def test_nested_locations_created_at_once(self, lake: deltasql.Lake, namespace: str, tmp_path: Path) -> None:
        outcomes: list[object] = []

        def create(name: str, place: Path) -> None:
            try:
                outcomes.append(lake.create_table(f"{namespace}.{name}", "id INT", location=str(place)))
            except deltasql.TableExists as error:
                outcomes.append(error)

        for i in range(5):
            root = tmp_path / str(i)
            threads = [
                threading.Thread(target=create, args=(f"a{i}", root)),
                threading.Thread(target=create, args=(f"b{i}", root / "in")),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sum(isinstance(o, deltasql.Table) for o in outcomes) == 5

    def test_feature_switches_in_any_case(self, make_table: Make) -> None:
        """Feature switches are case-insensitive, as in Spark."""
        on = {"delta.enableInCommitTimestamps": "TRUE", "delta.deltasql.fence": "True", "delta.appendOnly": "tRuE"}
        table = make_table(properties=on)
        assert set(table.protocol.writer_features or ()) >= {"inCommitTimestamp", "deltasqlFence", "appendOnly"}
        first = (Path(table.location) / f"_delta_log/{0:020d}.json").read_text().splitlines()[0]
        assert "inCommitTimestamp" in json.loads(first)["commitInfo"]

    def test_property_names_in_any_case(self, lake: deltasql.Lake, make_table: Make) -> None:
        """Property names get their canonical case."""
        table = make_table(properties={"delta.checkpointinterval": "2", "DELTA.deltasql.Fence": "true", "Own": "kept"})
        assert table.properties == {"delta.checkpointInterval": "2", "delta.deltasql.fence": "true", "Own": "kept"}
        assert "deltasqlFence" in (table.protocol.writer_features or ())
        lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('delta.CHECKPOINTINTERVAL' = '5')")
        assert lake.table(table.id).properties["delta.checkpointInterval"] == "5"

    @pytest.mark.parametrize(
        ("options", "hint"),
        [
            ({"schema": "id WHAT"}, "WHAT"),
            ({"schema": ""}, "column"),
            ({"schema": "id BIGINT, ID INT"}, "id"),
            ({"partition_by": ["dya"]}, "day"),
            ({"partition_by": ["id", "day", "amount"]}, "partition"),
            ({"properties": {"a": 1}}, "strings"),
            ({"properties": {"deltasql.mirror.mod": "x"}}, r"mirror\.mode"),
            ({"properties": {"delta.enableRowTracking": "true", "delta.feature.rowTracking": "supported"}}, "rowTracking"),
            ({"properties": {"delta.columnMapping.mode": "name"}}, "columnMapping"),
            ({"properties": {"delta.enableDeletionVectors": "yes"}}, "'true' or 'false', got 'yes'"),
            ({"properties": {"delta.checkpointInterval": "0"}}, "a number of versions from 1, got '0'"),
            ({"properties": {"delta.logRetentionDuration": "bogus"}}, "'interval 30 days', got 'bogus'"),
            ({"properties": {"delta.enableRowTracking": "true"}}, "rowTracking"),
            ({"properties": {"delta.checkpontInterval": "2"}}, 'did you mean "delta.checkpointInterval"'),
            ({"properties": {"delta.xyz": "2"}}, "unknown property delta.xyz"),
            ({"properties": {"delta.minReaderVersion": "3"}}, "follows from the features in use"),
            ({"properties": {"delta.appendOnly": "true", "delta.APPENDONLY": "false"}}, "given twice"),
            ({"name": "a.b.c"}, "namespace"),
            ({"name": "we ird"}, "we_ird"),
        ],
    )  # fmt: skip
    def test_bad_input_creates_nothing(
        self, lake: deltasql.Lake, namespace: str, options: dict[str, object], hint: str
    ) -> None:
        given = {"name": f"{namespace}.t", "schema": "id BIGINT, day DATE, amount DOUBLE", **options}
        before = len(lake.tables())
        with pytest.raises(deltasql.UsageError, match=hint):
            lake.create_table(given.pop("name"), given.pop("schema"), **given)
        assert len(lake.tables()) == before


class TestLookUp:
    def test_a_missing_table(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table("orders")
        with pytest.raises(deltasql.TableNotFound, match=table.name) as caught:
            lake.table(table.name.replace("orders", "ordres"))
        assert caught.value.suggestion == table.name

    def test_listing(self, lake: deltasql.Lake, make_table: Make) -> None:
        table = make_table(properties={"owner": "me"})
        with lake.begin() as tx:
            tx.stage(table, [add(), add()])
        [info] = [i for i in lake.tables() if i.id == table.id]
        assert (info.name, info.version, info.num_files, info.location) == (table.name, 1, 2, table.location)
        assert info.properties == {"owner": "me"}


class TestDrop:
    def test_drop_keeps_files(self, lake: deltasql.Lake, make_table: Make, tmp_path: Path) -> None:
        table = make_table(location=str(tmp_path / "t"))
        file = tmp_path / "t" / "part.parquet"
        file.write_bytes(b"x")
        lake.drop_table(table.name)
        with pytest.raises(deltasql.TableNotFound):
            lake.table(table.name)
        assert file.exists()
        with pytest.raises(deltasql.TableNotFound):
            lake.drop_table(table.name)

    def test_purge_deletes_files(self, lake: deltasql.Lake, make_table: Make, tmp_path: Path) -> None:
        table = make_table(location=str(tmp_path / "t"))
        for name in ("a", "deep/b"):
            file = tmp_path / "t" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x")
        table.append(pa.table({"id": [1]}))
        table.overwrite(pa.table({"id": [2]}))
        planned = lake.drop_table(table.name, purge=True, dry_run=True)
        assert planned.kept == ("a", "deep/b")
        assert table.version == 2
        assert lake.drop_table(table.name, purge=True) == planned
        assert sorted(p.name for p in (tmp_path / "t").rglob("*") if p.is_file()) == ["a", "b"]
        assert not (tmp_path / "t" / "_delta_log").exists()

    @pytest.mark.parametrize(
        "location", ["/", str(Path.home()), str(Path.home().parent), "s3://bucket", "s3://bucket/"]
    )
    def test_a_location_is_not_a_root(self, make_table: Make, location: str) -> None:
        with pytest.raises(deltasql.UsageError, match="is a root, a home or a whole bucket"):
            make_table(location=location)

    def test_the_name_is_free_again_and_the_directory_is_not_shared(
        self, lake: deltasql.Lake, make_table: Make
    ) -> None:
        first = make_table()
        place = first.location
        lake.drop_table(first.name)
        second = make_table()
        assert second.id != first.id
        assert second.location != place

    def test_a_transaction_on_a_dropped_table(self, lake: deltasql.Lake, make_table: Make) -> None:
        for count in (1, 100):
            table = make_table(f"t{count}")
            tx = lake.begin()
            tx.stage(table, [add() for _ in range(count)])
            lake.drop_table(table.name)
            with pytest.raises(deltasql.TableNotFound, match=table.name):
                tx.commit()
