"""Output of commands: tables that fit a terminal, or JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# C1 controls, marks of direction, and line separators; JSON escapes the other controls itself.
_INVISIBLE = re.compile("[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_CONTROL = re.compile("[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KIB = 1024


def pick(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return some fields of every row, in the given order."""
    return [{name: row[name] for name in names} for row in rows]


def show_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON, or as a table with one line per row; print `empty` if there are none."""
    if as_json:
        show_json(rows)
    elif not rows:
        click.echo(empty)
    else:
        _console().print(_table(rows))


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    text = json.dumps(value, default=_plain, indent=2, ensure_ascii=False)
    click.echo(_INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def visible(text: str) -> str:
    """Return a text whose control characters and marks of direction are shown as escapes.

    Names, authors and messages come from anyone; they must not move the cursor or reorder what a terminal shows.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def show_fields(fields: Mapping[str, Any]) -> None:
    """Print one line per field, or one per item of a tuple."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, _text(value))
    _console().print(table)


def show_paragraphs(texts: Mapping[str, str]) -> None:
    """Print one paragraph per name, for texts that are too long for a table."""
    for name, text in texts.items():
        _console().print(f"{visible(name)}: {visible(text)}\n")


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in rows[0]:
        number = all(type(row[name]) is int for row in rows)
        table.add_column(name, justify="right" if number else "left", overflow="fold", min_width=len(name))
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    if isinstance(value, tuple):
        return "\n".join(map(visible, value))
    is_nested = isinstance(value, Mapping | list)
    return visible(json.dumps(value, default=_plain, ensure_ascii=False) if is_nested else str(value))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def size(number: int) -> str:
    """Return a number of bytes with a unit."""
    value = float(number)
    for unit in _UNITS[:-1]:
        if value < _KIB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KIB
    return f"{value:.1f} {_UNITS[-1]}"
