"""The SQL statements of the store, by name. `queries.sql` has blocks that begin with `-- name --` and a comment."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString

_HEAD = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries() -> dict[str, LiteralString]:
    """Return all statements by name, without their comments."""
    parts = _HEAD.split(sql_file("queries.sql"))
    return {name: _body(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _body(text: str) -> LiteralString:
    lines = [line for line in text.strip().splitlines() if not line.startswith("--")]
    return "\n".join(lines)  # safe as a LiteralString: the text is part of the package


def sql_file(name: str) -> str:
    """Return the text of a file in `store/sql`."""
    return resources.files("deltasql.store").joinpath("sql", name).read_text("utf-8")
