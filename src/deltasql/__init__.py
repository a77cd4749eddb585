"""deltasql: Delta Lake tables whose transaction log lives in PostgreSQL.

Names other than the errors load the module that defines them at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltasql.errors import (
    AccessDenied,
    CommitConflict,
    CommitOutcomeUnknown,
    CommitTimeout,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    ConstraintViolation,
    CopiedDatabase,
    DatabaseError,
    DatabaseUnavailable,
    DeltaSqlError,
    HistoryReplaced,
    MetadataChanged,
    MirrorConflict,
    MirrorFailure,
    ProtocolChanged,
    SchemaOutdated,
    StorageError,
    TableExists,
    TableNotFound,
    TransactionLimitExceeded,
    UnsupportedFeature,
    UsageError,
    ValidationError,
    VersionConflict,
)

if TYPE_CHECKING:
    from deltasql.datasource import register
    from deltasql.lake import CommitResult, Lake, LakeSnapshot, Table, begin, connect
    from deltasql.lake.savepoint import Savepoint
    from deltasql.lake.streaming import stream_to
    from deltasql.lake.transaction import Transaction
    from deltasql.mirror import Mirror, MirrorReport, MirrorStatus
    from deltasql.mirror.manifests import LakeVersions, versions_as_of
    from deltasql.operations.commit import MultiTableTransaction, SqlTxnLogWriter
    from deltasql.protocol.actions import (
        Add,
        Cdc,
        CommitInfo,
        DeletionVector,
        DomainMetadata,
        Format,
        Metadata,
        Protocol,
        Remove,
        Txn,
    )
    from deltasql.protocol.table_changes import Reads
    from deltasql.store import HistoryEntry, Snapshot, SqlTxnLogReader, Store, TableInfo, TransactionInfo

__all__ = [
    "AccessDenied",
    "Add",
    "Cdc",
    "CommitConflict",
    "CommitInfo",
    "CommitOutcomeUnknown",
    "CommitResult",
    "CommitTimeout",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentTransaction",
    "ConstraintViolation",
    "CopiedDatabase",
    "DatabaseError",
    "DatabaseUnavailable",
    "DeletionVector",
    "DeltaSqlError",
    "DomainMetadata",
    "Format",
    "HistoryEntry",
    "HistoryReplaced",
    "Lake",
    "LakeSnapshot",
    "LakeVersions",
    "Metadata",
    "MetadataChanged",
    "Mirror",
    "MirrorConflict",
    "MirrorFailure",
    "MirrorReport",
    "MirrorStatus",
    "MultiTableTransaction",
    "Protocol",
    "ProtocolChanged",
    "Reads",
    "Remove",
    "Savepoint",
    "SchemaOutdated",
    "Snapshot",
    "SqlTxnLogReader",
    "SqlTxnLogWriter",
    "StorageError",
    "Store",
    "Table",
    "TableExists",
    "TableInfo",
    "TableNotFound",
    "Transaction",
    "TransactionInfo",
    "TransactionLimitExceeded",
    "Txn",
    "UnsupportedFeature",
    "UsageError",
    "ValidationError",
    "VersionConflict",
    "begin",
    "connect",
    "register",
    "stream_to",
    "versions_as_of",
]

_MODULES = {
    "deltasql.datasource": ("register",),
    "deltasql.lake": (
        "CommitResult",
        "Lake",
        "LakeSnapshot",
        "Table",
        "begin",
        "connect",
    ),
    "deltasql.lake.savepoint": ("Savepoint",),
    "deltasql.lake.streaming": ("stream_to",),
    "deltasql.lake.transaction": ("Transaction",),
    "deltasql.mirror": (
        "Mirror",
        "MirrorReport",
        "MirrorStatus",
    ),
    "deltasql.mirror.manifests": (
        "LakeVersions",
        "versions_as_of",
    ),
    "deltasql.operations.commit": (
        "MultiTableTransaction",
        "SqlTxnLogWriter",
    ),
    "deltasql.protocol.actions": (
        "Add",
        "Cdc",
        "CommitInfo",
        "DeletionVector",
        "DomainMetadata",
        "Format",
        "Metadata",
        "Protocol",
        "Remove",
        "Txn",
    ),
    "deltasql.protocol.table_changes": ("Reads",),
    "deltasql.store": (
        "HistoryEntry",
        "HistoryReplaced",
        "Snapshot",
        "SqlTxnLogReader",
        "Store",
        "TableInfo",
        "TransactionInfo",
    ),
}
_MODULE_OF_NAME = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Return a public name from the module that defines it."""
        if name not in _MODULE_OF_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
