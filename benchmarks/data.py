"""Files to commit: a table partitioned by day, with five columns of statistics, about 315 bytes of them per file."""

from __future__ import annotations

import itertools
import uuid
from datetime import date, timedelta

from deltasql import Add

DDL = "id BIGINT, ts TIMESTAMP, day DATE, amount DOUBLE, name STRING, code INT"
_numbers = itertools.count()
_FIRST_DAY = date(2026, 1, 1)


def adds(count: int, *, days: int = 100, token: str = "") -> list[Add]:
    """Return new files; `id` is clustered, `code` is spread over the whole range.

    With a transaction's token they are named as deltasql's own writers name them, without it as Spark does.
    """
    start = next(_numbers) * 1_000_000
    name = token or f"-{uuid.uuid4()}-c000"
    return [_add(start + i, i, days, name) for i in range(count)]


def _add(number: int, i: int, days: int, name: str) -> Add:
    day = (_FIRST_DAY + timedelta(days=i % days)).isoformat()
    code = (number * 7919) % 1_000_003
    stats = (
        f'{{"numRecords":1000,"minValues":{{"id":{number * 10},"ts":"2026-01-01T00:00:00.000Z","amount":{number}.25,'
        f'"name":"name-{number:012d}","code":{code}}},"maxValues":{{"id":{number * 10 + 9},'
        f'"ts":"2026-01-02T00:00:00.000Z","amount":{number + 1}.5,"name":"name-{number + 1:012d}",'
        f'"code":{code + 1000}}},"nullCount":{{"id":0,"ts":0,"amount":1,"name":0,"code":0}}}}'
    )
    return Add(
        path=f"day={day}/part-{i:05d}{name}.snappy.parquet",
        size=1_000_000 + i,
        modification_time=1_750_000_000_000,
        partition_values={"day": day},
        stats=stats,
    )
