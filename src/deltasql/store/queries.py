"""The SQL of the store, asked for by name. `queries.sql` holds blocks headed `-- name --` and a line of why."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString

_HEAD = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries() -> dict[str, LiteralString]:
    """All blocks by name, without their comments."""
    parts = _HEAD.split(sql_file("queries.sql"))
    return {name: _body(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _body(text: str) -> LiteralString:
    lines = [line for line in text.strip().splitlines() if not line.startswith("--")]
    return "\n".join(lines)  # the text ships with the package: as literal as code


def sql_file(name: str) -> str:
    """The text of a file of `store/sql`."""
    return resources.files("deltasql.store").joinpath("sql", name).read_text("utf-8")
