"""COPY … FROM: rows of a file, by the columns that they fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from deltasql.sql.parse import Tree, refused

_EMPTY = "\ue000 empty \ue000"
_FORMATS = {"csv": "csv", "txt": "csv", "tsv": "csv", "parquet": "parquet", "json": "json", "ndjson": "json"}
_CSV = {"delimiter": "sep", "null": "nullValue", "quote": "quote", "escape": "escape", "encoding": "encoding"}


def copied_rows(spark: Any, tree: Tree, columns: Sequence[str], text: str, *, named: bool) -> Any:
    """A frame of what a COPY reads. Columns of a CSV file without a header are those of the table, in order; all others
    go by their names."""
    [file] = tree.args["files"]
    options = {p.this.name.lower(): _plain(p.args.get("expression")) for p in tree.args.get("params") or ()}
    kind = options.pop("format", None) or file.name.rpartition(".")[2]
    if kind.lower() not in _FORMATS:
        raise refused(text, f"cannot be run: {kind!r} is no format that is known: csv, parquet or json")
    form = _FORMATS[kind.lower()]
    unknown = options.keys() - ({*_CSV, "header"} if form == "csv" else set())
    if unknown:
        raise refused(text, f"cannot be run: COPY from {form} has no option {', '.join(sorted(unknown)).upper()}")
    if form != "csv":
        frame = spark.read.format(form).load(file.name)
        return frame.select(*columns) if named else frame
    header = (options.pop("header", "false") or "true").lower() in ("true", "on", "1", "match")  # HEADER alone is on
    # As PostgreSQL reads them: a quote is doubled inside quotes, lines may break there, and "" is an empty text.
    usual = {"escape": '"', "multiLine": "true", "mode": "FAILFAST", "emptyValue": _EMPTY}
    usual |= {"sep": "\t"} if kind.lower() == "tsv" else {}
    reader = spark.read.options(**usual).options(**{_CSV[key]: value for key, value in options.items() if value})
    if header:
        frame = _with_empty(reader.option("header", "true").csv(file.name))
        return frame.select(*columns) if named else frame
    schema = ", ".join(f"`{column}` STRING" for column in columns)
    return _with_empty(reader.schema(schema).csv(file.name))


def _with_empty(frame: Any) -> Any:
    return frame.replace(_EMPTY, "")


def _plain(value: Tree | None) -> str | None:
    if value is None:
        return None
    return str(value.this).lower() if isinstance(value, exp.Boolean) else str(value.name)
