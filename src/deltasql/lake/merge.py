"""The builder that `Table.merge` and `Transaction.merge` return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from deltasql.engines.row_change import (
    DELETE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    UPDATE,
    Clause,
    Expression,
)
from deltasql.errors import UsageError
from deltasql.operations.change_builders import SAME_NAMES, ChangeBuilder, merge


@dataclass(frozen=True)
class Merge:
    """A MERGE of source rows (`s`) into a table (`t`).

    Clauses apply in the order in which they were added: each row is changed by the first clause whose condition is
    true for it. `execute` runs the merge.
    """

    source: Any
    on: Expression
    run: Callable[[ChangeBuilder], Any] = field(repr=False)
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(
        self, values: Mapping[str, Expression] | None = None, condition: Expression | None = None
    ) -> Self:
        """Update table rows that match a source row.

        Args:
            values: Column names and their new values, as Spark SQL text or Columns. None sets every column that the
                source has under the same name.
            condition: Update only the matching rows for which this is true.

        Returns:
            The merge with this clause added.
        """
        return self._with(Clause(UPDATE, MATCHED, condition, _values(values)))

    def when_matched_delete(self, condition: Expression | None = None) -> Self:
        """Delete table rows that match a source row.

        Args:
            condition: Delete only the matching rows for which this is true.

        Returns:
            The merge with this clause added.
        """
        return self._with(Clause(DELETE, MATCHED, condition))

    def when_not_matched_insert(
        self, values: Mapping[str, Expression] | None = None, condition: Expression | None = None
    ) -> Self:
        """Insert source rows that match no table row.

        Args:
            values: Column names and their values, as Spark SQL text or Columns. None inserts every source column into
                the table column of the same name.
            condition: Insert only the source rows for which this is true.

        Returns:
            The merge with this clause added.
        """
        return self._with(Clause(INSERT, NOT_MATCHED, condition, _values(values)))

    def when_not_matched_by_source_update(
        self, values: Mapping[str, Expression], condition: Expression | None = None
    ) -> Self:
        """Update table rows that match no source row.

        Args:
            values: Column names and their new values, as Spark SQL text or Columns.
            condition: Update only the rows for which this is true.

        Returns:
            The merge with this clause added.
        """
        return self._with(Clause(UPDATE, NOT_MATCHED_BY_SOURCE, condition, dict(values)))

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> Self:
        """Delete table rows that match no source row.

        Args:
            condition: Delete only the rows for which this is true.

        Returns:
            The merge with this clause added.
        """
        return self._with(Clause(DELETE, NOT_MATCHED_BY_SOURCE, condition))

    def execute(self, returning: Any = None) -> Any:
        """Run the merge.

        Args:
            returning: Columns or Spark SQL texts to return for each changed row; `"*"` for all columns,
                `"merge_action()"` for INSERT, UPDATE or DELETE.

        Returns:
            A DataFrame with `returning`; else a CommitResult, or the metrics within a transaction.

        Raises:
            UsageError: The merge has no clause, a clause that no row reaches, or several source rows match one row.
            ValidationError: A column does not exist or a value does not fit its column.
        """
        if not self.clauses:
            raise UsageError("a merge needs a clause, such as when_matched_update(…) or when_not_matched_insert(…)")
        return self.run(merge(self.source, self.on, self.clauses, returning))

    def _with(self, clause: Clause) -> Self:
        return replace(self, clauses=(*self.clauses, clause))


def _values(values: Mapping[str, Expression] | None) -> Mapping[str, Expression]:
    return SAME_NAMES if values is None else dict(values)
