"""One embedded PostgreSQL server, one lake and one Debian server per test run; one namespace per test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import settings

import deltasql
from tests import jars
from tests.azurite import azurite
from tests.effort import LONG
from tests.s3 import S3Server
from tests.servers import PostgresServer, debian_binaries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
# Short runs repeat the same examples, so that a failure is caused by the change under test; long runs use new ones.
settings.register_profile("repeated", derandomize=True, deadline=None)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile("explore" if LONG or os.environ.get("TEST_EXPLORE") == "1" else "repeated")

# Directories with slow tests run first, so that both test processes finish at about the same time.
_ORDER = {
    name: n for n, name in enumerate(["spark", "faults", "acceptance", "properties", "fuzz", "integration", "unit"])
}


_state = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Record the clusters of the tests in a directory of the run, for this process and its children."""
    config.stash[_state] = os.environ["DELTASQL_STATE_DIR"] = tempfile.mkdtemp(prefix="deltasql-test-state-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_state], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _ORDER.get(item.path.parent.name, 0))
    if not LONG:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(scope="session")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current directory of the test run, below which tests create all files."""
    path = tmp_path_factory.mktemp("lake")
    before = Path.cwd()
    os.chdir(path)
    yield path
    os.chdir(before)


@pytest.fixture(scope="session")
def embedded_lake(workdir: Path) -> Iterator[deltasql.Lake]:
    with deltasql.connect() as lake:
        with psycopg.connect(lake.dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # no test crashes this machine
            connection.execute("SELECT pg_reload_conf()")
        yield lake


@pytest.fixture(scope="session")
def debian_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    binaries = debian_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL is installed: install one (Debian: postgresql) or set TEST_POSTGRES_BIN")
    with PostgresServer(binaries, tmp_path_factory.mktemp("pg")) as server:
        yield server


@pytest.fixture(scope="session")
def debian_lake(workdir: Path, debian_server: PostgresServer) -> Iterator[deltasql.Lake]:
    with deltasql.connect(debian_server.url) as lake:
        yield lake


@pytest.fixture(scope="session")
def spark_session(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with Delta's jars, whose JVM has the current directory of the tests."""
    from tests import local_spark

    obstacle = local_spark.obstacle()
    if obstacle and jars.required():
        pytest.fail(obstacle)
    if obstacle:
        pytest.skip(obstacle)
    with local_spark.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


_used: list[str] = []


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3-compatible server with the bucket `lake`."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("lake")
        _used.append(server.kind)
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The storage options of Azurite with the container `lake`."""
    with azurite(os.environ["TEST_AZURITE"], tmp_path_factory.mktemp("azure"), "lake") as options:
        yield options


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for kind in _used:
        terminalreporter.write_line(f"S3 was {kind}{'' if kind == 'MinIO' else ' (TEST_MINIO names a MinIO)'}")


@pytest.fixture(params=["embedded", "debian"])
def any_lake(request: pytest.FixtureRequest) -> deltasql.Lake:
    """The lake of the embedded server, and the lake of a Debian server over TCP with a password."""
    return request.getfixturevalue(f"{request.param}_lake")


@pytest.fixture
def lake(embedded_lake: deltasql.Lake) -> deltasql.Lake:
    return embedded_lake


@pytest.fixture
def namespace() -> str:
    return f"n{next(_numbers)}"


@pytest.fixture
def make_table(lake: deltasql.Lake, namespace: str) -> Callable[..., deltasql.Table]:
    """Make tables of the embedded lake in the namespace of the test."""
    return table_maker(lake, namespace)


def table_maker(lake: deltasql.Lake, namespace: str) -> Callable[..., deltasql.Table]:
    def make(name: str = "t", schema: str = "id BIGINT, day DATE, amount DOUBLE", **kw: object) -> deltasql.Table:
        return lake.create_table(f"{namespace}.{name}", schema, **kw)

    return make
