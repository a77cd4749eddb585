"""Rows of a table and rows of a source that match, for a merge; and the rows of either that match none.

An outer join that keeps the source would shuffle the whole table, though few of its rows match. So the source is
numbered and held. A small one is sent to every task. Of a larger one only the columns of the condition are, which gives
the table's rows that match, each with a number; the source's rows come to these by their numbers. One that is too large
for that too is joined with the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltasql.engines.row_change import FILE, ROW
from deltasql.engines.spark.frame_write import estimated_row_bytes
from deltasql.protocol.constraints import quoted

NUMBER = "__deltasql_number"
"""The column that tells rows of a source apart."""

# Bytes in files, roughly; several times that in memory.
_SMALL = 16 << 20
_SMALL_KEYS = 32 << 20


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The rows that are merged into a table, the same whenever they are asked for."""

    rows: DataFrame
    """With their numbers."""
    count: int

    @classmethod
    def of(cls, frame: DataFrame) -> MergeSource:
        """Compute the rows of a frame, once."""
        rows = frame.withColumn(NUMBER, F.monotonically_increasing_id()).localCheckpoint()
        return cls(rows, rows.count())

    @property
    def columns(self) -> list[str]:
        """What the user calls them."""
        return [name for name in self.rows.columns if name != NUMBER]

    def bytes_of(self, text: str) -> float:
        """How much the columns that may be named in a text take."""
        struct = self.rows.schema.jsonValue()
        named = [f for f in struct["fields"] if f["name"] == NUMBER or f["name"].lower() in text.lower()]
        return self.count * estimated_row_bytes({**struct, "fields": named})


@dataclass(frozen=True, slots=True)
class Pairing:
    """How a table and a source are brought together."""

    source: MergeSource
    condition: str
    """How rows match, as a text: to guess how much the join has to know of the source."""
    whole: bool
    """Are the table's rows that match none wanted too?"""
    inserts: bool
    """Are the source's?"""

    @property
    def side(self) -> DataFrame:
        """What the table is joined with. Spark does not know the size of what is held."""
        rows = self.source.rows
        return F.broadcast(rows) if self._is_small or self._is_by_keys else rows.hint("merge")

    @property
    def how(self) -> str:
        """The kind of join."""
        if self.inserts and not self._is_small and not self._is_by_keys:
            return "full" if self.whole else "right"
        return "left" if self.whole else "inner"

    def complete(self, joined: DataFrame, target: str, name: str) -> DataFrame:
        """All rows that are wanted, of a join that gives the place and the row of the table, the row of the source and
        its number; rows are structs under the two names, and null where there is none."""
        if self._is_by_keys:
            return self._by_number(joined, name)
        there = {target: F.when(F.col(ROW).isNotNull(), F.col(target))}
        if not self.inserts:
            return joined
        return self._with_others(joined, target, name) if self._is_small else joined.withColumns(there)

    @property
    def _is_small(self) -> bool:
        return self.source.bytes_of(" ".join(self.source.columns)) <= _SMALL

    @property
    def _is_by_keys(self) -> bool:
        return not self.whole and not self._is_small and self.source.bytes_of(self.condition) <= _SMALL_KEYS

    def _by_number(self, joined: DataFrame, name: str) -> DataFrame:
        """The source's rows do not come with the join: nothing but its condition and numbers is sent to all tasks."""
        rows = self.source.rows.select(self._struct(name), NUMBER)
        return joined.drop(name).join(rows, NUMBER, "right" if self.inserts else "inner")

    def _with_others(self, joined: DataFrame, target: str, name: str) -> DataFrame:
        held = joined.localCheckpoint()
        others = self.source.rows.join(held.select(NUMBER).distinct(), NUMBER, "left_anti")
        nothing = [F.lit(None).cast(held.schema[c].dataType).alias(c) for c in (FILE, ROW, target)]
        return held.unionByName(others.select(*nothing, self._struct(name), NUMBER))

    def _struct(self, name: str) -> F.Column:
        return F.struct(*(F.col(quoted(column)) for column in self.source.columns)).alias(name)
