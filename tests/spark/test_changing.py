"""Row changes give the same result with every kind of scan, on classic sessions and on Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql

Make = Callable[..., deltasql.Table]
# `_metadata.file_path` shows these values encoded.
SPECIAL_VALUES = ["plain", "ä ö", "a=b&c", "50%", "x#y", None]


@pytest.mark.parametrize("partition_by", [pytest.param([], marks=pytest.mark.long), ["part"]])
def test_update_delete_and_merge(lake: deltasql.Lake, make_table: Make, partition_by: list[str]) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT", partition_by=partition_by)
    for start in (0, 100):
        ids = [start + i for i in range(len(SPECIAL_VALUES) * 2)]
        table.append(pa.table({"id": ids, "part": SPECIAL_VALUES * 2, "n": pa.array(ids, pa.int32())}))
    expected = {i: i for start in (0, 100) for i in range(start, start + len(SPECIAL_VALUES) * 2)}

    def values() -> dict[int, int]:
        rows = table.arrow(columns=["id", "n"]).to_pylist()
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: row["n"] for row in rows}

    table.update({"n": "n + 1000"}, where="id % 7 = 3")
    expected |= {i: i + 1000 for i in expected if i % 7 == 3}
    assert values() == expected
    gone = table.delete(where="n % 5 = 1", returning=["id"]).collect()
    assert {row["id"] for row in gone} == {i for i, n in expected.items() if n % 5 == 1}
    expected = {i: n for i, n in expected.items() if n % 5 != 1}
    assert values() == expected
    lake.sql(
        f"MERGE INTO {table.name} t USING (SELECT * FROM (VALUES (2, 7), (105, 8), (999, 9)) AS v(id, n)) s "
        f"ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)"
    )
    assert values() == expected | {2: 7, 105: 8, 999: 9}


@pytest.mark.parametrize("scan_kind", ["literals"], indirect=True)
def test_expressions_and_their_errors(lake: deltasql.Lake, make_table: Make) -> None:
    table = make_table(schema="id BIGINT, t INT, twice INT GENERATED ALWAYS AS (t * 2)")
    table.append(pa.table({"id": [1, 2], "t": pa.array([5, 6], pa.int32())}))
    for where in ("nope = 1", "id = = 1", "id"):
        with pytest.raises(deltasql.ValidationError, match=rf"(?s)table {table.name}: .*\n  where: {where}$") as caught:
            table.delete(where=where)
        assert "__deltasql" not in str(caught.value)
    with pytest.raises(deltasql.ValidationError, match=r"the table \(t\) has id, t, twice; the source \(s\) has id"):
        table.merge(pa.table({"id": [1]}), on="t.id = s.nope").when_matched_delete().execute()
    [row] = table.update({"t": "t + 1"}, where="t = 5", returning=["t", "t.id", "t - 1", "twice"]).collect()
    assert tuple(row) == (6, 1, 5, 12)
    name = table.name
    [row] = lake.sql(
        f"WITH s AS (SELECT 2 AS id), d(gone) AS (DELETE FROM {name} USING s WHERE {name}.id = s.id RETURNING {name}.id) "
        f"SELECT gone, s.id FROM d, s"
    ).collect()
    assert tuple(row) == (2, 2)


@pytest.mark.parametrize("scan_kind", ["literals"], indirect=True)
def test_stream_to(lake: deltasql.Lake, make_table: Make, tmp_path: Path) -> None:
    """`stream_to` runs in the process of the stream, which on Spark Connect is the server."""
    whole, some = (make_table(name, schema="id BIGINT") for name in ("all_of_it", "some"))
    (tmp_path / "in").mkdir()
    feed = deltasql.stream_to(lake, "feed", {whole.name: None, some.name: lambda batch: batch.where("id > 1")})

    def run(checkpoint: str) -> None:
        frame = lake.spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "in"))
        query = frame.writeStream.foreachBatch(feed).option("checkpointLocation", str(tmp_path / checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    for i in range(2):
        pq.write_table(pa.table({"id": [i, i + 1]}), tmp_path / "in" / f"{i}.parquet")
        run("checkpoint")
    assert sorted(whole.arrow()["id"].to_pylist()) == [0, 1, 1, 2]
    assert some.arrow()["id"].to_pylist() == [2]
    versions = whole.version, some.version
    run("another checkpoint")  # batch 0 of this checkpoint is already applied
    assert (whole.version, some.version) == versions


@pytest.mark.parametrize("partition_by", [[], ["part"]])
def test_tables_without_rows(lake: deltasql.Lake, make_table: Make, partition_by: list[str]) -> None:
    table = make_table(schema="id BIGINT, part STRING", partition_by=partition_by)
    table.update({"id": "id + 1"}, where="part = 'a'")
    table.delete(where="part = 'a' AND id > 0")
    assert table.version == 0
    lake.sql(f"UPDATE {table.name} SET id = 1 WHERE id > 2")
    lake.sql(f"DELETE FROM {table.name} WHERE part LIKE 'a%'")
    merge = f"MERGE INTO {table.name} t USING (SELECT 1 AS id, 'x' AS part) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    lake.sql(merge)
    assert table.version == 0
    lake.sql(f"{merge} WHEN NOT MATCHED THEN INSERT (id, part) VALUES (s.id, s.part)")
    assert table.arrow().to_pylist() == [{"id": 1, "part": "x"}]
