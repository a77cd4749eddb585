"""`adds_from_parquet` registers Parquet files by their footers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from deltasql.engines.arrow.write.parquet_files import ParquetFile, adds_from_parquet
from deltasql.errors import ValidationError
from deltasql.protocol.schema import arrow_schema, schema_string

ID = pa.table({"id": [1, 2]})


def schema(ddl: str) -> pa.Schema:
    return arrow_schema(schema_string(ddl))


def write(root: Path, path: str, table: pa.Table = ID, **options: Any) -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / path, **options)
    return path


def adds(
    root: Path, *paths: str, ddl: str = "id BIGINT", by: tuple[str, ...] = (), **options: Any
) -> list[ParquetFile]:
    return adds_from_parquet(str(root), paths, schema(ddl), by, **options)


def test_an_add_holds_file_and_footer_metadata(tmp_path: Path) -> None:
    write(tmp_path, "a/part-0.parquet")
    os.utime(tmp_path / "a/part-0.parquet", ns=(0, 1_700_000_000_123_999_999))
    assert adds(tmp_path, "a/part-0.parquet") == [
        ParquetFile(
            path="a/part-0.parquet",
            size=(tmp_path / "a/part-0.parquet").stat().st_size,
            modification_time=1_700_000_000_123,
            partition_values={},
            stats='{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0}}',
        )
    ]


def test_paths_are_normalized(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        write(tmp_path, name)
    found = adds(tmp_path, "a.parquet", f"{tmp_path}/b.parquet", "x/..//./c.parquet")
    assert [file.path for file in found] == ["a.parquet", "b.parquet", "c.parquet"]


def test_a_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "lake/a.parquet")
    monkeypatch.chdir(tmp_path)
    (file,) = adds_from_parquet("lake/", [f"{tmp_path}/lake/a.parquet"], schema("id BIGINT"))
    assert file.path == "a.parquet"


def test_order_is_kept_with_any_number_of_threads(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{i:03}.parquet", pa.table({"id": [i]})) for i in range(200)]
    one = adds(tmp_path, *paths, threads=1)
    assert one == adds(tmp_path, *paths, threads=8)
    assert [file.path for file in one] == paths
    assert '"minValues":{"id":199}' in one[-1].stats


def test_progress_counts_files_up_to_all_of_them(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{i}.parquet") for i in range(130)]
    seen: list[tuple[int, int]] = []
    adds(tmp_path, *paths, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 130), (128, 130), (130, 130)]


def test_no_files() -> None:
    assert adds_from_parquet("/nowhere", [], schema("id BIGINT")) == []


def test_statistics_columns_are_configurable(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", pa.table({"id": [1], "x": [2]}))
    (file,) = adds(tmp_path, path, ddl="id BIGINT, x BIGINT", stats_columns=["x"])
    assert file.stats == '{"numRecords":1,"minValues":{"x":2},"maxValues":{"x":2},"nullCount":{"x":0}}'
    (file,) = adds(tmp_path, path, ddl="id BIGINT, x BIGINT", num_indexed_cols=0)
    assert file.stats == '{"numRecords":1}'


def test_files_of_several_schemas(tmp_path: Path) -> None:
    first = write(tmp_path, "1.parquet", pa.table({"id": [1], "s": pa.array([{"x": 1}])}))
    second = write(tmp_path, "2.parquet", pa.table({"id": [1], "t": pa.array([{"x": 2}])}))
    third = write(tmp_path, "3.parquet", pa.table({"id": [1]}))
    ddl = "id BIGINT, s STRUCT<x: BIGINT>, t STRUCT<x: BIGINT>"
    minima = [
        file.stats.split("minValues")[1].split("maxValues")[0] for file in adds(tmp_path, first, second, third, ddl=ddl)
    ]
    assert ['"s"' in text for text in minima] == [True, False, False]
    assert ['"t"' in text for text in minima] == [False, True, False]


# --- partitions


def test_partition_values_come_from_hive_directories(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, "day=2026-01-01/kind=a%3Ab c/0.parquet"),
        write(tmp_path, "day=__HIVE_DEFAULT_PARTITION__/kind=é/0.parquet"),
        write(tmp_path, "x/KIND=z/day=2026-01-02/0.parquet"),
    ]
    found = adds(tmp_path, *paths, ddl="id BIGINT, day DATE, kind STRING", by=("day", "kind"))
    assert [(file.path, file.partition_values) for file in found] == [
        ("day=2026-01-01/kind=a%253Ab%20c/0.parquet", {"day": "2026-01-01", "kind": "a:b c"}),
        ("day=__HIVE_DEFAULT_PARTITION__/kind=%C3%A9/0.parquet", {"day": None, "kind": "é"}),
        ("x/KIND=z/day=2026-01-02/0.parquet", {"day": "2026-01-02", "kind": "z"}),
    ]


def test_given_partition_values_win_over_directories(tmp_path: Path) -> None:
    path = write(tmp_path, "p=1/0.parquet")
    (file,) = adds(tmp_path, path, ddl="id BIGINT, p INT", by=("p",), partition_values=[{"p": "02"}])
    assert file.partition_values == {"p": "2"}
    (file,) = adds(tmp_path, path, ddl="id BIGINT, p INT", by=("p",), partition_values=[{"p": None}])
    assert file.partition_values == {"p": None}


def test_directories_of_an_unpartitioned_table_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, "batch=7/0.parquet")
    assert adds(tmp_path, path)[0].partition_values == {}


@pytest.mark.parametrize(
    ("path", "ddl", "values", "message"),
    [
        ("0.parquet", "p INT", None, "'0.parquet' has no partition value for p: .*p=<value>/"),
        ("p=x/0.parquet", "p INT", None, "partition value 'x' for column 'p' of type integer"),
        ("p=2026-13-01/0.parquet", "p DATE", None, "'2026-13-01' for column 'p' of type date"),
        ("p=/0.parquet", "p STRING NOT NULL", None, "None for column 'p' of type string NOT NULL"),
        ("p=1/0.parquet", "p INT", [{"q": "1"}], "has no partition value for p"),
        (
            "p=1/0.parquet",
            "p INT",
            [{"p": "1", "q": "1"}],
            "partition values for q, but the table is not",
        ),
        ("p=1/0.parquet", "p INT", [], "0 mappings for 1 files"),
    ],
)
def test_invalid_partition_values(tmp_path: Path, path: str, ddl: str, values: Any, message: str) -> None:
    write(tmp_path, path)
    with pytest.raises(ValidationError, match=message):
        adds(tmp_path, path, ddl=f"id BIGINT, {ddl}", by=("p",), partition_values=values)


# --- rejected files


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"gone.parquet' does not exist"):
        adds(tmp_path, "gone.parquet")


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PAR1" * 3, b"x" * 100 + b"\xff\x00\x00\x00PAR1", b"x" * 20 + b"PARE"]
)
def test_a_file_that_is_not_parquet_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ValidationError, match=r"x.parquet' is not a readable Parquet file"):
        adds(tmp_path, "x.parquet")


def test_a_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(ValidationError, match=r"d.parquet' is not a readable Parquet file"):
        adds(tmp_path, "d.parquet")


@pytest.mark.parametrize("path", ["/etc/x.parquet", "../x.parquet", "a/../../x.parquet", "..", ".", "", "/"])
def test_a_file_outside_the_root_is_rejected(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValidationError, match="is not below the table's root"):
        adds(tmp_path, path)


@pytest.mark.parametrize(
    "path", ["_x.parquet", ".x.parquet", "_a=1.parquet", "_tmp/x.parquet", "a/.b/x.parquet", "x._COPYING_"]
)
def test_a_hidden_file_is_rejected(tmp_path: Path, path: str) -> None:
    write(tmp_path, path)
    with pytest.raises(ValidationError, match="would be skipped"):
        adds(tmp_path, path)


def test_a_partition_directory_may_begin_with_an_underscore(tmp_path: Path) -> None:
    path = write(tmp_path, "_p=1/0.parquet")
    assert adds(tmp_path, path, ddl="id BIGINT, _p INT", by=("_p",))[0].partition_values == {"_p": "1"}


def test_a_name_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="is not UTF-8"):
        adds(tmp_path, os.fsdecode(b"a\xff.parquet"))


def test_a_file_given_twice_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet")
    with pytest.raises(ValidationError, match=r"'a.parquet' is given twice"):
        adds(tmp_path, path, f"{tmp_path}/a.parquet")


def test_a_file_that_does_not_fit_is_named_with_each_difference(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", pa.table({"id": pa.array([1], pa.int32()), "extra": [1]}))
    with pytest.raises(ValidationError) as caught:
        adds(tmp_path, path, ddl="id BIGINT, name STRING NOT NULL")
    message = str(caught.value)
    assert "file 'a.parquet' does not fit the table" in message
    assert "column 'id' is integer in the file and long in the table" in message
    assert "column 'extra' is not in the table" in message
    assert "column 'name' is NOT NULL but missing in the file" in message


def test_nulls_in_a_not_null_column_are_rejected(tmp_path: Path) -> None:
    good = write(tmp_path, "a.parquet")
    bad = write(tmp_path, "b.parquet", pa.table({"id": [1, None]}))
    with pytest.raises(ValidationError, match=r"file 'b.parquet' .* column 'id' is NOT NULL but holds nulls"):
        adds(tmp_path, good, bad, ddl="id BIGINT NOT NULL")


def test_missing_nullable_columns_are_read_as_null(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet")
    (file,) = adds(tmp_path, path, ddl="id BIGINT, note STRING")
    assert '"nullCount":{"id":0}' in file.stats


def test_the_first_bad_file_in_order_is_named(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{i:03}.parquet") for i in range(200)]
    for i in (70, 150):
        (tmp_path / paths[i]).write_bytes(b"broken")
    with pytest.raises(ValidationError, match=r"070.parquet"):
        adds(tmp_path, *paths, threads=4)


# --- file systems


def test_other_file_systems_give_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "lake/a b/0.parquet")
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    (near,) = adds(tmp_path / "lake", "a b/0.parquet")
    (far,) = adds_from_parquet("lake", ["lake/a b/0.parquet"], schema("id BIGINT"), filesystem=remote)
    assert near == far
    with pytest.raises(ValidationError, match="does not exist"):
        adds_from_parquet("lake", ["gone.parquet"], schema("id BIGINT"), filesystem=remote)
    (local,) = adds_from_parquet(str(tmp_path), [path], schema("id BIGINT"), filesystem=pafs.LocalFileSystem())
    assert local.path == "lake/a%20b/0.parquet"
