"""Pass scans to Polars and DuckDB, which are optional packages."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.addresses import check_name
from deltasql.engines.arrow.read.scan import Scan
from deltasql.errors import UsageError

if TYPE_CHECKING:
    import duckdb
    import polars


def to_polars(scan: Scan) -> polars.DataFrame:
    """Return the rows as a Polars DataFrame, which shares their memory."""
    frame: polars.DataFrame = _package("polars").from_arrow(scan.table())
    return frame


def register_in_duckdb(scan: Scan, connection: duckdb.DuckDBPyConnection, name: str | None) -> duckdb.DuckDBPyRelation:
    """Register a view on a connection. Each query streams only the columns that it needs."""
    if not isinstance(connection, _package("duckdb").DuckDBPyConnection):
        raise UsageError(f"connection must come from duckdb.connect(), got {connection!r}", value=connection)
    from deltasql.engines.arrow.read.arrow_dataset import ScanDataset

    view = check_name(name or scan.snapshot.name.rpartition(".")[2])
    opaque = [field.name for field in scan.schema if _compares_floats(field.type)]
    base = f"{view}__arrow" if opaque else view
    connection.register(base, ScanDataset(scan))
    if opaque:
        columns = ", ".join(_opaque(n) if n in opaque else _quoted(n) for n in scan.schema.names)
        query = f"SELECT {columns} FROM {_quoted(base)}"  # noqa: S608
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(view)} AS {query}")
    relation: duckdb.DuckDBPyRelation = connection.view(view)
    return relation


def _compares_floats(type: pa.DataType) -> bool:
    if pa.types.is_struct(type):
        return any(_compares_floats(field.type) for field in type)
    return bool(pa.types.is_floating(type))


def _opaque(name: str) -> str:
    """Return a column that DuckDB filters itself: to DuckDB, NaN is the largest number; Arrow's filters drop NaN."""
    column = _quoted(name)
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {column} END AS {column}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed: pip install 'deltasql[{name}]'", value=name) from error
