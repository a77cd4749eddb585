"""Rows of a query that are computed when the caller asks for them: their errors are translated then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

from deltasql.engines.spark.spark_types import DataFrame

Translation = Callable[[], AbstractContextManager[None]]
_ACTIONS = (
    "collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty", "show", "tail", "take", "toArrow",
    "toPandas",
)  # fmt: skip


def with_translated_errors(frame: DataFrame, translation: Translation) -> DataFrame:
    """Return a frame whose own actions raise translated errors. Frames that are made of it raise those of Spark."""
    for name in _ACTIONS:
        setattr(frame, name, _translated(getattr(frame, name), translation))
    iterate = frame.toLocalIterator

    @wraps(iterate)
    def rows(*args: Any, **options: Any) -> Iterator[Any]:
        with translation():
            yield from iterate(*args, **options)

    frame.toLocalIterator = rows
    return frame


def _translated(action: Callable[..., Any], translation: Translation) -> Callable[..., Any]:
    @wraps(action)
    def act(*args: Any, **options: Any) -> Any:
        with translation():
            return action(*args, **options)

    return act
