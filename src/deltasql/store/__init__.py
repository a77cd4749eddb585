"""The store: the transaction log of every table, in PostgreSQL. The only package that knows psycopg and ADBC."""

from deltasql.protocol.table_changes import Snapshot
from deltasql.store.read.log_reader import SqlTxnLogReader
from deltasql.store.records import HistoryEntry, TableInfo, TransactionInfo
from deltasql.store.store import Store
from deltasql.store.write.prepared_commit import Committed, Landed, TransactionHeader

__all__ = [
    "Committed",
    "HistoryEntry",
    "Landed",
    "Snapshot",
    "SqlTxnLogReader",
    "Store",
    "TableInfo",
    "TransactionHeader",
    "TransactionInfo",
]
