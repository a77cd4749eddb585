"""COPY … TO: write the rows of a table or query to a file of this machine."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from sqlglot import exp

from deltasql.protocol.constraints import quoted
from deltasql.sql.catalog.pg_types import TEXT
from deltasql.sql.copy import copy_format, copy_options, copy_path
from deltasql.sql.functions.casts import ASSIGNMENT, cast, castable
from deltasql.sql.functions.templates import Typed
from deltasql.sql.meaning import TypedColumn, columns_of_frame
from deltasql.sql.parse import Parsed
from deltasql.sql.spark_text import spark_sql

_PLAIN = {"text", "varchar", "bpchar", "json", "int2", "int4", "int8", "numeric"}
"""Types whose values Arrow writes as PostgreSQL does."""


def write_rows(frame: Any, parsed: Parsed) -> int:
    """Write the rows of a frame to the file of a COPY, and return their number."""
    path, options = copy_path(parsed), copy_options(parsed)
    form, tab = copy_format(parsed, path, options)
    known = {"delimiter", "header"} if form == "csv" else set()
    if form == "json" or options.keys() - known:
        names = ", ".join(sorted(options.keys() - known)).upper() or "FORMAT json"
        raise parsed.rejected(f"COPY to {form} has no option {names}: use csv with DELIMITER and HEADER, or parquet")
    if "://" in path:
        raise parsed.rejected(f"COPY writes to a file of this machine, got {path!r}: write other files with Spark")
    rows = frame.selectExpr(*(_text(column, parsed) for column in columns_of_frame(frame))) if form == "csv" else frame
    if not Path(path).parent.is_dir():
        raise parsed.rejected(f"COPY writes to {path!r}, and there is no folder {str(Path(path).parent)!r}")
    try:
        return _written(rows.toArrow(), Path(path), form, "\t" if tab else options.get("delimiter", ","), options)
    except OSError as error:
        raise parsed.rejected(f"COPY cannot write to {path!r}: {error}") from error


def _text(column: TypedColumn, parsed: Parsed) -> str:
    """Return a column in Spark SQL as PostgreSQL writes it to a file."""
    name = quoted(column.name)
    if column.type.name == "bool":
        return f"CASE WHEN {name} THEN 't' WHEN NOT {name} THEN 'f' END AS {name}"
    if column.type.name in _PLAIN:
        return name
    if not castable(column.type, TEXT, ASSIGNMENT):
        raise parsed.rejected(f"COPY cannot write column {column.name!r}, which is {column.type}, to csv: use parquet")
    value = Typed(exp.column(exp.to_identifier(column.name, quoted=True)), column.type)
    return f"{spark_sql(cast(value, TEXT).tree)} AS {name}"


def _written(table: pa.Table, path: Path, form: str, delimiter: str, options: dict[str, str]) -> int:
    """Write a file under another name and rename it, so that nobody sees a part of it."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        if form == "parquet":
            pq.write_table(table, part)
        else:
            header = options.get("header", "false") in ("true", "on", "1")
            pa.csv.write_csv(table, part, pa.csv.WriteOptions(include_header=header, delimiter=delimiter))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return int(table.num_rows)
