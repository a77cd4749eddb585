"""What the author of a table or of a statement may make other people's processes do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltasql

Make = Callable[..., deltasql.Table]
EVIL = "reflect('java.lang.System', 'setProperty', 'deltasql.owned', 'yes') IS NULL OR true"


@pytest.fixture
def jvm_is_clean(spark_session: SparkSession) -> Callable[[], bool]:
    system = spark_session.sparkContext._jvm.java.lang.System
    return lambda: system.getProperty("deltasql.owned") is None


def test_code_cannot_be_stored(make_table: Make, lake: deltasql.Lake, jvm_is_clean: Callable[[], bool]) -> None:
    with pytest.raises(
        deltasql.ValidationError, match="constraint c cannot be stored: function reflect is not allowed"
    ):
        make_table(constraints={"c": EVIL})
    with pytest.raises(deltasql.ValidationError, match="generated column 'b' cannot be stored"):
        make_table(schema=f"a BIGINT, b STRING GENERATED ALWAYS AS ({EVIL.partition(' IS')[0]})")
    table = make_table(schema="id BIGINT")
    table.append(pa.table({"id": [1]}))
    for statement in (
        f"ALTER TABLE {table.name} ADD CONSTRAINT c CHECK ({EVIL})",
        f"ALTER TABLE {table.name} ADD COLUMN x TEXT DEFAULT {EVIL.partition(' IS')[0]}",
        f"ALTER TABLE {table.name} ADD CONSTRAINT c CHECK (id IN (SELECT 1))",
    ):
        with pytest.raises(deltasql.UsageError):
            lake.sql(statement)
    assert table.version == 1


def test_a_table_with_stored_code_is_read_and_not_written(
    make_table: Make, lake: deltasql.Lake, jvm_is_clean: Callable[[], bool]
) -> None:
    """Another writer, or an older release, may have stored it."""
    table = make_table(schema="id BIGINT", constraints={"c": "id > 0"})
    table.append(pa.table({"id": [1]}))
    configuration = json.dumps({"delta.constraints.c": EVIL})
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        key = table.state().table_key
        text = "update deltasql.dl_metadata_updates set configuration = %s where table_key = %s"
        connection.execute(text, [configuration, key])
        shape = "update deltasql.dl_tables set shape_commit_id = shape_commit_id + 1 where table_key = %s"
        connection.execute(shape, [key])
    assert table.arrow().num_rows == table.df().count() == 1
    writes: list[Callable[[], object]] = [
        lambda: table.append(pa.table({"id": [2]})),
        lambda: table.append(lake.spark.range(1)),
        lambda: table.update({"id": "id + 1"}),
        lambda: lake.sql(f"INSERT INTO {table.name} VALUES (3)"),
        lambda: table.merge(pa.table({"id": [1]}), "t.id = s.id").when_matched_delete().execute(),
    ]
    for write in writes:
        with pytest.raises(deltasql.UnsupportedFeature, match="can be read and not written: its constraint c"):
            write()
    assert jvm_is_clean()
    assert table.version == 1


class TestFiles:
    def test_statements_read_no_files(self, lake: deltasql.Lake, spark_session: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "secret.txt").write_text("secret")
        for dialect, name in (
            ("postgres", f'text."{tmp_path}/secret.txt"'),
            ("spark", f"text.`{tmp_path}/secret.txt`"),
        ):
            with pytest.raises(deltasql.UsageError, match="statements cannot read files"):
                lake.sql(f"SELECT * FROM {name}", dialect=dialect)
        with deltasql.connect(lake.dsn, spark=spark_session, config={"sql.allow_files": "on"}) as other:
            assert other.sql(f'SELECT * FROM text."{tmp_path}/secret.txt"').collect()[0][0] == "secret"

    def test_locations_and_copies_stay_below_the_roots(
        self, lake: deltasql.Lake, spark_session: SparkSession, namespace: str, tmp_path: Path
    ) -> None:
        inside, outside = tmp_path / "in", tmp_path / "out"
        for folder in (inside, outside):
            folder.mkdir()
            (folder / "x.csv").write_text("1\n")
        (inside / "link").symlink_to(outside)
        config = {"storage.allowed_roots": f"{inside}, s3://bucket/data", "sql.allow_files": "on"}
        with deltasql.connect(lake.dsn, spark=spark_session, config=config) as other:
            table = other.create_table(f"{namespace}.t", "id BIGINT", location=str(inside / "t"))
            other.sql(f"COPY {table.name} FROM '{inside}/x.csv'")
            other.sql(f"COPY {table.name} TO '{inside}/y.csv'")
            for statement in (
                f"COPY {table.name} FROM '{outside}/x.csv'",
                f"COPY {table.name} FROM '{inside}/../out/x.csv'",
                f"COPY {table.name} FROM '{inside}/link/x.csv'",
                f"COPY {table.name} FROM 'file://{outside}/x.csv'",
                f"COPY {table.name} TO '{outside}/y.csv'",
                f'SELECT * FROM csv."{outside}/x.csv"',
                f'SELECT * FROM csv."{inside}/../out/x.csv"',
                f"CREATE TABLE {namespace}.u (id INT) LOCATION '{outside}/u'",
                f"CREATE TABLE {namespace}.u (id INT) LOCATION 's3://bucket/database/u'",
            ):
                with pytest.raises(deltasql.UsageError, match=r"is outside of storage\.allowed_roots"):
                    other.sql(statement)
            for statement in (f"COPY {table.name} FROM '{inside}/lin?/x.csv'", f'SELECT * FROM csv."{inside}/*"'):
                with pytest.raises(deltasql.UsageError, match="is a pattern"):
                    other.sql(statement)
            assert other.sql(f'SELECT * FROM csv."{inside}/x.csv"').collect()[0][0] == "1"
            assert table.version == 1

    def test_a_path_that_leads_out_is_not_read(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table(schema="id BIGINT")
        table.append(pa.table({"id": [1]}))
        for path in ("../x.parquet", "a/../../x.parquet", "/etc/x.parquet", "%2e%2e/x.parquet", "file:///x.parquet"):
            with psycopg.connect(lake.dsn, autocommit=True) as connection:
                key = table.state().table_key
                connection.execute("update deltasql.dl_add_files set path = %s where table_key = %s", [path, key])
            with deltasql.connect(lake.dsn) as other:
                for read in (other.table(table.id).arrow, other.table(table.id).df):
                    with pytest.raises(deltasql.ValidationError, match="names a file outside of the table"):
                        read()

    def test_lake_only_settings_are_no_table_properties(self, make_table: Make) -> None:
        for name in ("mirror.alert_webhook", "sql.allow_files", "storage.allowed_roots", "postgres.schema"):
            with pytest.raises(deltasql.UsageError, match="is not a property of tables"):
                make_table(properties={f"deltasql.{name}": "https://evil.example"})


class TestLinks:
    @pytest.fixture
    def linked(self, make_table: Make, tmp_path: Path) -> deltasql.Table:
        """A table with a data file and a folder that are links to another directory."""
        table = make_table(schema="id BIGINT", location=str(tmp_path / "t"))
        table.append(pa.table({"id": [1]}))
        outside = tmp_path / "outside"
        outside.mkdir()
        [file] = (tmp_path / "t").glob("*.parquet")
        file.rename(outside / file.name)
        file.symlink_to(outside / file.name)
        (outside / "other.txt").write_text("x")
        (tmp_path / "t" / "folder").symlink_to(outside)
        return table

    def test_readers_do_not_follow_them(self, linked: deltasql.Table) -> None:
        for read in (linked.arrow, linked.df):
            with pytest.raises(deltasql.StorageError, match=r"leads out of .* through a symbolic link"):
                read()

    def test_they_cannot_be_added(self, linked: deltasql.Table, tmp_path: Path) -> None:
        pq.write_table(pa.table({"id": [2]}), tmp_path / "outside" / "x.parquet")
        for path in ("folder/x.parquet", str(tmp_path / "t" / "folder" / "x.parquet")):
            with pytest.raises(deltasql.ValidationError, match=r"leads out of .* through a symbolic link"):
                linked.add_files([path])

    def test_a_purge_does_not_follow_them(self, linked: deltasql.Table, tmp_path: Path) -> None:
        linked.lake.drop_table(linked.name, purge=True)
        assert len(list((tmp_path / "outside").iterdir())) == 2

    def test_a_table_behind_a_link_works(self, lake: deltasql.Lake, namespace: str, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        table = lake.create_table(f"{namespace}.t", "id BIGINT", location=str(tmp_path / "link" / "t"))
        table.append(pa.table({"id": [1]}))
        assert table.arrow().num_rows == table.df().count() == 1
