"""Choose a lake's Spark session: the one passed to `connect`, the active one, or one created on first use.

All lakes of the process share the session that deltasql creates; it is stopped when the last of them closes. The
user's own session is never stopped.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltasql.engines.spark.java import java_environment
from deltasql.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_SHUFFLE_PARTITIONS = 8
# Under spark-submit or on a Connect server, these variables configure Spark, so deltasql sets nothing itself.
_EXTERNAL_SETUP = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT")


class SparkSource:
    """The source of one lake's session."""

    def __init__(self, given: SparkSession | None = None) -> None:
        if given is not None and not hasattr(type(given), "createDataFrame"):
            raise UsageError(f"spark must be a SparkSession, got {type(given).__name__}", value=given)
        self._given = given
        self._shares = False
        self._closed = False

    def get(self) -> SparkSession:
        """Return the session, and create the shared one if there is none."""
        if self._given is not None:
            if _is_stopped(self._given):
                raise UsageError("the Spark session of this lake was stopped: connect again with one that runs")
            return self._given
        if self._closed:
            raise UsageError("the lake is closed: connect again")
        with _shared.lock:
            session = _active() or _shared.make()
            if not self._shares and _shared.is_same(session):
                self._shares = True
                _shared.users += 1
            return session

    def close(self) -> None:
        """Stop the session if deltasql created it and no other lake uses it."""
        self._closed = True
        with _shared.lock:
            if self._shares:
                self._shares = False
                _shared.users -= 1
                if not _shared.users:
                    _shared.stop()


def is_classic(session: SparkSession) -> bool:
    """Return whether the session is a classic one, with a JVM of this process, and not a Spark Connect session."""
    return hasattr(session, "_jsparkSession")


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session other settings for a while. Only those that differ are set, and all are restored."""
    before = {name: spark.conf.get(name) for name in settings}
    other = {name: value for name, value in settings.items() if (before[name] or "").lower() != value}
    for name, value in other.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in other:
            spark.conf.set(name, before[name] or "")


def java_class(session: SparkSession, name: str) -> Any:
    """Return a class of a classic session's JVM. `_jvm.org.apache…` would search all jars for each part of the name."""
    from py4j.java_gateway import JavaClass

    return JavaClass(name, session.sparkContext._gateway._gateway_client)


class _Shared:
    """The session that deltasql created, if any, and the number of lakes that use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self._session: SparkSession | None = None
        self._folder: Path | None = None

    def make(self) -> SparkSession:
        self._clean_up()  # after a session that the user stopped
        self._folder = Path(tempfile.mkdtemp(prefix="deltasql-spark-"))
        try:
            self._session = _new_session(self._folder)
        except BaseException:
            self._clean_up()
            raise
        return self._session

    def is_same(self, session: SparkSession) -> bool:
        """Return whether a session shares the context of this one, so that both start and stop together."""
        shared = self._session
        return shared is not None and (session is shared or _context(session) is _context(shared))

    def stop(self) -> None:
        if self._session is not None and not _is_stopped(self._session):
            self._session.stop()
        self._session = None
        self._clean_up()

    def _clean_up(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


_shared = _Shared()


def _active() -> SparkSession | None:
    """Return the active session of this thread or process, if there is one."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError("Spark is not installed: pip install 'deltasql[spark]'") from None
    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return None if _is_stopped(session) else session


def _context(session: SparkSession) -> Any:
    """Return the SparkContext of a classic session; a Connect session stands for itself."""
    return getattr(session, "_sc", session)


def _is_stopped(session: SparkSession) -> bool:
    return bool(getattr(session, "is_stopped", False)) or getattr(_context(session), "_jsc", session) is None


# --- creating a session


def _new_session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    if any(name in os.environ for name in _EXTERNAL_SETUP):
        return SparkSession.builder.getOrCreate()
    from deltasql.engines.spark.error_logs import disable_error_logs

    disable_error_logs()
    java = java_environment(folder)
    with _environment({"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}, java):
        return SparkSession.builder.master("local[*]").appName("deltasql").config(map=_settings(folder)).getOrCreate()


def _settings(folder: Path) -> dict[str, str]:
    """Return settings for a small, quiet session that leaves no files in the current directory."""
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    return {
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, _MOST_SHUFFLE_PARTITIONS)),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


# The gateway logs a message at start unless its level equals the root's. Errors of tasks and jobs are raised.
_LOGGING = """\
rootLogger.level = error
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.files.name = org.apache.spark.sql.execution.datasources
logger.files.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def _environment(defaults: dict[str, str], overrides: dict[str, str]) -> Iterator[None]:
    """Set environment variables inside the context: `defaults` where they are unset, `overrides` always."""
    changes = {name: value for name, value in defaults.items() if name not in os.environ} | overrides
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
