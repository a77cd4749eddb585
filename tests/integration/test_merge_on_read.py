"""Tables with deletion vectors: small changes mark rows instead of rewriting files, and all readers agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

import deltasql
from deltasql.engines.arrow.read.deletion_vector_read import bitmaps
from deltasql.engines.spark.dml import rewrite_files
from deltasql.engines.spark.scan import snapshot_frame
from deltasql.protocol.deletion_vectors import VectorFile, encode
from deltasql.storage import Directory
from tests.ageing import clean
from tests.golden import changes_by_spark, replay
from tests.local_spark import PLAIN
from tests.readers import assert_same_rows, read, rows

pytestmark = pytest.mark.usefixtures("spark_session")
ON = {"delta.enableDeletionVectors": "true"}
Make = Callable[..., deltasql.Table]


def numbers(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": list(ids), "part": [f"p{i % 2}" for i in ids], "n": pa.array([0 for _ in ids], pa.int32())})


@pytest.fixture
def table(make_table: Make) -> deltasql.Table:
    """A table of two files with 100 rows each."""
    table = make_table(schema="id BIGINT, part STRING, n INT", properties=ON)
    table.append(numbers(0, 100))
    table.append(numbers(100, 100))
    return table


def vectors(table: deltasql.Table) -> dict[str, int]:
    """Return the number of deleted rows of each file with a deletion vector."""
    files = table.files().to_pylist()
    return {f["path"]: json.loads(f["deletion_vector"])["cardinality"] for f in files if f["deletion_vector"]}


def paths(table: deltasql.Table) -> set[str]:
    return set(table.files()["path"].to_pylist())


def ids(found: Any) -> list[int]:
    column = found["id"].to_pylist() if isinstance(found, pa.Table) else [row["id"] for row in found.collect()]
    assert len(column) == len(set(column))
    return sorted(column)


def json_of(table: deltasql.Table, version: int) -> list[dict[str, Any]]:
    """Return the actions of a published commit file."""
    text = (Path(table.location) / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def rows_of(table: deltasql.Table, vector: dict[str, Any]) -> Any:
    """Return the row numbers of a deletion vector of the log."""
    parsed = deltasql.protocol.actions.from_dict(deltasql.DeletionVector, vector)
    (found,) = bitmaps(Directory(str(table.location), {}), [parsed], table.name)
    return found


def assert_read_alike(table: deltasql.Table, spark: SparkSession) -> None:
    """Assert that Arrow, Spark and all outside readers return the same rows."""
    ours = table.arrow()
    assert rows(table.df().toArrow()) == rows(ours)
    assert_same_rows(Path(table.location), ours, spark=spark)


def test_a_delete_marks_rows(table: deltasql.Table, spark_session: SparkSession) -> None:
    before = paths(table)
    protocol = table.state().protocol
    assert protocol is not None
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    table.delete(where="id IN (3, 5, 150)")
    assert paths(table) == before, "no file was rewritten"
    assert sorted(vectors(table).values()) == [1, 2]
    assert ids(table.arrow()) == [i for i in range(200) if i not in (3, 5, 150)]
    assert_read_alike(table, spark_session)
    metrics = table.history()[0].metrics
    names = ("numDeletedRows", "numCopiedRows", "numAddedFiles", "numRemovedFiles", "numDeletionVectorsAdded")
    assert [metrics[name] for name in names] == ["3", "0", "0", "0", "2"]
    table.delete(where="id = 7")
    assert sorted(vectors(table).values()) == [1, 3], "rows deleted before stay deleted"
    assert ids(table.arrow()) == [i for i in range(200) if i not in (3, 5, 7, 150)]
    assert_read_alike(table, spark_session)
    assert ids(table.arrow(version=3)) == [i for i in range(200) if i not in (3, 5, 150)]
    assert ids(table.arrow(where="id < 10")) == [0, 1, 2, 4, 6, 8, 9]
    assert ids(table.df(where="id < 10")) == [0, 1, 2, 4, 6, 8, 9]
    assert table.df().count() == table.df().agg({"id": "count"}).collect()[0][0] == 196


@pytest.mark.skipif(PLAIN, reason="Delta's jars are for the locked Spark")
def test_bounds_are_not_taken_for_values(table: deltasql.Table, spark_session: SparkSession) -> None:
    """Other engines do not answer min and max from statistics, which include the deleted rows."""
    table.delete(where="id IN (0, 199)")
    query = "SELECT min(id), max(id), count(*), count(id) FROM "
    by_delta = spark_session.sql(f"{query} delta.`{table.location}`").collect()
    table.df().createOrReplaceTempView("bounds")
    assert by_delta == spark_session.sql(f"{query} bounds").collect() == [(1, 198, 198, 198)]


def test_above_the_threshold_files_are_rewritten(table: deltasql.Table, spark_session: SparkSession) -> None:
    before = paths(table)
    table.delete(where="id < 20")
    assert vectors(table) == dict.fromkeys(vectors(table), 20), "20 % are marked"
    assert paths(table) == before
    table.delete(where="id = 20")
    assert (vectors(table), len(before & paths(table))) == ({}, 1), (
        "above 20 % the file is rewritten without the marked rows"
    )
    assert ids(table.arrow()) == list(range(21, 200))
    assert_read_alike(table, spark_session)


def test_exactly_the_threshold_is_marked(make_table: Make) -> None:
    """The threshold of 29 rows is not lowered by the float product 0.29 * 100."""
    thresholds = {"deltasql.dml.copy_on_write_threshold": "29%", "deltasql.optimize.deleted_share": "0.29"}
    table = make_table(schema="id BIGINT, part STRING, n INT", properties={**ON, **thresholds})
    table.append(numbers(0, 100))
    table.delete(where="id < 29")
    assert list(vectors(table).values()) == [29]
    assert table.optimize(target_size=1).metrics == {}, "exactly the share is not above it"
    table.delete(where="id = 29")
    assert (vectors(table), table.files().num_rows) == ({}, 1)


def test_a_file_without_live_rows_is_removed(table: deltasql.Table) -> None:
    table.delete(where="id % 10 = 3")
    assert sorted(vectors(table).values()) == [10, 10]
    table.delete(where="id >= 100")
    assert list(vectors(table).values()) == [10]
    assert ids(table.arrow()) == [i for i in range(100) if i % 10 != 3]
    assert table.history()[0].metrics["numDeletedRows"] == "90"


@pytest.mark.parametrize("where", ["id IN (1, 101)", None])
def test_update(table: deltasql.Table, spark_session: SparkSession, where: str | None) -> None:
    table.delete(where="id = 50")
    before = paths(table)
    table.update({"n": "n + 1"}, where=where)
    changed = {row["id"] for row in table.arrow().to_pylist() if row["n"] == 1}
    assert changed == ({1, 101} if where else set(range(200)) - {50})
    assert (before <= paths(table)) == (where is not None)
    assert ids(table.arrow()) == [i for i in range(200) if i != 50]
    assert_read_alike(table, spark_session)


def test_update_returning_and_again(table: deltasql.Table) -> None:
    for turn in (1, 2, 3):
        seen = table.update({"n": "n + 1"}, where="id % 50 = 7", returning=["id", "n"])
        assert {(row["id"], row["n"]) for row in seen.collect()} == {(i, turn) for i in (7, 57, 107, 157)}
    assert ids(table.arrow()) == list(range(200))
    assert [f["deletion_vector"] is not None for f in table.files().sort_by("path").to_pylist()].count(True) == 2


def test_merge(table: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession) -> None:
    table.delete(where="id = 2")
    before = paths(table)
    seen = lake.sql(
        f"MERGE INTO {table.name} t USING (VALUES (1, 5), (2, 6), (3, 7), (150, 8)) AS s(id, n) ON t.id = s.id "
        "WHEN MATCHED AND s.n = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n "
        "WHEN NOT MATCHED THEN INSERT (id, part, n) VALUES (s.id, 'new', s.n) RETURNING merge_action() AS a, t.id"
    )
    found = sorted((row["a"], row["id"]) for row in seen.collect())
    assert found == [("DELETE", 3), ("INSERT", 2), ("UPDATE", 1), ("UPDATE", 150)]
    assert before < paths(table)
    assert ids(table.arrow()) == [i for i in range(200) if i != 3]
    assert {row["id"]: row["n"] for row in table.arrow().to_pylist() if row["n"]} == {1: 5, 2: 6, 150: 8}
    assert_read_alike(table, spark_session)


def test_partitions_and_moves(make_table: Make, spark_session: SparkSession) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT", partition_by=["part"], properties=ON)
    table.append(numbers(0, 100))
    table.update({"part": "'ä ö'"}, where="id IN (1, 2)")
    table.delete(where="part = 'p0' AND id = 4")
    assert sorted(vectors(table).values()) == [1, 2]
    table.delete(where="part = 'p1'")
    assert ids(table.arrow()) == [0, 1, 2, *range(6, 100, 2)]
    assert_read_alike(table, spark_session)


def test_large_vectors_get_a_file(make_table: Make, spark_session: SparkSession) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT", properties=ON)
    table.append(numbers(0, 20_000))
    table.delete(where="pmod(hash(id), 10) = 0")
    (file,) = table.files().to_pylist()
    vector = json.loads(file["deletion_vector"])
    assert vector["storageType"] == "u"
    assert len(list(Path(table.location).glob("deletion_vector_*.bin"))) == 1
    assert json.loads(file["stats"])["tightBounds"] is False
    assert json.loads(file["stats"])["numRecords"] == 20_000
    assert table.arrow().num_rows == 20_000 - vector["cardinality"]
    assert_read_alike(table, spark_session)


def test_vectors_that_are_too_large_for_all_tasks(
    table: deltasql.Table, monkeypatch: pytest.MonkeyPatch, spark_session: SparkSession
) -> None:
    """Vectors above the broadcast limit are read by the tasks."""
    monkeypatch.setattr(snapshot_frame, "_MOST_WORDS", 0)
    table.delete(where="id IN (3, 150)")
    table.update({"n": "1"}, where="id IN (3, 4, 151)")
    assert_read_alike(table, spark_session)
    assert {row["id"] for row in table.df(where="n = 1").collect()} == {4, 151}


def test_large_vectors_are_merged_by_tasks(
    table: deltasql.Table, monkeypatch: pytest.MonkeyPatch, spark_session: SparkSession
) -> None:
    monkeypatch.setattr(rewrite_files, "_MOST_IDS_ON_DRIVER", 0)
    table.delete(where="id IN (3, 150)")
    table.update({"n": "1"}, where="id IN (3, 4, 151)")
    assert sorted(vectors(table).values()) == [2, 2]
    assert_read_alike(table, spark_session)


def test_an_invalid_vector_location_is_rejected(table: deltasql.Table, lake: deltasql.Lake) -> None:
    (path, *_) = table.files()["path"].to_pylist()
    for kind, text in (("p", "file:///elsewhere.bin"), ("u", "../" + "0" * 20), ("x", "what")):
        vector = deltasql.DeletionVector(kind, text, 10, 1, 1)
        add = deltasql.Add(path, 100, 0, stats='{"numRecords":100}', deletion_vector=vector)
        with pytest.raises(deltasql.ValidationError, match="deletion vector"), lake.begin() as tx:
            tx.stage(table, [deltasql.Remove(path), add])
    assert table.version == 2


def test_a_vector_file_is_checked_when_it_is_staged(table: deltasql.Table, lake: deltasql.Lake) -> None:
    (path, *_) = table.files()["path"].to_pylist()
    for deleted, change, problem in (
        ([99], 0, None),
        ([100], 0, "deletes row 100, and the file has 100 rows"),
        ([1, 2], 1, "damaged"),
        ([1, 2], -1, "damaged"),
    ):
        file = VectorFile()
        vector = file.put(encode(BitMap64(deleted)), len(deleted) + change)
        (Path(table.location) / file.path).write_bytes(file.content)
        add = deltasql.Add(path, 100, 0, stats='{"numRecords":100}', deletion_vector=vector)
        if problem is None:
            lake.begin().stage(table, [deltasql.Remove(path), add])
            continue
        with pytest.raises(deltasql.ValidationError, match=problem):
            lake.begin().stage(table, [deltasql.Remove(path), add])


def test_by_alter_table(make_table: Make, lake: deltasql.Lake) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT")
    table.append(numbers(0, 100))
    before = paths(table)
    lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.delete(where="id = 1")
    assert (paths(table), list(vectors(table).values())) == (before, [1])
    lake.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('deltasql.dml.copy_on_write_threshold' = '0')")
    table.delete(where="id = 2")
    assert (len(paths(table) & before), vectors(table)) == (0, {})
    assert ids(table.arrow()) == [0, *range(3, 100)]


class TestTransactions:
    def test_several_statements(self, table: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession) -> None:
        """A transaction marks rows of committed files and of the file that it writes, several times."""
        with lake.begin() as tx:
            tx.write(table, numbers(200, 100))
            tx.delete(table, where="id IN (1, 201)")
            assert ids(tx.arrow(table)) == [i for i in range(300) if i not in (1, 201)]
            tx.delete(table, where="id IN (2, 202)")
            tx.update(table, {"n": "5"}, where="id = 203")
            assert tx.df(table).where("n = 5").count() == 1
        assert table.version == 3
        assert sorted(vectors(table).values()) == [2, 3]
        assert ids(table.arrow()) == [i for i in range(300) if i not in (1, 2, 201, 202)]
        assert_read_alike(table, spark_session)

    def test_a_failure_leaves_the_data_and_no_vectors(self, make_table: Make, lake: deltasql.Lake) -> None:
        table = make_table(schema="id BIGINT, part STRING, n INT", properties=ON)
        table.append(numbers(0, 20_000))
        before = {path for path in Path(table.location).rglob("*") if "_delta_log" not in path.parts}
        with pytest.raises(ZeroDivisionError), lake.begin() as tx:
            tx.delete(table, where="pmod(hash(id), 10) = 0")
            assert len(list(Path(table.location).glob("*.bin"))) == 1
            raise ZeroDivisionError
        assert {path for path in Path(table.location).rglob("*") if "_delta_log" not in path.parts} == before
        assert table.arrow().num_rows == 20_000

    def test_savepoint(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        with lake.begin() as tx:
            tx.delete(table, where="id = 1")
            with tx.savepoint() as point:
                tx.delete(table, where="id = 2")
                point.rollback()
        assert ids(table.arrow()) == [0, *range(2, 200)]

    def test_rows_of_one_file_conflict(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        """Conflicts are detected by file: the second of two deletes from one file conflicts."""
        first, second = lake.begin(), lake.begin()
        first.delete(table, where="id = 1")
        second.delete(table, where="id = 2")
        first.commit()
        with pytest.raises(deltasql.CommitConflict):
            second.commit()
        table.delete(where="id = 2")
        assert ids(table.arrow()) == [0, *range(3, 200)]

    def test_the_log_holds_the_deleted_row_numbers(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        """A commit that marks a file again removes it with the old vector and adds it with the new one: the difference
        is the set of rows that this commit deleted.
        """
        table.delete(where="id IN (3, 5)")
        with lake.begin() as tx:
            tx.delete(table, where="id = 7")
            tx.update(table, {"n": "1"}, where="id IN (8, 150)")
        files = {file["path"]: place for place, file in enumerate(table.files(version=2).to_pylist())}
        actions = json_of(table, table.version)
        added = {one["add"]["path"]: one["add"] for one in actions if "add" in one}
        deleted = {}
        for remove in (one["remove"] for one in actions if "remove" in one):
            old, new = remove.get("deletionVector"), added[remove["path"]]["deletionVector"]
            before, after = ({*rows_of(table, old)} if old else set()), {*rows_of(table, new)}
            assert before < after
            deleted[files[remove["path"]]] = after - before
        assert sorted(map(sorted, deleted.values())) == [[7, 8], [50]], "row numbers within each file"

    def test_appends_do_not_conflict(self, table: deltasql.Table, lake: deltasql.Lake) -> None:
        with lake.begin() as tx:
            tx.delete(table, where="id = 1")
            table.append(numbers(200, 5))
        assert ids(table.arrow()) == [0, *range(2, 205)]


def test_overwrite_where(table: deltasql.Table) -> None:
    table.delete(where="id IN (1, 2)")
    table.overwrite(numbers(1, 1), where="id < 10")
    assert ids(table.arrow()) == [1, *range(10, 200)]
    frame = table.df(where="id = 100").selectExpr("120L AS id", "part", "n")
    table.overwrite(frame, where="id = 120 OR id = 3")
    assert ids(table.arrow()) == [1, *range(10, 200)]


def test_a_checkpoint_holds_the_vectors(
    table: deltasql.Table, lake: deltasql.Lake, spark_session: SparkSession
) -> None:
    table.delete(where="id IN (1, 2, 120)")
    lake.mirror._checkpoints.write(lake.mirror._find(table.name), table.version)
    clean(lake, table)
    assert not (Path(table.location) / "_delta_log" / f"{0:020d}.json").exists()
    assert_read_alike(table, spark_session)
    assert lake.mirror.validate(table.name) == []


@pytest.mark.skipif(PLAIN, reason="Delta's jars are for the locked Spark")
def test_rows_marked_by_delta_spark(make_table: Make, spark_session: SparkSession, tmp_path: Path) -> None:
    """Vectors that Delta's Spark wrote are read, and a later delete adds to them."""
    delta_table = tmp_path / "theirs"
    spark_session.range(1000).coalesce(1).write.format("delta").option("delta.enableDeletionVectors", "true").save(
        str(delta_table)
    )
    spark_session.sql(f"DELETE FROM delta.`{delta_table}` WHERE id % 7 = 0")
    log = [json.loads(line) for line in (delta_table / "_delta_log" / f"{1:020d}.json").read_text().splitlines()]
    (action,) = [entry["add"] for entry in log if "add" in entry]
    table = make_table(schema="id BIGINT", properties=ON, location=str(tmp_path / "ours"))
    for file in delta_table.iterdir():
        if file.is_file():
            (Path(table.location) / file.name).write_bytes(file.read_bytes())
    vector = deltasql.protocol.actions.from_dict(deltasql.DeletionVector, action["deletionVector"])
    add = deltasql.Add(action["path"], action["size"], 0, stats=action["stats"], deletion_vector=vector)
    with table.lake.begin() as tx:
        tx.stage(table, [add])
    expected = [i for i in range(1000) if i % 7]
    assert ids(table.arrow()) == ids(table.df()) == expected
    table.delete(where="id = 1")
    assert ids(table.arrow()) == ids(read("spark", Path(table.location), spark=spark_session)) == expected[1:]


@pytest.mark.skipif(PLAIN, reason="Delta's jars are for the locked Spark")
def test_tables_changed_by_delta_spark(make_table: Make, spark_session: SparkSession, tmp_path: Path) -> None:
    """All versions and the change feed of a table that Delta's Spark wrote are read, and a later update marks rows."""
    delta_table = tmp_path / "theirs"
    properties = "'delta.enableDeletionVectors' = true, 'delta.enableChangeDataFeed' = true"
    spark_session.sql(
        f"CREATE TABLE delta.`{delta_table}` (id BIGINT, part STRING, n INT) USING delta PARTITIONED BY (part) "
        f"TBLPROPERTIES ({properties})"
    )
    spark_session.createDataFrame(numbers(0, 100)).coalesce(1).write.format("delta").mode("append").save(
        str(delta_table)
    )
    spark_session.range(5).selectExpr("id * 30 AS id", "'p0' AS part", "9 AS n").createOrReplaceTempView("given")
    for text in (
        "DELETE FROM {} WHERE id IN (3, 4)",
        "UPDATE {} SET n = 5 WHERE id IN (5, 6)",
        "MERGE INTO {} AS t USING given AS s ON t.id = s.id WHEN MATCHED AND s.id = 30 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *",
        "DELETE FROM {} WHERE id = 7",
    ):
        spark_session.sql(text.format(f"delta.`{delta_table}`"))
    table, ahead = replay(delta_table, make_table, tmp_path)
    assert (ahead, table.version) == (0, 5)
    assert sum(vectors(table).values()) == 2 + 2 + 4 + 1
    for version in range(1, 6):
        expected = rows(read("spark", delta_table, version=version, spark=spark_session))
        assert rows(table.arrow(version=version)) == rows(table.df(version=version).toArrow()) == expected, version
    names = ["id", "part", "n", "_change_type", "_commit_version"]
    expected = changes_by_spark(delta_table, spark_session).select(names)
    assert rows(table.changes(0).select(*names).toArrow()) == rows(expected)
    table.update({"n": "1"}, where="id IN (8, 9)")
    assert sum(vectors(table).values()) == 9 + 2
    assert_read_alike(table, spark_session)
