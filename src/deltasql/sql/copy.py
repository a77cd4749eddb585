"""COPY … FROM: read the rows of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlglot import exp

from deltasql.engines.spark.sql_text import verbatim
from deltasql.errors import UsageError
from deltasql.protocol.constraints import quoted
from deltasql.sql.parameters import literal
from deltasql.sql.parse import Parsed, Tree

_EMPTY, _NULL = "\ue000 empty \ue000", "\ue000 null \ue000"
_FORMATS = {"csv": "csv", "txt": "csv", "tsv": "csv", "parquet": "parquet", "json": "json", "ndjson": "json"}
_CSV = {"delimiter": "sep", "quote": "quote", "escape": "escape", "encoding": "encoding"}
_ENCODINGS = {"utf8": "utf-8", "latin1": "iso-8859-1", "iso88591": "iso-8859-1", "sql_ascii": "us-ascii"}
"""Spark's names of encodings by PostgreSQL's names."""
_VALUED = {*_CSV, "null", "format"}
_TRUE = ("true", "on", "1", "match")


def copied_rows(spark: Any, parsed: Parsed, columns: Sequence[str], *, named: bool) -> Any:
    """Return a frame of the rows that a COPY reads.

    The columns of a CSV file without header are the given columns in order; otherwise columns match by name.
    """
    path, options = copy_path(parsed), copy_options(parsed)
    form, tab = copy_format(parsed, path, options)
    unknown = options.keys() - ({*_CSV, "null", "header"} if form == "csv" else set())
    if unknown:
        raise parsed.rejected(f"COPY from {form} has no option {', '.join(sorted(unknown)).upper()}", _file(parsed))
    if form == "csv":
        return _csv(spark, path, options, columns, {"sep": "\t"} if tab else {}, named=named)
    frame = _json(spark, path, parsed) if form == "json" else spark.read.format(form).load(path)
    return frame.select(*map(quoted, columns)) if named else frame


def copy_format(parsed: Parsed, path: str, options: dict[str, str]) -> tuple[str, bool]:
    """Return the format of a file, and whether tabs separate its values; the option FORMAT is taken out."""
    kind = (options.pop("format", None) or path.rpartition(".")[2]).lower()
    if kind not in _FORMATS:
        raise parsed.rejected(f"format {kind!r} is not supported: use csv, parquet or json", _file(parsed))
    return _FORMATS[kind], kind == "tsv"


def _file(parsed: Parsed) -> Tree:
    files = parsed.tree.args.get("files") or []
    if len(files) != 1:
        raise parsed.rejected("COPY reads or writes one file: COPY orders FROM 'orders.csv'")
    return files[0]


def copy_path(parsed: Parsed) -> str:
    """Return the path of the file; a relative path is relative to this process, not to Spark's."""
    file = _file(parsed)
    path = parsed.values[file.name] if isinstance(file, exp.Placeholder) else file.name
    if not isinstance(file, exp.Literal | exp.Placeholder) or not isinstance(path, str):
        raise parsed.rejected(f"COPY reads a file given by its path, FROM 'orders.csv', got {path!r}", file)
    return path if "://" in path or path.startswith(("file:", "/")) else str(Path(path).absolute())


def copy_options(parsed: Parsed) -> dict[str, str]:
    """Return the options, in parentheses or in PostgreSQL's older syntax: CSV HEADER DELIMITER ';'."""
    params = parsed.tree.args.get("params") or ()
    words = [_plain(parsed, part) for p in params for part in (p.this, p.args.get("expression"))]
    left = [word for word in reversed(words) if word is not None and word.upper() != "AS"]
    found: dict[str, str] = {}
    while left:
        name = left.pop().lower()
        if name == "csv":
            found["format"] = name
        elif name in _VALUED:
            found[name] = left.pop() if left else ""
        elif name == "header":  # without a value it is on
            has_value = left and left[-1].lower() in (*_TRUE, "false", "off", "0")
            found[name] = left.pop().lower() if has_value else "true"
        else:
            found[name] = ""
            break
    return found


def _plain(parsed: Parsed, value: Tree | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, exp.Placeholder):
        return str(parsed.values[value.name])
    return str(value.this).lower() if isinstance(value, exp.Boolean) else str(value.name)


def _csv(
    spark: Any, path: str, options: Mapping[str, str], columns: Sequence[str], usual: Mapping[str, str], *, named: bool
) -> Any:
    """Read CSV as PostgreSQL does.

    Quotes are doubled inside quotes unless ESCAPE is given, and quoted text may have line breaks. An empty field is
    null unless NULL is given, and "" is an empty text.
    """
    quote = options.get("quote", '"')
    given = {_CSV[key]: value for key, value in options.items() if key in _CSV}
    if "encoding" in given:
        given["encoding"] = _ENCODINGS.get(given["encoding"].lower().replace("-", ""), given["encoding"])
    reader = spark.read.options(
        **{**usual, "quote": quote, "escape": quote, **given},
        multiLine="true",
        mode="FAILFAST",
        emptyValue=_EMPTY,
        nullValue=_NULL,
    )
    if len(columns) == 1:
        _reject_empty_lines(spark, path)
    if options.get("header") in _TRUE:
        frame = reader.option("header", "true").csv(path)
        chosen = columns if named else frame.columns
    else:
        frame = reader.schema(", ".join(f"{quoted(column)} STRING" for column in columns)).csv(path)
        chosen = columns
    return frame.selectExpr(*(verbatim(_field(column, options.get("null", ""))) for column in chosen))


def _reject_empty_lines(spark: Any, path: str) -> None:
    """Reject a file of one column with empty lines: these are rows, which Spark skips."""
    if spark.read.text(path).where("value RLIKE '^\\\\r?$'").limit(1).count():
        raise UsageError(
            f'COPY: {path} has an empty line, which Spark skips: write "" for an empty text, or choose a text for NULL '
            f"with the option NULL",
            value=path,
        )


def _field(column: str, null: str) -> str:
    """Return the value of a CSV field: Spark reads null for an empty field, and `_EMPTY` for `""`."""
    name = quoted(column)
    empty = "''" if null else "NULL"
    null_text = f" WHEN {name} = {literal(null)} THEN NULL" if null else ""
    return (
        f"CASE WHEN {name} IS NULL THEN {empty} WHEN {name} = '{_EMPTY}' THEN ''{null_text} ELSE {name} END AS {name}"
    )


def _json(spark: Any, path: str, parsed: Parsed) -> Any:
    """Read JSON: an object on each line, or one array of objects."""
    lines = spark.read.text(path)
    first = lines.where("trim(value) <> ''").first()
    whole = first is not None and first["value"].lstrip().startswith("[") and not _is_json(first["value"])
    if whole and (len(lines.inputFiles()) > 1 or not _is_json(spark.read.text(path, wholetext=True).first()["value"])):
        # Spark reads only the first array of each file.
        raise parsed.rejected("a JSON file has an object on each line, or is one array of them", _file(parsed))
    return spark.read.options(mode="FAILFAST", multiLine=str(whole).lower()).json(path)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=list[msgspec.Raw])
    except msgspec.DecodeError:
        return False
    return True
