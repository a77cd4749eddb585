"""Files by their partition values: any condition on these that Spark evaluates, without reading a file."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from deltasql.engines.spark.analysis_errors import query_problem
from deltasql.errors import ValidationError
from deltasql.protocol.partition_values import partition_scalar
from deltasql.store import Snapshot

_PLACE = "__deltasql_place"


def files_in_partitions_by_spark(spark: SparkSession, snapshot: Snapshot, condition: str) -> pa.Table:
    """The files of a snapshot for whose partition values a condition is true."""
    texts = [tuple((values or {}).items()) for values in snapshot.files["partition_values"].to_pylist()]
    distinct = [dict(values) for values in dict.fromkeys(texts)]
    fields = [snapshot.schema.field(name) for name in snapshot.metadata.partition_columns]
    columns = [pa.array([partition_scalar(v[f.name], f.type) for v in distinct], f.type) for f in fields]
    table = pa.table([*columns, pa.array(range(len(distinct)), pa.int64())], names=[*(f.name for f in fields), _PLACE])
    try:
        rows = spark.createDataFrame(table).alias(snapshot.name.rpartition(".")[2]).where(condition).collect()
    except Exception as error:
        found = query_problem(error)
        if found is None:
            raise
        text = f"table {snapshot.name}: {found.message}\n  where: {condition}"
        raise ValidationError(text, table=snapshot.name, value=condition) from error
    wanted = {tuple(distinct[row[_PLACE]].items()) for row in rows}
    return snapshot.files.filter(pa.array([values in wanted for values in texts], pa.bool_()))
