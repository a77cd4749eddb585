"""Every outside reader returns the same rows from a published table."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import deltasql
from tests.readers import assert_same_rows, duckdb_where, read, rows
from tests.sample_columns import NESTED, PARTITIONS, PRIMITIVES, partitioned, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., deltasql.Table]


@pytest.fixture
def published(make_table: Make, tmp_path: Path) -> Callable[..., deltasql.Table]:
    """Create a table with the given rows, in one file per partition value."""

    def make(data: pa.Table, *, partition_by: tuple[str, ...] = (), **options: Any) -> deltasql.Table:
        table = make_table(schema=data.schema, location=str(tmp_path / "t"), partition_by=partition_by, **options)
        append(table, data)
        return table

    return make


def append(table: deltasql.Table, data: pa.Table) -> list[str]:
    """Add a version with the given rows, in one file per partition value, and return the paths."""
    names, values, version = [], [], table.version
    for number, (chunk, partition) in enumerate(split(data, table.partition_columns)):
        names.append("/".join([*map(hive, partition.items()), f"part-{version}-{number}.parquet"]))
        values.append(partition)
        (Path(table.location) / names[-1]).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(chunk, Path(table.location) / names[-1])
    table.add_files(names, partition_values=values)
    return names


def hive(item: tuple[str, str | None]) -> str:
    """Return the directory name of a partition in the format of Spark."""
    escaped = re.sub(r"[\"#%'*/:=?\\{\[\]^\x01-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", item[1] or "")
    return f"{item[0]}={escaped if item[1] is not None else '__HIVE_DEFAULT_PARTITION__'}"


def split(data: pa.Table, partition_by: tuple[str, ...]) -> Iterator[tuple[pa.Table, dict[str, str | None]]]:
    if not partition_by:
        yield data, {}
        return
    for row in range(data.num_rows):
        one = data.slice(row, 1)
        values = {c: serialised(one[c][0].as_py()) for c in partition_by}
        yield one.drop_columns(list(partition_by)), values


def serialised(value: Any) -> str | None:
    """Return a partition value in the format of the Delta protocol."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if value.tzinfo else f"{value:%Y-%m-%d %H:%M:%S.%f}"
    return None if value is None else str(value)


def keep_only_the_checkpoint(lake: deltasql.Lake, table: deltasql.Table) -> None:
    """Keep only the last version, its checkpoint and `_last_checkpoint`, like a log cleanup."""
    lake.mirror._checkpoints.write(lake.mirror._find(table.name), table.version)
    for file in (Path(table.location) / "_delta_log").glob("*.json"):
        if int(file.stem) < table.version:
            file.unlink()


@pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
def test_every_type(
    lake: deltasql.Lake,
    columns: dict[str, Any],
    published: Callable[..., deltasql.Table],
    spark_session: SparkSession,
) -> None:
    expected = table_of(columns)
    table = published(expected, properties={"delta.checkpoint.writeStatsAsStruct": "true"})
    assert_same_rows(Path(table.location), expected, spark=spark_session)
    keep_only_the_checkpoint(lake, table)
    assert_same_rows(Path(table.location), expected, spark=spark_session)


@pytest.mark.parametrize("as_struct", ["true", "false"])
def test_partition_values(
    lake: deltasql.Lake, as_struct: str, published: Callable[..., deltasql.Table], spark_session: SparkSession
) -> None:
    """The table has one partition column of each type, and one file for each value."""
    count = max(len(values) for _, values in PARTITIONS.values())
    columns = {
        name: (kind, [*values, *values[-1:] * (count - len(values))]) for name, (kind, values) in PARTITIONS.items()
    }
    expected = table_of({**columns, "id": (pa.int64(), list(range(count)))})
    properties = {"delta.checkpoint.writeStatsAsStruct": as_struct}
    table = published(expected, partition_by=tuple(columns), properties=properties)
    if as_struct == "false":
        assert_same_rows(Path(table.location), expected, spark=spark_session)
    keep_only_the_checkpoint(lake, table)
    assert_same_rows(Path(table.location), expected, spark=spark_session)


@pytest.mark.parametrize(
    ("kind", "texts", "where", "expected"),
    [
        ("FLOAT", ["0.1", "NaN", "-Infinity", None], "p < 5", [0, 2]),
        ("FLOAT", ["0.1", "NaN", "-Infinity", None], "p > 0.05", [0, 1]),
        ("DOUBLE", ["0.1", "NaN", "Infinity", "-0.0", None], "p > 0.05", [0, 1, 2]),
        ("DOUBLE", ["0.1", "NaN", "Infinity", "-0.0", None], "p <> 7", [0, 1, 2, 3]),
        ("BINARY", ["abc", "zz", None], "p <> 'abc'::BLOB", [1]),
        ("DECIMAL(38,0)", ["9" * 38, "-1", None], "p > 5", [0]),
        ("TIMESTAMP", ["2024-01-01T00:00:00.000000Z", "2024-01-01 00:00:00", None], "p > '2000-01-01'", [0, 1]),
    ],
)
def test_files_skipped_by_the_partition_values_of_a_checkpoint(
    make_table: Make, lake: deltasql.Lake, kind: str, texts: list[str | None], where: str, expected: list[int]
) -> None:
    table = make_table(
        schema=f"id BIGINT, p {kind}",
        partition_by=["p"],
        properties={"delta.checkpointInterval": "1", "delta.checkpoint.writeStatsAsStruct": "true"},
    )
    names = [f"{number}.parquet" for number in range(len(texts))]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), Path(table.location) / name)
    table.add_files(names, partition_values=[{"p": text} for text in texts])
    keep_only_the_checkpoint(lake, table)
    assert sorted(duckdb_where(Path(table.location), where)["id"].to_pylist()) == expected


@pytest.mark.parametrize("as_struct", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_spark_skips_files_by_the_statistics_of_a_checkpoint(
    lake: deltasql.Lake, as_struct: str, published: Callable[..., deltasql.Table], spark_session: SparkSession
) -> None:
    from pyspark.sql import functions as sf

    whole = table_of({name: column for name, column in PRIMITIVES.items() if name not in ("f32", "f64", "bytes")})
    properties = {
        "delta.checkpoint.writeStatsAsStruct": as_struct,
        "delta.checkpoint.writeStatsAsJson": "false" if as_struct == "true" else "true",
    }
    table = published(whole.slice(0, 1), properties=properties)
    for row in (1, 2):
        append(table, whole.slice(row, 1))
    keep_only_the_checkpoint(lake, table)
    frame = spark_session.read.format("delta").load(table.location)
    for name in whole.column_names:
        for value in (whole[name][0].as_py(), whole[name][1].as_py()):
            found = frame.where(sf.col(name) == sf.lit(value).cast(frame.schema[name].dataType))
            assert found.count() == 1, (name, value)
        assert frame.where(sf.col(name).isNull()).count() == 1
    none = frame.where("i64 = 5 AND i32 = 6")
    assert (none.count(), len(none.inputFiles())) == (0, 0)


def test_partition_directories_of_any_name(make_table: Make, tmp_path: Path, spark_session: SparkSession) -> None:
    expected = partitioned(*PARTITIONS["text"])
    table = make_table(schema=expected.schema, location=str(tmp_path / "t"), partition_by=["p"])
    paths = []
    for number, (chunk, values) in enumerate(split(expected, ("p",))):
        folder = Path(table.location) / (values["p"] or "none").replace("/", "%2F").replace("\\", "%5C")
        folder.mkdir()
        pq.write_table(chunk, folder / f"part {number}+é.parquet")
        paths.append(str((folder / f"part {number}+é.parquet").relative_to(table.location)))
    partition_values = [values for _, values in split(expected, ("p",))]
    table.add_files(paths, partition_values=partition_values)
    known_faults = ["files outside of Hive directories"]
    assert_same_rows(Path(table.location), expected, spark=spark_session, known_faults=known_faults)


def test_a_table_without_rows(make_table: Make, tmp_path: Path, spark_session: SparkSession) -> None:
    expected = table_of(PRIMITIVES).slice(0, 0)
    table = make_table(schema=expected.schema, location=str(tmp_path / "t"))
    assert_same_rows(Path(table.location), expected, spark=spark_session)


def test_many_versions_with_checkpoints(
    lake: deltasql.Lake, published: Callable[..., deltasql.Table], spark_session: SparkSession
) -> None:
    pieces = [pa.table({"id": pa.array([n], pa.int64()), "text": [f"row {n}"]}) for n in range(14)]
    table = published(pieces[0], properties={"delta.checkpointInterval": "5"})
    files = [append(table, piece)[0] for piece in pieces[1:]]
    with lake.begin() as tx:
        tx.stage(table, [deltasql.Remove(path=files[0], deletion_timestamp=0)])
    lake.mirror.settle()
    log = Path(table.location) / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) >= 1
    root = Path(table.location)
    assert_same_rows(root, pa.concat_tables([pieces[0], *pieces[2:]]), spark=spark_session)
    for version in (1, 6, 14):
        assert_same_rows(root, pa.concat_tables(pieces[:version]), spark=spark_session, version=version)


def test_spark_streams_from_a_published_table(
    lake: deltasql.Lake, published: Callable[..., deltasql.Table], tmp_path: Path, spark_session: SparkSession
) -> None:
    pieces = [pa.table({"id": pa.array([n], pa.int64())}) for n in range(4)]
    table = published(pieces[0])
    stream = spark_session.readStream.format("delta").load(table.location)

    def drain() -> list[int]:
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "state"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return sorted(row.id for row in spark_session.read.parquet(str(tmp_path / "out")).collect())

    assert drain() == [0]
    for piece in pieces[1:]:
        append(table, piece)
    assert drain() == [0, 1, 2, 3]


def test_spark_reads_commit_timestamps(published: Callable[..., deltasql.Table], spark_session: SparkSession) -> None:
    data = pa.table({"id": pa.array([1], pa.int64())})
    table = published(data, properties={"delta.enableInCommitTimestamps": "true"})
    append(table, data)
    history = {row.version: row for row in spark_session.sql(f"DESCRIBE HISTORY delta.`{table.location}`").collect()}
    entries = {entry.version: entry for entry in table.history()}
    assert history.keys() == entries.keys()
    for version, row in history.items():
        assert row.timestamp.timestamp() == int(entries[version].timestamp.timestamp() * 1000) / 1000
        assert row.operation == entries[version].operation


class TestFence:
    def test_with_the_fence_readers_read_and_writers_fail(
        self, published: Callable[..., deltasql.Table], spark_session: SparkSession
    ) -> None:
        data = pa.table({"id": pa.array([1, 2], pa.int64())})
        table = published(data, properties={"delta.deltasql.fence": "true"})
        assert_same_rows(Path(table.location), data, spark=spark_session)
        with pytest.raises(DeltaError, match="deltasqlFence"):
            write_deltalake(table.location, data, mode="append")
        frame = spark_session.createDataFrame([(3,)], "id BIGINT")
        with pytest.raises(Exception, match="deltasqlFence"):
            frame.write.format("delta").mode("append").save(table.location)
        assert_same_rows(Path(table.location), data, spark=spark_session)

    def test_without_the_fence_a_foreign_commit_stops_the_mirror(
        self, lake: deltasql.Lake, published: Callable[..., deltasql.Table]
    ) -> None:
        data = pa.table({"id": pa.array([1], pa.int64())})
        table = published(data)
        write_deltalake(table.location, data, mode="append")
        append(table, data)
        status = next(s for s in lake.mirror.status() if s.table == table.name)
        assert (status.status, status.published, status.version) == ("FAILED", 1, 2)
        assert "delta-rs" in (status.error or "")
        first = json.loads((Path(table.location) / f"_delta_log/{2:020d}.json").read_text().splitlines()[0])
        assert "delta-rs" in first["commitInfo"]["engineInfo"]
        lake.drop_table(table.name)  # stops further retries


def test_delta_rs_continues_where_deltasql_stopped(
    lake: deltasql.Lake, published: Callable[..., deltasql.Table], spark_session: SparkSession
) -> None:
    """A table dropped from the lake is an ordinary Delta table."""
    data = pa.table({"id": pa.array([1], pa.int64())})
    table = published(data)
    location = Path(table.location)
    lake.drop_table(table.name)
    write_deltalake(location, data, mode="append")
    DeltaTable(location).create_checkpoint()
    assert rows(read("spark", location, spark=spark_session)) == rows(pa.concat_tables([data, data]))


FEATURES = {
    "timestampNtz": ("at TIMESTAMP_NTZ", {}),
    "defaults": ("n INT DEFAULT 5", {}),
    "generated": ("twice BIGINT GENERATED ALWAYS AS (id * 2)", {}),
    "vectors": ("n INT", {"delta.enableDeletionVectors": "true"}),
    "commit timestamps": ("n INT", {"delta.enableInCommitTimestamps": "true"}),
    "feed": ("n INT", {"delta.enableChangeDataFeed": "true"}),
    "fence": ("n INT", {"delta.deltasql.fence": "true"}),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_not_null_columns(make_table: Make, spark_session: SparkSession, feature: str) -> None:
    """A protocol with a list of features includes those of NOT NULL columns, for every reason of the list."""
    column, properties = FEATURES[feature]
    table = make_table(schema=f"id BIGINT NOT NULL, s STRUCT<x: BIGINT NOT NULL>, {column}", properties=properties)
    table.append(pa.table({"id": [1, 2], "s": [{"x": 1}, {"x": 2}]}))
    assert_same_rows(Path(table.location), table.arrow(), spark=spark_session)
