"""Rows of a table and rows of a source that match, and the rows of the source that match none.

An outer join that keeps the source would shuffle the whole table. So the source is numbered and held, the pairs are an
inner join, which a small source is sent to every task for, and the rest of the source is what has no pair.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltasql.core.constraints import quoted
from deltasql.data.statements import FILE, ROW
from deltasql.spark.write import usual_bytes

NUMBER = "__deltasql_number"
"""The column that tells rows of a source apart."""

_SMALL = 16 << 20


def numbered(source: DataFrame) -> DataFrame:
    """A source whose rows can be told apart, the same whenever they are asked for."""
    return source.withColumn(NUMBER, F.monotonically_increasing_id()).localCheckpoint()


def hinted(source: DataFrame) -> DataFrame:
    """A source that is held, with how to join it: Spark does not know its size any more."""
    small = source.count() * usual_bytes(source.schema.jsonValue()) <= _SMALL
    return F.broadcast(source) if small else source.hint("shuffle_hash")


def with_unmatched(pairs: DataFrame, source: DataFrame, target: str, name: str) -> DataFrame:
    """Pairs, which are structs under the two names and come with the table's place and the source's number, and the
    rows of the source that are in none."""
    held = pairs.localCheckpoint()
    alone = source.join(held.select(NUMBER).distinct(), NUMBER, "left_anti")
    nothing = [F.lit(None).cast(held.schema[c].dataType).alias(c) for c in (FILE, ROW, target)]
    row = F.struct(*(F.col(quoted(c)) for c in source.columns if c != NUMBER)).alias(name)
    return held.unionByName(alone.select(*nothing, row, F.col(NUMBER)))
