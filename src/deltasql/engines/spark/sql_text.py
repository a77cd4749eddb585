"""Hand SQL texts of users to Spark as they are: Spark replaces `${name}` in every text by settings or variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deltasql.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column

# Comments, texts (raw or with escapes) and quoted names of Spark SQL.
_PARTS = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?P<raw>[rR])(?P<rawquote>['\"]).*?(?P=rawquote)|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`",
    re.DOTALL,
)


def verbatim(sql: str) -> str:
    """Return SQL in which Spark substitutes nothing: a text with `${` becomes two texts that Spark joins.

    Raises:
        UsageError: A quoted name holds `${`; Spark cannot read it.
    """
    return _PARTS.sub(_split, sql) if "${" in sql else sql


def _split(found: re.Match[str]) -> str:
    part = found[0]
    if "${" not in part or part.startswith(("--", "/*")):
        return part
    if part.startswith("`"):
        raise UsageError(f"the name {part} holds ${{, which Spark replaces: use another name", value=part)
    prefix = found["raw"] or ""
    quote = part[len(prefix)]
    return part.replace("${", f"${quote} {prefix}{quote}{{")


def expression(sql: str) -> Column:
    """Return an expression in Spark SQL as a column."""
    from pyspark.sql import functions as F

    return F.expr(verbatim(sql))
