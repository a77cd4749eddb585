"""Join a table with the source of a merge, and add the rows of either side that match none.

An outer join that keeps all source rows would shuffle the whole table, although few of its rows match. So the source is
numbered and checkpointed. A small source is broadcast. Of a larger source only the columns of the condition and the
numbers are broadcast, and the matching rows are joined with the source by number. A source that is too large for that
is joined with the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltasql.engines.row_change import FILE, ROW
from deltasql.engines.spark.frame_write import estimated_row_bytes
from deltasql.engines.spark.held_rows import hold
from deltasql.protocol.constraints import quoted

NUMBER = "__deltasql_number"
"""The column that numbers the rows of a source."""

# Rough sizes in files; the sizes in memory are several times larger.
_SMALL = 16 << 20
_SMALL_KEYS = 32 << 20


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The checkpointed rows of a merge's source."""

    rows: DataFrame
    """The rows with `NUMBER`."""
    count: int

    @classmethod
    def of(cls, frame: DataFrame) -> MergeSource:
        """Number and checkpoint the rows of a frame."""
        rows = hold(frame.withColumn(NUMBER, F.monotonically_increasing_id()))
        return cls(rows, rows.count())

    @property
    def columns(self) -> list[str]:
        """The columns of the source."""
        return [name for name in self.rows.columns if name != NUMBER]

    def bytes_of(self, text: str) -> float:
        """Return the estimated size of the columns that a text may name."""
        struct = self.rows.schema.jsonValue()
        named = [f for f in struct["fields"] if f["name"] == NUMBER or f["name"].lower() in text.lower()]
        return self.count * estimated_row_bytes({**struct, "fields": named})


@dataclass(frozen=True, slots=True)
class Pairing:
    """The way to join a table with a source."""

    source: MergeSource
    condition: str
    """The join condition as text, to estimate the size of the columns that the join needs."""
    whole: bool
    """Whether table rows without a match are needed."""
    inserts: bool
    """Whether source rows without a match are needed."""

    @property
    def side(self) -> DataFrame:
        """The source side of the join, with a hint: Spark does not know the size of a checkpoint."""
        rows = self.source.rows
        return F.broadcast(rows) if self._is_small or self._is_by_keys else rows.hint("merge")

    @property
    def how(self) -> str:
        """The join type."""
        if self.inserts and not self._is_small and not self._is_by_keys:
            return "full" if self.whole else "right"
        return "left" if self.whole else "inner"

    def complete(self, joined: DataFrame, target: str, name: str) -> DataFrame:
        """Add the source rows that the join lacks.

        `joined` has row ids, the table row as the struct `target`, the source row as the struct `name`, and `NUMBER`.
        """
        if self._is_by_keys:
            return self._by_number(joined, name)
        if not self.inserts:
            return joined
        if self._is_small:
            return self._with_unmatched(joined, target, name)
        return joined.withColumn(target, F.when(F.col(ROW).isNotNull(), F.col(target)))

    @property
    def _is_small(self) -> bool:
        return self.source.bytes_of(" ".join(self.source.columns)) <= _SMALL

    @property
    def _is_by_keys(self) -> bool:
        return not self.whole and not self._is_small and self.source.bytes_of(self.condition) <= _SMALL_KEYS

    def _by_number(self, joined: DataFrame, name: str) -> DataFrame:
        """Join the source rows by number; the first join has only the columns of the condition."""
        rows = self.source.rows.select(self._struct(name), NUMBER)
        return joined.drop(name).join(rows, NUMBER, "right" if self.inserts else "inner")

    def _with_unmatched(self, joined: DataFrame, target: str, name: str) -> DataFrame:
        held = hold(joined)
        unmatched = self.source.rows.join(held.select(NUMBER).distinct(), NUMBER, "left_anti")
        nulls = [F.lit(None).cast(held.schema[c].dataType).alias(c) for c in (FILE, ROW, target)]
        return held.unionByName(unmatched.select(*nulls, self._struct(name), NUMBER))

    def _struct(self, name: str) -> F.Column:
        return F.struct(*(F.col(quoted(column)) for column in self.source.columns)).alias(name)
