"""What Spark finds wrong with a statement, said of the text that the user wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlglot.errors import UnsupportedError

from deltasql.errors import DeltaSqlError
from deltasql.sql.positions import failed, occurrences, place

_PLACES = 3


@contextmanager
def explained(text: str, tables: Collection[str], *, files: bool = False) -> Iterator[None]:
    """Let what Spark complains about be an error of the statement; the cause is chained. The
    tables are what the statement calls them; with `files` it names those that it reads."""
    try:
        yield
    except DeltaSqlError:
        raise
    except UnsupportedError as error:
        raise failed(text, f"cannot be run: {error}") from None
    except RecursionError:
        raise failed(text, "cannot be run: it is nested too deeply: take it apart") from None
    except Exception as error:
        from deltasql.engines.spark.analysis_errors import query_problem

        found = query_problem(error, tables, files=files)
        if found is None:
            raise
        raise failed(text, f"{_where(text, found.name)}{found.message}") from error


def _where(text: str, name: tuple[str, ...]) -> str:
    """Where a name stands that is complained about, if it stands in few places."""
    starts = occurrences(text, list(name)) if name else []
    if not 0 < len(starts) <= _PLACES:
        return "cannot be run: "
    return f"{' or '.join(place(text, start) for start in starts)}: "
