"""`add_files` registers existing Parquet files in a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from tests.factories import paths

Make = Callable[..., deltasql.Table]


def write(root: Path, path: str, ids: list[int]) -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "amount": [1.0] * len(ids)}), root / path)
    return path


def test_files_become_part_of_the_table(make_table: Make, tmp_path: Path) -> None:
    table = make_table(location=str(tmp_path), partition_by=["day"])
    files = [write(tmp_path, f"day=2026-01-0{d}/f {d}.parquet", [d * 10, d * 10 + 5]) for d in (1, 2, 3)]
    seen: list[tuple[int, int]] = []
    result = table.add_files(files, progress=lambda done, total: seen.append((done, total)))
    assert (result.version, result.metrics["numFiles"]) == (1, "3")
    assert seen[-1] == (3, 3)
    assert paths(table.files(where="day = '2026-01-02'")) == ["day=2026-01-02/f%202.parquet"]
    assert paths(table.files(where="id = 31")) == ["day=2026-01-03/f%203.parquet"]
    assert table.history()[0].operation == "ADD FILES"
    assert table.files()["partition_values"].to_pylist()[0] == {"day": "2026-01-01"}


@pytest.mark.parametrize("path", ["missing.parquet", "../outside.parquet", "text.parquet", "other.parquet"])
def test_a_file_that_does_not_fit_is_named_and_nothing_is_committed(
    make_table: Make, tmp_path: Path, path: str
) -> None:
    root = tmp_path / "t"
    root.mkdir()
    table = make_table(location=str(root))
    good = write(root, "good.parquet", [1])
    write(tmp_path, "outside.parquet", [1])
    (root / "text.parquet").write_text("not parquet")
    pq.write_table(pa.table({"id": ["text"]}), root / "other.parquet")
    with pytest.raises(deltasql.ValidationError, match=path.strip("./")):
        table.add_files([good, path])
    assert table.version == 0
