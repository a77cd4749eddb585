"""Rows are told by their places whichever way they are read, on classic sessions and on Spark Connect."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import deltasql

Make = Callable[..., deltasql.Table]
# `_metadata.file_path` has them encoded, each in its own way.
ODD = ["plain", "ä ö", "a=b&c", "50%", "x#y", None]


@pytest.mark.parametrize("partition_by", [[], ["part"]])
def test_update_delete_and_merge(lake: deltasql.Lake, make_table: Make, partition_by: list[str]) -> None:
    table = make_table(schema="id BIGINT, part STRING, n INT", partition_by=partition_by)
    for start in (0, 100):
        ids = [start + i for i in range(len(ODD) * 2)]
        table.append(pa.table({"id": ids, "part": ODD * 2, "n": pa.array(ids, pa.int32())}))
    expected = {i: i for start in (0, 100) for i in range(start, start + len(ODD) * 2)}

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
