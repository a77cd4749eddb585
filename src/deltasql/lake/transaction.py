"""A transaction on a lake: rows, statements and actions over many tables, which commit together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.input_rows import is_spark_frame
from deltasql.errors import MirrorFailure, TableExists, UsageError
from deltasql.lake.merge import Merge
from deltasql.operations import change_builders
from deltasql.operations.change_builders import ChangeBuilder, SourceFrames
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.dml import Outcome
from deltasql.operations.staging import StagingPoint
from deltasql.operations.write import WriteOptions
from deltasql.protocol.actions import Action, Cdc
from deltasql.protocol.table_changes import Changes, Reads, TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame, SparkSession
    from deltasql.operations.dml import RowChanger
    from deltasql.operations.write import TableWriter
    from deltasql.sql.parse import Parsed
    from deltasql.sql.runner import Result
    from deltasql.sql.statement_session import TransactionSession
    from deltasql.store import Snapshot, Store

URI = "deltasql://"
"""What the address of a table begins with."""
Params = Sequence[Any] | Mapping[str, Any] | None


class LakeAccess(Protocol):
    """What a transaction asks of its lake."""

    store: Store
    writer: TableWriter
    changer: RowChanger
    storage_options: dict[str, str]

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""

    def frame_of(self, snapshot: Snapshot, where: str | None = None) -> DataFrame:
        """The rows of a snapshot."""

    def statement_session(self, txn: MultiTableTransaction, drop: Callable[[str], None] | None) -> TransactionSession:
        """Where statements find tables."""

    @property
    def stage_table(self) -> Callable[..., TableState]:
        """Creates a table in a transaction."""

    def local_name(self, name: str) -> str:
        """The name that a table has in there."""

    def close(self) -> None:
        """Give connections back."""


class TableHandle(Protocol):
    """A table of a lake."""

    id: str
    name: str

    @property
    def lake(self) -> LakeAccess:
        """Where it is."""


class Transaction:
    """Changes to many tables that commit together. In a `with` statement: commit on clean exit, else roll back.

    All tables are read as they were when the transaction began, with what it staged itself.
    """

    def __init__(self, lake: LakeAccess | None, open_lake: Callable[[str], LakeAccess], **options: Any) -> None:
        self._lake: LakeAccess | None = None
        self._open_lake = open_lake
        self._owned: LakeAccess | None = None
        self._options = options
        self._txn: MultiTableTransaction | None = None
        self._names: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        """Where each table landed, once it has committed."""
        self.mirror: dict[str, MirrorFailure] = {}
        """The tables that have committed, and could not be published yet; the reconciler goes on with them."""
        if lake is not None:
            self._adopt(lake)

    @property
    def id(self) -> str | None:
        """The transaction's id, as history shows it; None until the first table names the database."""
        return self._txn.id if self._txn else None

    @property
    def token(self) -> str:
        """A text for the names of files that this transaction writes: a file that carries it is known to be new, so
        adding it needs no look-up. Empty until the first table names the database."""
        return self._txn.token if self._txn else ""

    # --- Reading

    def df(self, table: str | TableHandle, where: str | None = None) -> DataFrame:
        """The rows of a table as a Spark DataFrame, as this transaction sees them."""
        txn, lake = self._begun(table)
        return lake.frame_of(txn.snapshot(self._state(table), where), where)

    def arrow(
        self, table: str | TableHandle, where: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of a table without Spark, as this transaction sees them."""
        txn, lake = self._begun(table)
        return scan(txn.snapshot(self._state(table), where), lake.storage_options, columns).table()

    # --- Writing

    def stage(
        self,
        table: str | TableHandle,
        actions: Iterable[Action],
        expected_version: int | None = None,
        *,
        reads: Reads | None = None,
    ) -> None:
        """Stage actions by hand. The table is a name, a Table or a deltasql:// URI."""
        txn, lake = self._begun(table)
        state = self._state(table)
        given: Any = list(actions) if isinstance(actions, Iterable) else actions
        more = self._feed_of(txn, lake, state, Changes.of(given, state.name))
        txn.stage_on(state, [*given, *more], expected_version, reads=reads)
        self._name(table, state)

    def _feed_of(self, txn: MultiTableTransaction, lake: LakeAccess, state: TableState, given: Changes) -> list[Cdc]:
        """What a table's change data feed has to tell besides, once one of several statements is told by files of
        changes."""
        if not txn.staged(state).cdc and not (given.cdc and txn.staged(state).num_files):
            return []
        adds = [add for add in given.adds if add.data_change]
        removes = [remove for remove in given.removes if remove.data_change]
        told = lake.writer.complete_feed(txn, state, adds, removes, given.cdc)
        return [one for one in told if one not in given.cdc]

    def write(self, table: str | TableHandle, df: Any, mode: str = "append", **options: Any) -> Mapping[str, str]:
        """Write rows to a table: appended, or with mode="overwrite" in place of others. The options are those of
        `Table.append` and `Table.overwrite`. What was done, in numbers."""
        return self._write(table, df, WriteOptions(mode, **options))

    def _write(self, table: str | TableHandle, rows: Any, options: WriteOptions) -> Mapping[str, str]:
        txn, lake = self._begun(table)
        state = self._state(table)
        with self._all_or_nothing(txn):
            metrics = lake.writer.write(txn, state, rows, options)
        self._name(table, state)
        return metrics

    def insert(self, table: str | TableHandle, data: Any, returning: Any = None) -> Any:
        """`Table.insert` as part of this transaction: the rows that came in, or the metrics."""
        if returning is None:
            return self._write(table, data, WriteOptions(assign=is_spark_frame(data)))
        return self._change(table, change_builders.insert(data, returning))

    def update(
        self,
        table: str | TableHandle,
        values: Mapping[str, Any],
        where: Any = None,
        source: Any = None,
        returning: Any = None,
    ) -> Any:
        """`Table.update` as part of this transaction: the new rows, or the metrics."""
        return self._change(table, change_builders.update(values, where, source, returning))

    def delete(self, table: str | TableHandle, where: Any = None, source: Any = None, returning: Any = None) -> Any:
        """`Table.delete` as part of this transaction: the rows that went, or the metrics."""
        return self._change(table, change_builders.delete(where, source, returning))

    def merge(self, table: str | TableHandle, source: Any, on: Any) -> Merge:
        """`Table.merge` as part of this transaction; `execute` gives what became of the rows, or the metrics."""
        return Merge(source, on, lambda build: self._change(table, build))

    def _change(self, table: str | TableHandle, build: ChangeBuilder) -> Any:
        outcome = self.change(table, build)
        return outcome.metrics if outcome.returned is None else outcome.returned

    def change(self, table: str | TableHandle, build: ChangeBuilder) -> Outcome:
        """Change rows of a table."""
        txn, lake = self._begun(table)
        state = self._state(table)
        sources = SourceFrames(lambda: lake.spark, self.df)  # tables as this transaction sees them
        with self._all_or_nothing(txn):
            outcome = lake.changer.change(txn, state, build(sources, state))
        if outcome.changed:
            self._name(table, state)
        return outcome

    def create_table(self, name: str, schema: Any = None, **options: Any) -> None:
        """Create a table as part of this transaction, which can fill it and read it at once; the options are those of
        `Lake.create_table`."""
        txn, lake = self._begun(name)
        if (there := txn.find_or_none(lake.local_name(name))) is not None:
            raise TableExists(there.name)
        with self._all_or_nothing(txn):
            state = lake.stage_table(txn, name, schema, **options)
        self._name(name, state)

    def sql(self, text: str, params: Params = None) -> Any:
        """Run a statement as part of this transaction: a DataFrame of what it selects or returns, else its metrics."""
        from deltasql.sql.parse import parse

        result = self.run(parse(text, params))
        return result.metrics if result.frame is None else result.frame

    def run(self, parsed: Parsed, drop: Callable[[str], None] | None = None) -> Result:
        """Run a statement that was parsed; `drop` takes tables out of the lake at once."""
        from deltasql.sql.runner import Runner

        txn, lake = self._with_lake()
        session = lake.statement_session(txn, drop)
        with self._all_or_nothing(txn):
            try:
                return Runner(session, parsed).run()
            finally:
                self._names |= session.names

    # --- Parts of it

    @contextmanager
    def savepoint(self) -> Iterator[Savepoint]:
        """What is done in the `with` statement is done as a whole: an exception takes it back, and goes on its way. The
        transaction can go on."""
        txn, _ = self._with_lake()
        point = Savepoint(txn, txn.staging_point())
        try:
            yield point
        except BaseException:
            point.rollback()
            raise

    @contextmanager
    def _all_or_nothing(self, txn: MultiTableTransaction) -> Iterator[None]:
        """A statement that fails leaves nothing staged of itself."""
        mark = txn.staging_point()
        try:
            yield
        except BaseException:
            txn.return_to(mark)
            raise

    # --- Tables

    def _state(self, table: str | TableHandle) -> TableState:
        txn, lake = self._begun(table)
        return txn.find(lake.local_name(table) if isinstance(table, str) else table.id)

    def _name(self, table: str | TableHandle, state: TableState) -> None:
        self._names[state.table_id] = table if isinstance(table, str) else table.name

    def _begun(self, table: str | TableHandle) -> tuple[MultiTableTransaction, LakeAccess]:
        if not isinstance(table, str):
            self._adopt(table.lake)
        elif self._lake is None:
            self._adopt(self._open(table))
        return self._with_lake()

    def _with_lake(self) -> tuple[MultiTableTransaction, LakeAccess]:
        if self._txn is None or self._lake is None:
            raise UsageError("deltasql.begin() knows no lake yet: begin on a lake, deltasql.connect().begin()")
        self._txn.check_open()
        return self._txn, self._lake

    def _open(self, uri: str) -> LakeAccess:
        if not uri.startswith(URI):
            raise UsageError(
                f"deltasql.begin() knows no lake yet, so a table is named by its deltasql:// URI, not {uri!r}; "
                f"or begin on a lake: deltasql.connect().begin()",
                value=uri,
            )
        self._owned = self._open_lake(uri)
        return self._owned

    def _adopt(self, lake: LakeAccess) -> None:
        if self._lake is None:
            self._lake = lake
            self._txn = MultiTableTransaction(lake.store, point=lake.store.current_versions(), **self._options)
        elif self._lake is not lake and self._lake.store.dsn != lake.store.dsn:
            raise UsageError(f"a transaction has one database: it began on {self._lake!r}, this table is in {lake!r}")

    # --- The end

    def commit(self) -> dict[str, int]:
        """Commit every staged table, or none: {table: version}, as `versions` keeps it."""
        try:
            if self._txn is not None:
                self._commit(self._txn)
        finally:
            self._release()
        return self.versions

    def _commit(self, txn: MultiTableTransaction) -> None:
        landed = txn.commit()
        named = {table_id: self._names.get(table_id, table_id) for table_id in landed}
        self.versions = {named[table_id]: version for table_id, version in landed.items()}
        failures = {table_id: result.mirror for table_id, result in txn.results.items()}
        self.mirror = {named[table_id]: failure for table_id, failure in failures.items() if failure}

    def rollback(self) -> None:
        """Drop everything that was staged, and delete the files that were written."""
        try:
            if self._txn is not None:
                self._txn.rollback()
        finally:
            self._release()

    def _release(self) -> None:
        if self._owned is not None:
            self._owned.close()
            self._owned = None

    def __enter__(self) -> Self:
        if self._txn is not None:
            self._txn.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._txn is None or not self._txn.is_open:
                return
            if error is None:
                self.commit()
            else:
                self._txn.rollback()
        finally:
            self._release()


class Savepoint:
    """A moment of a transaction to come back to."""

    def __init__(self, txn: MultiTableTransaction, mark: StagingPoint) -> None:
        self._txn, self._mark = txn, mark

    def rollback(self) -> None:
        """Take back what was done since, as often as wanted."""
        self._txn.check_open()
        self._txn.return_to(self._mark)
