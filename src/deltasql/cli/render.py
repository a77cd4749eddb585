"""Answers as tables that fit a terminal, or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KIB = 1024


def show_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """A listing: all fields as JSON, or one line per row."""
    if as_json:
        show_json(rows)
    elif not rows:
        click.echo(empty)
    else:
        _console().print(_table(rows))


def show_json(value: Any) -> None:
    """Machine-readable output."""
    click.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def show_fields(fields: Mapping[str, Any]) -> None:
    """One thing, a line per field."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, _text(value))
    _console().print(table)


def show_paragraphs(texts: Mapping[str, str]) -> None:
    """What is too long for a table, below it: a paragraph for each thing, by name."""
    for name, text in texts.items():
        _console().print(f"{name}: {text}\n")


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        number = all(type(row[name]) is int for row in rows)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _console() -> Console:
    return Console(highlight=False, markup=False)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return json.dumps(value, default=_plain, ensure_ascii=False) if isinstance(value, Mapping | list) else str(value)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def size(number: int) -> str:
    """A number of bytes for people."""
    value = float(number)
    for unit in _UNITS[:-1]:
        if value < _KIB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KIB
    return f"{value:.1f} {_UNITS[-1]}"
