"""The store: the transaction log of every table, in PostgreSQL. The only package that knows psycopg and ADBC."""

from deltasql.store.parts import Committed, Landed, Transaction
from deltasql.store.reader import Snapshot, SqlTxnLogReader
from deltasql.store.records import HistoryEntry, TableInfo, TransactionInfo
from deltasql.store.store import Store

__all__ = [
    "Committed",
    "HistoryEntry",
    "Landed",
    "Snapshot",
    "SqlTxnLogReader",
    "Store",
    "TableInfo",
    "Transaction",
    "TransactionInfo",
]
