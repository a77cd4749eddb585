"""Write data files and commit them without `Table.append`, on any store."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

import deltasql
from deltasql.storage import Directory
from tests.factories import add


def put(table: deltasql.Table, path: str, data: pa.Table, **options: Any) -> int:
    """Write a data file without committing it, and return its size."""
    directory = Directory(table.location, table.lake.storage_options)
    with directory.writing(path) as file:
        pq.write_table(data, file, **options)
    return directory.size(path) or 0


def write(
    table: deltasql.Table,
    data: pa.Table,
    path: str = "",
    values: dict[str, str | None] | None = None,
    stats: str | None = None,
    **options: Any,
) -> str:
    """Write a data file and commit it without validation of its contents, and return its path."""
    path = path or f"{uuid.uuid4()}.parquet"
    size = put(table, path, data, **options)
    with table.lake.begin() as tx:
        tx.stage(table, [add(quote(path, safe="/="), size=size, partition_values=values or {}, stats=stats)])
    return path
