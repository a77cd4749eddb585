"""The tests run with every kind of scan: the file index, reads with literals, and a read with a join.

With TEST_SPARK_CONNECT=literals or =join, the session is a Spark Connect session and uses that kind of scan. A process
has either classic or Connect sessions, so `test_connect_*.py` run the tests in separate processes.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.engines.spark.scan import plain_scan, snapshot_frame
from deltasql.protocol.file_paths import encode_path
from tests.local_spark import JAVA_OPTIONS
from tests.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECT_SCAN_KIND = os.environ.get("TEST_SPARK_CONNECT")
ON_CONNECT = bool(_CONNECT_SCAN_KIND)
SCAN_KINDS = (_CONNECT_SCAN_KIND,) if _CONNECT_SCAN_KIND else ("index", "literals", "join")

Put = Callable[..., deltasql.Add]
IDS = pa.table({"id": pa.array([1, 2], pa.int64())})
ODD_NAMES = [
    "a b.parquet", "a%20b.parquet", "100%.parquet", "[a].parquet", "{a,b}.parquet", "a*b.parquet", "a?b.parquet",
    "a#b.parquet", "a+b.parquet", "a&b=c;d,e.parquet", "a:b/c.parquet", "größe.parquet", "数据 1.parquet", "😀.parquet",
    "a'b\"c.parquet", "a|b.parquet", "a^b`c.parquet", "<a>.parquet", "a@b!c$(d)~.parquet", "nbsp\xa0.parquet",
    "e\u0301.parquet", "zero\u200bwidth.parquet", "_p=1/[x] y/a.parquet", "without ending", "p=a%2Fb/x.parquet",
]  # fmt: skip


@pytest.fixture(scope="session")
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if ON_CONNECT:
        yield from _connect_session(tmp_path_factory.mktemp("spark"))
    else:
        yield request.getfixturevalue("spark_session")


def _connect_session(folder: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    port = free_port()  # the default port would conflict with a second test process
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.python.authenticate.socketTimeout": "60s",  # a Python worker may start slowly on a busy machine
    }
    with patch.object(DefaultChannelBuilder, "default_port", staticmethod(lambda: port)):
        with warnings.catch_warnings(action="ignore"):  # warnings about settings of the server
            spark = SparkSession.builder.remote("local[2]").config(map=settings).getOrCreate()
        yield spark
        spark.stop()


@pytest.fixture(scope="session")
def lakes(embedded_lake: deltasql.Lake, session: SparkSession) -> Iterator[dict[str, deltasql.Lake]]:
    fast = deltasql.connect(embedded_lake.dsn, spark=session)
    slow = deltasql.connect(embedded_lake.dsn, spark=session, config={"spark.fast_scan": "off"})
    with fast, slow:
        yield {"index": fast, "literals": slow, "join": slow}


@pytest.fixture(params=SCAN_KINDS)
def scan_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use one kind of scan, and fail if another one is used."""
    if request.param == "index":
        monkeypatch.setattr(snapshot_frame, "read_plain", _fail)
    elif request.param == "join":
        monkeypatch.setattr(plain_scan, "MOST_LITERALS", 1)
    return request.param


def _fail(*_: Any) -> None:
    raise AssertionError("the file index was not used")


@pytest.fixture
def lake(scan_kind: str, lakes: dict[str, deltasql.Lake]) -> deltasql.Lake:
    return lakes[scan_kind]


@pytest.fixture
def put(lake: deltasql.Lake) -> Put:
    """Write a file to a table's location, under its name on disk, and add it to the table."""

    def put(table: deltasql.Table, rows: pa.Table, name: str = "a.parquet", **options: Any) -> deltasql.Add:
        values = options.pop("values", {})
        action = file_of(table, rows, name, values, **options)
        with lake.begin() as tx:
            tx.stage(table, [action])
        return action

    return put


def file_of(
    table: deltasql.Table, rows: pa.Table, name: str, values: dict[str, str | None] | None = None, **options: Any
) -> deltasql.Add:
    """Write a file to a table's location, and return its uncommitted add."""
    path = Path(table.location) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)
    return add_of(path, name, values)


def add_of(path: Path, name: str, values: dict[str, str | None] | None = None) -> deltasql.Add:
    status = path.stat()
    return deltasql.Add(encode_path(name), status.st_size, status.st_mtime_ns // 1_000_000, values or {})


@pytest.fixture
def time_zone(session: SparkSession) -> Iterator[Callable[[str], None]]:
    """Set the session time zone for one test."""
    key = "spark.sql.session.timeZone"
    before = session.conf.get(key)
    yield lambda zone: session.conf.set(key, zone)
    session.conf.set(key, before)


def schema_of(df: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in df.schema]


def ids(df: DataFrame) -> list[int]:
    return sorted(row["id"] for row in df.select("id").collect())
