"""Streams that write to several tables: each batch is one transaction, committed exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from deltasql.addresses import without_secrets
from deltasql.errors import UsageError
from deltasql.lake import Lake, connect
from deltasql.lake.transaction import Transaction

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame

_log = logging.getLogger(__name__)

Rows = Callable[[Any], Any]
Work = Callable[[Transaction, Any], None]


def stream_to(
    lake: Lake, query_name: str, tables: Mapping[str, Rows | None] | Work
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that writes each batch to several tables in one transaction.

    The tables record the query name and the batch number, so a batch that was committed before is skipped. A stream
    that starts with a new checkpoint needs a new name.

    Args:
        lake: The lake.
        query_name: The name under which the tables record batches.
        tables: For each table a function from the batch to its rows (None for the whole batch), or one function of the
            transaction and the batch that does all the work.

    Returns:
        The function to pass to `foreachBatch`.

    Raises:
        UsageError: The name or the tables are missing.
    """
    if not query_name or not isinstance(query_name, str):
        raise UsageError(f"query_name must be a non-empty text, got {query_name!r}", value=query_name)
    if not tables:
        raise UsageError(f"stream {query_name!r}: tables is empty")
    return _Feed(lake, query_name, tables)


class _Feed:
    """Writes batches. It can be pickled, without passwords; another process opens the lake again."""

    def __init__(self, lake: Lake, query_name: str, tables: Mapping[str, Rows | None] | Work) -> None:
        self._lake: Lake | None = lake
        self._address: dict[str, Any] = {
            "url": without_secrets(lake.dsn),
            "config": lake.config_values(),
            "storage_options": lake.storage_options,
        }
        self._name = query_name
        self._tables = tables

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lake": None}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        from deltasql.engines.spark.held_rows import release_in_thread

        release_in_thread(batch)
        if self._lake is not None:
            self._take(self._lake, batch, batch_id)
            return
        with connect(**self._address, spark=batch.sparkSession) as lake:
            self._take(lake, batch, batch_id)

    def _take(self, lake: Lake, batch: DataFrame, batch_id: int) -> None:
        if self._is_done(lake, batch_id):
            _log.info("batch %d of stream %s was committed before", batch_id, self._name)
            return
        kept = batch.persist()
        try:
            with lake.begin(app=(self._name, batch_id)) as tx:
                if callable(self._tables):
                    self._tables(tx, kept)
                    return
                for name, rows in self._tables.items():
                    tx.write(name, kept if rows is None else rows(kept))
        finally:
            kept.unpersist()

    def _is_done(self, lake: Lake, batch_id: int) -> bool:
        """Return whether all tables have the batch. The commit checks this as well, but after all the work."""
        if callable(self._tables):
            return False
        versions = [lake.store.txn_version(lake.table(name).state(), self._name) for name in self._tables]
        return all(version is not None and version >= batch_id for version in versions)
