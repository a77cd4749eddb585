"""Translate Spark's errors to errors about the text of the statement."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlglot.errors import UnsupportedError

from deltasql.errors import ValidationError, text_position
from deltasql.sql.positions import failed, occurrences

_MAX_POSITIONS = 3


@contextmanager
def explained(text: str, tables: Collection[str], *, files: bool = False) -> Iterator[None]:
    """Raise Spark's errors as errors of the statement, with positions; the cause is chained.

    `tables` are the aliases in the statement. With `files` errors about read files are translated as well.
    """
    from deltasql.engines.spark.analysis_errors import QueryProblem, translated_query_errors

    def translate(problem: QueryProblem, _: Exception) -> ValidationError:
        return failed(text, f"{_where(text, problem.name)}{problem.message}")

    try:
        with translated_query_errors(translate, tables, files=files):
            yield
    except UnsupportedError as error:
        raise failed(text, f"cannot be run: {error}") from None
    except RecursionError:
        raise failed(text, "cannot be run: it is nested too deeply: split it") from None


def _where(text: str, name: tuple[str, ...]) -> str:
    """Return the positions of the name in the error, if there are few."""
    starts = occurrences(text, list(name)) if name else []
    if not 0 < len(starts) <= _MAX_POSITIONS:
        return "cannot be run: "
    return f"{' or '.join(text_position(text, start) for start in starts)}: "
