"""`assert_same_rows` detects differences; in long runs, all readers agree on tables of delta-rs and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests import jars
from tests.readers import ENGINES, FAULTS, NO_NULL_CONTAINERS, as_seen_by, assert_same_rows, read, rows
from tests.sample_columns import NESTED, PARTITIONS, PRIMITIVES, partitioned, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENCODED_ROOT = "root that URLs encode"


@pytest.mark.long
@pytest.mark.parametrize("columns", [PRIMITIVES, NESTED], ids=["primitives", "nested"])
def test_every_type(columns: dict[str, Any], tmp_path: Path, spark_session: SparkSession) -> None:
    expected = table_of(columns)
    write_deltalake(tmp_path, expected)
    assert_same_rows(tmp_path, expected, spark=spark_session)


@pytest.mark.long
@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values(name: str, tmp_path: Path, spark_session: SparkSession) -> None:
    expected = partitioned(*PARTITIONS[name])
    write_deltalake(tmp_path, expected, partition_by=["p"])
    assert_same_rows(tmp_path, expected, spark=spark_session)


@pytest.mark.long
def test_several_partition_columns(tmp_path: Path, spark_session: SparkSession) -> None:
    expected = table_of({name: PARTITIONS[name] for name in ("int", "day", "decimal")})
    write_deltalake(tmp_path, expected, partition_by=["day", "decimal"])
    assert_same_rows(tmp_path, expected, spark=spark_session)


@pytest.mark.long
@pytest.mark.parametrize("checkpoint", [False, True], ids=["commits", "checkpoint"])
def test_every_version(checkpoint: bool, tmp_path: Path, spark_session: SparkSession) -> None:
    first = pa.table({"id": pa.array([1, 2], pa.int64())})
    second = pa.table({"id": pa.array([3], pa.int64()), "text": pa.array(["new"])})
    write_deltalake(tmp_path, first)
    write_deltalake(tmp_path, second, mode="append", schema_mode="merge")
    write_deltalake(tmp_path, second, mode="overwrite")
    if checkpoint:
        DeltaTable(tmp_path).create_checkpoint()
    both = pa.concat_tables([first, second], promote_options="default")
    for version, expected in enumerate([first, both, second]):
        assert_same_rows(tmp_path, expected, spark=spark_session, version=version)
    assert_same_rows(tmp_path, second, spark=spark_session)


@pytest.mark.long
def test_a_table_without_rows(tmp_path: Path, spark_session: SparkSession) -> None:
    expected = table_of({**PRIMITIVES, **NESTED}).slice(0, 0)
    write_deltalake(tmp_path, expected)
    assert_same_rows(tmp_path, expected, spark=spark_session)


@pytest.mark.long
def test_deletion_vectors(tmp_path: Path, spark_session: SparkSession) -> None:
    spark_session.sql(
        f"CREATE TABLE delta.`{tmp_path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    )
    spark_session.range(0, 5, 1, 1).write.format("delta").mode("append").save(str(tmp_path))
    spark_session.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = 3")
    assert [*tmp_path.glob("deletion_vector_*")]
    assert_same_rows(tmp_path, pa.table({"id": [0, 1, 2, 4]}), spark=spark_session)


CHANGES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a value": lambda ids: [*ids[:-1], 99],
    "a null": lambda ids: [*ids[:-1], None],
    "a row less": lambda ids: ids[:-1],
    "a row twice": lambda ids: [*ids, ids[-1]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_difference_is_detected_in_every_engine(change: str, tmp_path: Path, spark_session: SparkSession) -> None:
    write_deltalake(tmp_path, pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    changed = pa.table({"id": pa.array(CHANGES[change]([1, 2, 3]), pa.int64())})
    with pytest.raises(AssertionError) as caught:
        assert_same_rows(tmp_path, changed, spark=spark_session)
    for engine in ENGINES:
        assert f"{engine} reads 3 rows, expected {changed.num_rows}" in str(caught.value)


@pytest.mark.parametrize("column", [*PRIMITIVES, *NESTED])
def test_a_difference_is_detected_in_every_type(column: str) -> None:
    kind, (one, other, _) = {**PRIMITIVES, **NESTED}[column]
    assert rows(pa.table({"c": pa.array([one], kind)})) != rows(pa.table({"c": pa.array([other], kind)}))
    assert rows(pa.table({"c": pa.array([one, None], kind)})) == rows(pa.table({"c": pa.array([None, one], kind)}))


def test_message_of_a_difference(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": pa.array([1, 2], pa.int64())}))
    with pytest.raises(AssertionError) as caught:
        assert_same_rows(tmp_path, pa.table({"id": pa.array([1, 7], pa.int64())}), engines=["duckdb"], version=0)
    assert str(caught.value).splitlines() == [
        f"{tmp_path} at version 0",
        "duckdb reads 2 rows, expected 2",
        "  missing: (7,)",
        "  unexpected: (2,)",
    ]
    with pytest.raises(AssertionError, match=r"polars reads the columns \['id'\], expected \['other'\]"):
        assert_same_rows(tmp_path, pa.table({"other": [1, 2]}), engines=["polars"])
    with pytest.raises(AssertionError, match="delta-rs cannot read it: "):
        assert_same_rows(tmp_path / "none", pa.table({"id": [1]}), engines=["delta-rs"])


def test_faults_are_not_assumed(tmp_path: Path) -> None:
    expected = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(tmp_path, expected)
    with pytest.raises(AssertionError, match="polars reads all rows: out of date in FAULTS: column mapping"):
        assert_same_rows(tmp_path, expected, engines=["polars"], known_faults=["column mapping"])
    with pytest.raises(ValueError, match="no such fault: bad weather"):
        assert_same_rows(tmp_path, expected, engines=["polars"], known_faults=["bad weather"])
    with pytest.raises(ValueError, match="spark_session"):
        assert_same_rows(tmp_path, expected, engines=["spark"])


def with_wide_decimals(path: Path, spark: SparkSession) -> pa.Table:
    expected = partitioned(pa.decimal128(19, 2), [Decimal("1.25")])
    write_deltalake(path, expected, partition_by=["p"])
    return expected


def with_empty_text(path: Path, spark: SparkSession) -> pa.Table:
    expected = partitioned(pa.string(), ["", "a"])
    write_deltalake(path, expected, partition_by=["p"])
    return expected


def with_binary_partition(path: Path, spark: SparkSession) -> pa.Table:
    spark.sql(f"CREATE TABLE delta.`{path}` (p BINARY, id BIGINT) USING delta PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (CAST('abc' AS BINARY), 0)")
    return partitioned(pa.binary(), [b"abc"])


def with_absolute_path(path: Path, spark: SparkSession) -> pa.Table:
    expected = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(path, expected)
    commit = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = (path / action["add"]["path"]).as_uri()
    commit.write_text("\n".join(map(json.dumps, actions)))
    return expected


def with_flat_files(path: Path, spark: SparkSession) -> pa.Table:
    expected = partitioned(pa.decimal128(10, 2), [Decimal("1.25")])
    write_deltalake(path, expected, partition_by=["p"])
    [file] = path.glob("p=*/*.parquet")
    commit = path / "_delta_log" / f"{0:020}.json"
    commit.write_text(commit.read_text().replace(f"{file.parent.name}/", ""))
    file.rename(path / file.name)
    return expected


def with_column_mapping(path: Path, spark: SparkSession, columns: str, values: str, partition: str = "") -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta {partition} "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ({values})")


def with_mapped_columns(path: Path, spark: SparkSession) -> pa.Table:
    with_column_mapping(path, spark, "`a b` INT", "1")
    return pa.table({"a b": pa.array([1], pa.int32())})


def with_mapped_struct_in_map(path: Path, spark: SparkSession) -> pa.Table:
    with_column_mapping(path, spark, "m MAP<STRING, STRUCT<x: INT>>", "map('k', struct(1))")
    return pa.table({"m": pa.array([[("k", {"x": 1})]], pa.map_(pa.string(), pa.struct([("x", pa.int32())])))})


def with_mapped_partition(path: Path, spark: SparkSession) -> pa.Table:
    with_column_mapping(path, spark, "id INT, p STRING", "0, 'a'", "PARTITIONED BY (p)")
    return pa.table({"id": pa.array([0], pa.int32()), "p": ["a"]})


# Each function writes a table that shows the fault, and possibly the faults of the list.
FAULTY: dict[str, tuple[Callable[[Path, SparkSession], pa.Table], list[str]]] = {
    "decimal partition of 19 digits or more": (with_wide_decimals, []),
    "struct in a map under column mapping": (with_mapped_struct_in_map, ["column mapping"]),
    "absolute path": (with_absolute_path, []),
    "empty partition value": (with_empty_text, []),
    "files outside of Hive directories": (with_flat_files, []),
    "partition column not first under column mapping": (with_mapped_partition, ["column mapping"]),
    "column mapping": (with_mapped_columns, []),
    "binary partition": (with_binary_partition, []),
}


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTY)
def test_known_faults_are_still_there(what: str, tmp_path: Path, spark_session: SparkSession) -> None:
    write, others = FAULTY[what]
    expected = write(tmp_path, spark_session)
    assert_same_rows(tmp_path, expected, spark=spark_session, known_faults=[what, *others])


@pytest.mark.long
@pytest.mark.parametrize("name", ["a b", "ä", "it's"])
def test_special_characters_in_the_root(name: str, tmp_path: Path, spark_session: SparkSession) -> None:
    expected = partitioned(*PARTITIONS["text"])
    write_deltalake(tmp_path / name, expected, partition_by=["p"])
    known_faults = [ENCODED_ROOT] if name != "it's" else []
    assert_same_rows(tmp_path / name, expected, spark=spark_session, known_faults=known_faults)


def test_clickhouse_still_has_no_null_containers(tmp_path: Path) -> None:
    expected = table_of(NESTED)
    write_deltalake(tmp_path, expected)
    found = rows(read("clickhouse", tmp_path))
    assert found == rows(as_seen_by("clickhouse", expected))
    assert found != rows(expected)


def test_every_fault_has_a_test() -> None:
    assert {fault.engine for fault in FAULTS} <= set(ENGINES)
    assert {fault.what for fault in FAULTS} == {*FAULTY, NO_NULL_CONTAINERS.what, ENCODED_ROOT}


def test_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    jar = jars.Jar("delta", "g:a:1", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    answers = [b"abd", b"abd", b"abc"]

    def resolve(missing: list[jars.Jar], folder: Path) -> None:
        assert missing == [jar]
        (folder / "jars").mkdir()
        (folder / "jars" / "g_a-1.jar").write_bytes(answers.pop(0))

    monkeypatch.setattr(jars, "JARS", (jar,))
    monkeypatch.setattr(jars, "_resolve", resolve)
    monkeypatch.setenv("TEST_JARS", str(tmp_path))
    monkeypatch.delenv(jars.REQUIRE_SPARK, raising=False)
    assert jars.main() == 0
    assert "other bytes" in capsys.readouterr().err
    monkeypatch.setenv(jars.REQUIRE_SPARK, "1")
    assert jars.main() == 1
    assert [*tmp_path.iterdir()] == []

    assert jars.main() == 0
    assert jars.main() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a-1.jar"]
    assert capsys.readouterr().out.count("Downloading a-1.jar") == 2
