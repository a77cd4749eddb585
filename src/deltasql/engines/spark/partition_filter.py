"""Filter files by a condition on their partition values that only Spark can evaluate. No file is read."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from deltasql.engines.spark.analysis_errors import query_problem
from deltasql.engines.spark.sql_text import verbatim
from deltasql.errors import ValidationError
from deltasql.protocol.partition_values import partition_scalar
from deltasql.protocol.table_changes import Snapshot

_INDEX = "__deltasql_index"


def files_in_partitions_by_spark(spark: SparkSession, snapshot: Snapshot, condition: str) -> pa.Table:
    """Return the files of a snapshot whose partition values satisfy a condition."""
    texts = [tuple((values or {}).items()) for values in snapshot.files["partition_values"].to_pylist()]
    distinct = [dict(values) for values in dict.fromkeys(texts)]
    if not distinct:  # Spark Connect cannot make a frame of an empty Arrow table
        return snapshot.files
    fields = [snapshot.schema.field(name) for name in snapshot.metadata.partition_columns]
    columns = [pa.array([partition_scalar(v[f.name], f.type) for v in distinct], f.type) for f in fields]
    table = pa.table([*columns, pa.array(range(len(distinct)), pa.int64())], names=[*(f.name for f in fields), _INDEX])
    try:
        rows = spark.createDataFrame(table).alias(snapshot.name.rpartition(".")[2]).where(verbatim(condition)).collect()
    except Exception as error:
        problem = query_problem(error)
        if problem is None:
            raise
        text = f"table {snapshot.name}: {problem.message}\n  where: {condition}"
        raise ValidationError(text, table=snapshot.name, value=condition) from error
    matching = {tuple(distinct[row[_INDEX]].items()) for row in rows}
    return snapshot.files.filter(pa.array([values in matching for values in texts], pa.bool_()))
