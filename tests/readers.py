"""Outside readers of Delta tables, and a comparison of the rows that they return.

The first four share one implementation of the log, delta-kernel-rs. Spark uses Delta Lake's implementation.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import chdir, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chdb
import deltalake
import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.local_spark import PLAIN

ENGINES = ("delta-rs", "polars", "duckdb", "clickhouse", "spark")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """A known difference between an engine and the protocol, which tests name where their table shows it."""

    engine: str
    what: str
    why: str


# ClickHouse's missing nulls affect every table with nested columns, so `as_seen_by` always allows for them.
NO_NULL_CONTAINERS = Fault(
    "clickhouse",
    "null list, map or struct",
    "Array, Map and Tuple are never NULL there: lists and maps read as empty, a struct as one of nulls",
)
FAULTS = (
    NO_NULL_CONTAINERS,
    Fault("clickhouse", "decimal partition of 19 digits or more", "the value is read as a 64-bit number and shifted"),
    Fault("clickhouse", "struct in a map under column mapping", "the struct's fields read as NULL"),
    Fault("clickhouse", "absolute path", "an add.path that is a file URL is not followed"),
    Fault(
        "clickhouse",
        "empty partition value",
        "reads as NULL, as the protocol says; other engines give the empty string",
    ),
    Fault("duckdb", "partition column not first under column mapping", "reads as NULL"),
    Fault("duckdb", "absolute path", "an add.path that is a file URL is not followed"),
    Fault(
        "duckdb", "empty partition value", "reads as NULL, as the protocol says; other engines give the empty string"
    ),
    Fault("polars", "absolute path", "an add.path that is a file URL is not followed"),
    Fault("polars", "root that URLs encode", "spaces and non-ASCII characters stay encoded in file names"),
    Fault("polars", "files outside of Hive directories", "reads partition values from paths; without any, NULL"),
    Fault("polars", "column mapping", "not supported"),
    Fault("polars", "binary partition", "not supported"),
)


def read(engine: str, path: Path, *, version: int | None = None, spark: SparkSession | None = None) -> pa.Table:
    """Read all rows of the table at `path`, at the newest version or at `version`, with the engine's Delta reader."""
    if engine == "spark":
        if spark is None:
            raise ValueError("reading by Spark needs the spark_session fixture")
        return _spark(path, version, spark)
    return _READERS[engine](path, version)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return sorted rows of plain values, which are equal for all engines if the data is equal.

    Structs become dicts, maps sorted tuples of pairs, timestamps datetimes in UTC (naive for timestamp_ntz), NaN "NaN".
    """
    columns = [[_plain(value, field.type) for value in table[i].to_pylist()] for i, field in enumerate(table.schema)]
    return sorted(zip(*columns, strict=True), key=repr)


def assert_same_rows(
    path: Path,
    expected: pa.Table,
    engines: Collection[str] = ENGINES,
    *,
    spark: SparkSession | None = None,
    version: int | None = None,
    known_faults: Collection[str] = (),
) -> None:
    """Assert that every engine reads exactly the rows of `expected`.

    An engine with a fault of `known_faults` must fail; otherwise the entry in FAULTS is out of date.
    """
    unknown = set(known_faults) - {fault.what for fault in FAULTS}
    if unknown:
        raise ValueError(f"no such fault: {', '.join(sorted(unknown))}")
    problems = []
    for engine in engines:
        if engine == "spark" and PLAIN:
            continue
        problem = _difference(engine, path, expected, version, spark)
        faults = [fault.what for fault in FAULTS if fault.engine == engine and fault.what in known_faults]
        if faults and problem is None:
            problems.append(f"{engine} reads all rows: out of date in FAULTS: {', '.join(faults)}")
        elif problem and not faults:
            problems.append(problem)
    if problems:
        of = "" if version is None else f" at version {version}"
        raise AssertionError("\n".join([f"{path}{of}", *problems]))


def as_seen_by(engine: str, table: pa.Table) -> pa.Table:
    """Return the table as an engine can show it: ClickHouse has no null list, map or struct."""
    if engine != NO_NULL_CONTAINERS.engine:
        return table
    columns = [
        pa.array([_without_null_containers(value, field.type) for value in table[i].to_pylist()], field.type)
        for i, field in enumerate(table.schema)
    ]
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in table.schema]))


def _difference(
    engine: str, path: Path, expected: pa.Table, version: int | None, spark: SparkSession | None
) -> str | None:
    if engine == "spark" and spark is None:
        raise ValueError("reading by Spark needs the spark_session fixture")
    try:
        found = read(engine, path, version=version, spark=spark)
    except Exception as error:
        return f"{engine} cannot read it: {type(error).__name__}: {error}"
    if found.column_names != expected.column_names:
        return f"{engine} reads the columns {found.column_names}, expected {expected.column_names}"
    expected_rows = Counter(map(repr, rows(as_seen_by(engine, expected))))
    found_rows = Counter(map(repr, rows(found)))
    if expected_rows == found_rows:
        return None
    lines = [f"{engine} reads {found_rows.total()} rows, expected {expected_rows.total()}"]
    for title, difference in (("missing", expected_rows - found_rows), ("unexpected", found_rows - expected_rows)):
        lines += [f"  {title}: {row}" for row in list(difference.elements())[:_SHOWN]]
        if difference.total() > _SHOWN:
            lines.append(f"  {title}: {difference.total() - _SHOWN} more")
    return "\n".join(lines)


def _delta_rs(path: Path, version: int | None) -> pa.Table:
    # to_pyarrow_table rejects deletion vectors and column mapping, or reads mapped columns as NULL
    table = deltalake.DeltaTable(path, version=version)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def _polars(path: Path, version: int | None) -> pa.Table:
    return pl.scan_delta(str(path), version=version).collect().to_arrow()


def _duckdb(path: Path, version: int | None, where: str = "true") -> pa.Table:
    [extension] = Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    at = "" if version is None else f", version = {version}"
    scan = f"delta_scan({_quoted(path.absolute().as_uri())}{at})"
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.load_extension(str(extension))
        return connection.sql(f"SELECT * FROM {scan} WHERE {where}").to_arrow_table()


def duckdb_where(path: Path, where: str) -> pa.Table:
    """Return the rows that DuckDB finds for a condition, by which it also prunes files."""
    return _duckdb(path, None, where)


def _clickhouse(path: Path, version: int | None) -> pa.Table:
    settings = {
        "optimize_trivial_count_query": 0,  # the shortcut for count(*) ignores deletion vectors
        "output_format_arrow_string_as_string": 0,  # bytes that are not UTF-8 would make invalid Arrow strings
        **({} if version is None else {"delta_lake_snapshot_version": version}),
    }
    listed = ", ".join(f"{name} = {value}" for name, value in settings.items())
    query = f"SELECT * FROM deltaLakeLocal({_quoted(str(path.absolute()))}) SETTINGS {listed}"
    # ClickHouse reads only files below the current directory
    with chdir("/"), closing(chdb.connect(":memory:")) as connection:
        table = pa.ipc.open_file(connection.query(query, "Arrow").bytes()).read_all()
    # String stands for text and bytes, and DateTime64 always has a zone: take the types from the log.
    return table.cast(_logged_schema(path, version))


def _spark(path: Path, version: int | None, spark: SparkSession) -> pa.Table:
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(str(path)).toArrow()


_READERS: Mapping[str, Callable[[Path, int | None], pa.Table]] = {
    "delta-rs": _delta_rs,
    "polars": _polars,
    "duckdb": _duckdb,
    "clickhouse": _clickhouse,
}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _logged_schema(path: Path, version: int | None) -> pa.Schema:
    """Return the schema of a version, from the commits or a checkpoint."""
    for metadata in _logged_metadata(path / "_delta_log", version):
        return pa.schema(deltalake.Schema.from_json(metadata["schemaString"]).to_arrow())
    raise FileNotFoundError(f"no metaData action in the log of {path}")


def _logged_metadata(log: Path, version: int | None) -> Iterator[Mapping[str, Any]]:
    files = [file for file in log.iterdir() if file.name[:20].isdigit() and file.name[20] == "."]
    for file in sorted(files, key=lambda file: file.name, reverse=True):
        if version is not None and int(file.name[:20]) > version:
            continue
        if file.suffix == ".json" and "compacted" not in file.name:
            actions = [json.loads(line) for line in file.read_text().splitlines()]
        elif file.suffix == ".parquet":
            actions = pq.read_table(file, columns=["metaData"]).to_pylist()
        else:
            continue
        yield from (action["metaData"] for action in actions if action.get("metaData"))


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        pairs = ((_plain(key, kind.key_type), _plain(item, kind.item_type)) for key, item in value)
        return tuple(sorted(pairs, key=repr))
    if _is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.UTC)
    return value


def _without_null_containers(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        fields = value or {}
        return {field.name: _without_null_containers(fields.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _without_null_containers(item, kind.item_type)) for key, item in value or ()]
    if _is_list(kind):
        return [_without_null_containers(item, kind.value_type) for item in value or ()]
    return value


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_fixed_size_list(kind)
    )
