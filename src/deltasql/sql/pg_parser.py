"""PostgreSQL's syntax: sqlglot's parser, without its own view of what functions mean."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser

Tree = Any


class PostgreSql(Postgres):
    """Keeps calls of functions and subscripts of arrays as they are written."""

    INDEX_OFFSET = 0

    class Parser(PostgresParser):
        """Parses functions by their syntax alone: the binder knows what they mean."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in PostgresParser.FUNCTION_PARSERS.items() if name != "DATE_PART"
        }

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Tree:
            """Parse a literal with its type, `DATE '2026-01-31'`, before a cast that follows it."""
            if self._curr.token_type in self.TYPE_TOKENS and self._curr.token_type != TokenType.INTERVAL:
                index = self._index
                kind = self._parse_types(check_func=True, allow_identifiers=False)
                if isinstance(kind, exp.DataType) and self._curr.token_type == TokenType.STRING:
                    literal = self._parse_primary()
                    return self._parse_column_ops(self.expression(exp.Cast(this=literal, to=kind)))
                self._retreat(index)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Tree:
            """Parse `INTERVAL '1 day 02:03'`: sqlglot itself drops what follows a single unit in the text."""
            is_text = self._curr.token_type == TokenType.INTERVAL and self._next.token_type == TokenType.STRING
            if is_text and any(character.isalpha() for character in self._next.text):
                self._advance()
                return self.expression(exp.Interval(this=self._parse_primary()))
            return super()._parse_interval(require_interval, parse_function_unit)
