"""A transaction on a lake: rows, statements and actions over many tables, which commit together or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from deltasql.engines.arrow.read.deletion_vector_read import check_vector_files
from deltasql.engines.arrow.read.scan import scan
from deltasql.engines.arrow.write.input_rows import is_spark_frame
from deltasql.errors import MirrorFailure, TableExists, UsageError
from deltasql.lake.access import LakeAccess, TableHandle, lake_of
from deltasql.lake.merge import Merge
from deltasql.lake.savepoint import Savepoint
from deltasql.operations import change_builders
from deltasql.operations.change_builders import ChangeBuilder, SourceFrames
from deltasql.operations.commit import MultiTableTransaction
from deltasql.operations.dml import Outcome
from deltasql.operations.write import WriteOptions
from deltasql.protocol.actions import Action, Cdc
from deltasql.protocol.table_changes import Changes, Reads, TableState

if TYPE_CHECKING:
    from deltasql.engines.spark.spark_types import DataFrame
    from deltasql.sql.parse import Parsed
    from deltasql.sql.runner import Result

_log = logging.getLogger(__name__)

URI = "deltasql://"
"""What the address of a table begins with."""
Params = Sequence[Any] | Mapping[str, Any] | None


class Transaction:
    """Changes to many tables that commit together.

    In a `with` statement, the transaction commits on clean exit and rolls back on an exception. All tables are read as
    they were when the transaction began, with the changes that it has staged.

    Attributes:
        versions: The version of each changed table, once committed.
        mirror: The tables that committed but are not published yet, with the failure; the reconciler retries them.
        skipped: The tables that already had the number of `begin(app=…)` or a higher one, with the version that brought
            it. Nothing was committed to them.
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
        self.skipped: dict[str, int] = {}
        """The tables to which nothing was committed, because they had the application's number already."""
        if lake is not None:
            self._adopt(lake)

    @property
    def id(self) -> str | None:
        """The transaction's id, as history shows it; None until the first table names the database."""
        return self._txn.id if self._txn else None

    @property
    def token(self) -> str:
        """A text for the names of files that this transaction writes; empty until the first table names the database.

        A file name that carries it proves that the file is new, so that adding it needs no look-up.
        """
        return self._txn.token if self._txn else ""

    # --- Reading

    def df(self, table: str | TableHandle, where: str | None = None) -> DataFrame:
        """Return the rows of a table as this transaction sees them, as a Spark DataFrame.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            where: A condition in Spark SQL.

        Returns:
            A DataFrame of `lake.spark`.

        Raises:
            TableNotFound: There is no such table, or it was created after the transaction began.
        """
        txn, lake = self._begun(table)
        return lake.frame_of(txn.snapshot(self._state(table), where), where)

    def arrow(
        self, table: str | TableHandle, where: str | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of a table as this transaction sees them, read without Spark.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            where: A condition in Spark SQL.
            columns: Read only these columns.

        Returns:
            A pyarrow.Table.

        Raises:
            TableNotFound: There is no such table, or it was created after the transaction began.
        """
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
        """Stage actions by hand.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            actions: Any actions of the Delta protocol.
            expected_version: Commit exactly this version or raise `VersionConflict`.
            reads: What was read of the table, for the conflict check.

        Raises:
            TableNotFound: There is no such table.
            ValidationError: An action is not valid.
        """
        txn, lake = self._begun(table)
        state = self._state(table)
        given: Any = list(actions) if isinstance(actions, Iterable) else actions
        changes = Changes.of(given, state.name)
        check_vector_files(changes, state, lake.storage_options)
        more = self._feed_of(txn, lake, state, changes)
        txn.stage_on(state, [*given, *more], expected_version, reads=reads)
        self._name(table, state)

    def _feed_of(self, txn: MultiTableTransaction, lake: LakeAccess, state: TableState, given: Changes) -> list[Cdc]:
        """Return the change files that the change data feed needs besides the staged actions."""
        if not txn.staged(state).cdc and not (given.cdc and txn.staged(state).num_files):
            return []
        adds = [add for add in given.adds if add.data_change]
        removes = [remove for remove in given.removes if remove.data_change]
        told = lake.writer.complete_feed(txn, state, adds, removes, given.cdc)
        return [one for one in told if one not in given.cdc]

    def write(self, table: str | TableHandle, df: Any, mode: str = "append", **options: Any) -> Mapping[str, str]:
        """Write rows to a table.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            df: The rows, as in `Table.append`.
            mode: "append" or "overwrite".
            options: The options of `Table.append` and `Table.overwrite`.

        Returns:
            The metrics of the write.

        Raises:
            UsageError: Options exclude each other.
            ValidationError: The rows do not fit the schema.
            ConstraintViolation: A row violates a constraint; nothing of this write is staged.
        """
        return self._write(table, df, WriteOptions(mode, **options))

    def _write(self, table: str | TableHandle, rows: Any, options: WriteOptions) -> Mapping[str, str]:
        txn, lake = self._begun(table)
        state = self._state(table)
        with self._all_or_nothing(txn):
            metrics = lake.writer.write(txn, state, rows, options)
        self._name(table, state)
        return metrics

    def insert(self, table: str | TableHandle, data: Any, returning: Any = None) -> Any:
        """Insert rows, as `Table.insert` does.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            data: The rows.
            returning: Columns or Spark SQL texts to return.

        Returns:
            The metrics; with `returning`, a DataFrame of the inserted rows.
        """
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
        """Update rows, as `Table.update` does, without a retry.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            values: New values by column name.
            where: Update only the rows for which this is true.
            source: Rows to update from.
            returning: Columns or Spark SQL texts to return.

        Returns:
            The metrics; with `returning`, a DataFrame of the new rows.
        """
        return self._change(table, change_builders.update(values, where, source, returning))

    def delete(self, table: str | TableHandle, where: Any = None, source: Any = None, returning: Any = None) -> Any:
        """Delete rows, as `Table.delete` does, without a retry.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            where: Delete only the rows for which this is true.
            source: Rows to join with.
            returning: Columns or Spark SQL texts to return.

        Returns:
            The metrics; with `returning`, a DataFrame of the deleted rows.
        """
        return self._change(table, change_builders.delete(where, source, returning))

    def merge(self, table: str | TableHandle, source: Any, on: Any) -> Merge:
        """Begin a merge, as `Table.merge` does.

        Args:
            table: A name, a `Table` or a deltasql:// URI.
            source: The source rows.
            on: The condition that matches source rows with table rows.

        Returns:
            A `Merge`; its `execute` returns the metrics, or a DataFrame with `returning`.
        """
        return Merge(source, on, lambda build: self._change(table, build))

    def _change(self, table: str | TableHandle, build: ChangeBuilder) -> Any:
        outcome = self.change(table, build)
        return outcome.metrics if outcome.returned is None else outcome.returned

    def change(self, table: str | TableHandle, build: ChangeBuilder) -> Outcome:
        """Stage a change of rows."""
        txn, lake = self._begun(table)
        state = self._state(table)
        sources = SourceFrames(lambda: lake.spark, self.df)  # tables as this transaction sees them
        with self._all_or_nothing(txn):
            outcome = lake.changer.change(txn, state, build(sources, state))
        if outcome.changed:
            self._name(table, state)
        return outcome

    def create_table(self, name: str, schema: Any = None, **options: Any) -> None:
        """Create a table as part of this transaction, which can write and read it at once.

        Args:
            name: `table` or `namespace.table`.
            schema: DDL text, a pyarrow.Schema or a Spark StructType.
            options: The options of `Lake.create_table`.

        Raises:
            TableExists: The name is taken.
            ValidationError: The schema, a property or a constraint is not valid.
        """
        txn, lake = self._begun(name)
        if (there := txn.find_or_none(lake.local_name(name))) is not None:
            raise TableExists(there.name)
        with self._all_or_nothing(txn):
            state = lake.stage_table(txn, name, schema, **options)
        self._name(name, state)

    def sql(self, text: str, params: Params = None, *, dialect: str = "postgres") -> Any:
        """Run a SQL statement as part of this transaction.

        Args:
            text: One statement, as in `Lake.sql`; DROP TABLE is not allowed.
            params: Values for `$1`, `$2`, … (a sequence) or `:name` (a mapping).
            dialect: What expressions mean: "postgres" or "spark", as in `Lake.sql`.

        Returns:
            A DataFrame for a query or RETURNING, else the metrics.

        Raises:
            ValidationError: The statement is not valid; the message names the position.
        """
        from deltasql.sql.parse import parse

        result = self.run(parse(text, params, dialect))
        return result.metrics if result.frame is None else result.frame

    def run(self, parsed: Parsed, drop: Callable[[str], object] | None = None) -> Result:
        """Run a parsed statement; `drop` removes tables from the lake at once."""
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
        """Make the changes in a `with` statement all or nothing: an exception takes them back and propagates.

        Returns:
            A context manager that gives a `Savepoint`. The transaction can go on after an exception.
        """
        txn, _ = self._with_lake()
        point = Savepoint(txn, txn.staging_point())
        try:
            yield point
        except BaseException:
            point.rollback()
            raise

    @contextmanager
    def _all_or_nothing(self, txn: MultiTableTransaction) -> Iterator[None]:
        """Unstage everything that a failing statement staged."""
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

    def name_of(self, state: TableState) -> str:
        """Return the name of a changed table in `versions`."""
        return self._names.get(state.table_id, state.name)

    def _name(self, table: str | TableHandle, state: TableState) -> None:
        self._names[state.table_id] = table if isinstance(table, str) else table.name

    def _begun(self, table: str | TableHandle) -> tuple[MultiTableTransaction, LakeAccess]:
        if not isinstance(table, str):
            self._adopt(lake_of(table))
        elif self._lake is None:
            self._adopt(self._open(table))
        return self._with_lake()

    def _with_lake(self) -> tuple[MultiTableTransaction, LakeAccess]:
        if self._txn is None or self._lake is None:
            raise UsageError("the transaction has no lake: use deltasql.connect().begin()")
        self._txn.check_open()
        return self._txn, self._lake

    def _open(self, uri: str) -> LakeAccess:
        if not uri.startswith(URI):
            raise UsageError(
                f"deltasql.begin() needs a deltasql:// URI to find the lake, got {uri!r}; "
                f"or begin on a lake: deltasql.connect().begin()",
                value=uri,
            )
        self._owned = self._open_lake(uri)
        return self._owned

    def _adopt(self, lake: LakeAccess) -> None:
        if self._lake is None:
            self._lake = lake
            self._txn = MultiTableTransaction(lake.store, point=lake.store.heads(), **self._options)
        elif self._lake is not lake and self._lake.dsn != lake.dsn:
            raise UsageError(
                f"a transaction cannot span databases: it began on {self._lake!r}, the table is in {lake!r}"
            )

    # --- The end

    def commit(self) -> dict[str, int]:
        """Commit every staged table, or none.

        Returns:
            The version of each changed table, by the name that the transaction was given.

        Raises:
            CommitConflict: Another commit got in between; nothing landed.
            ValidationError: The staged actions are not a valid commit; nothing landed.
            CommitOutcomeUnknown: The commit may have landed.
        """
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
        before = {table_id: result.version for table_id, result in txn.results.items() if result.before}
        self.skipped = {named[table_id]: version for table_id, version in before.items()}
        for table_id in before:
            self._warn_of_later_number(table_id, named[table_id])

    def _warn_of_later_number(self, table_id: str, name: str) -> None:
        """Log that a table has a higher number of the application, so that this one was not a repetition."""
        app_id, number = self._options["app"]
        store = self._lake.store if self._lake is not None else None
        latest = None if store is None else store.txn_version(store.state(table_id), app_id)
        if latest is not None and latest > number:
            _log.warning(
                "table %s: number %d of application %r was not committed, because number %d was committed before. A "
                "stream that starts with a new checkpoint needs a new name",
                name,
                number,
                app_id,
                latest,
            )

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
