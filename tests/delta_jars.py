"""Delta's jars for Spark, which no Python package brings: fetched once from Maven Central, by checksum.

`python -m tests.delta_jars` fetches those that are missing; `make test` runs it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REQUIRE_SPARK = "TEST_REQUIRE_SPARK"
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Jar:
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"io.delta:{self.artifact}:{self.version}"


# The artifact names the release of Spark that it is built for: it moves together with pyspark in pyproject.toml.
# The Unity Catalog client, which Delta asks for as well, is left out: nothing here uses such a catalog.
JARS = (
    Jar("delta-spark_4.2_2.13", "4.4.0", 9515916, "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    Jar("delta-storage", "4.4.0", 113863, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar("delta-kernel-api", "4.4.0", 2838619, "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
    Jar("delta-kernel-defaults", "4.4.0", 227185, "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"),
)


def directory() -> Path:
    """Where the jars are kept: TEST_DELTA_JARS, or `.venv/jars`, which `make clean` removes."""
    given = os.environ.get("TEST_DELTA_JARS")
    return Path(given) if given else Path(__file__).parents[1] / ".venv" / "jars"


def required() -> bool:
    """Whether it is an error, and not a reason to skip, that Spark cannot run."""
    return os.environ.get(REQUIRE_SPARK) == "1"


def missing(folder: Path) -> list[Jar]:
    """Those that are not there, or not with the right bytes."""
    return [jar for jar in JARS if not _is_right(folder / jar.name, jar)]


def fetch(folder: Path) -> None:
    """Have Spark's own resolver download what is missing; raises OSError where that does not work."""
    wanted = missing(folder)
    if not wanted:
        return
    size = sum(jar.size for jar in wanted) / 1e6
    print(f"Downloading {', '.join(jar.name for jar in wanted)} from Maven Central, {size:.1f} MB", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _resolve(wanted, Path(scratch))
        for jar in wanted:
            found = Path(scratch) / "jars" / f"io.delta_{jar.name}"
            if not _is_right(found, jar):
                raise OSError(f"{jar.coordinates} has other bytes than the pinned checksum says")
            found.replace(folder / jar.name)


def _resolve(jars: list[Jar], folder: Path) -> None:
    """Spark is chatty while it resolves: it speaks up only where it fails."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise OSError("Spark needs a JDK, and there is no java on the PATH and no JAVA_HOME")
    program = f"""
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.jars.ivy", {str(folder)!r}).getOrCreate()
for jar in {[jar.coordinates for jar in jars]!r}:
    spark.sql(f"ADD JAR ivy://{{jar}}?transitive=false")
"""
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"Spark did not resolve them within {_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        raise OSError((done.stdout + done.stderr)[-3000:])


def _is_right(path: Path, jar: Jar) -> bool:
    if not path.is_file() or path.stat().st_size != jar.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def main() -> int:
    try:
        fetch(directory())
    except OSError as error:
        print(f"Delta's jars cannot be had: {error}", file=sys.stderr)
        if required():
            return 1
        print("The tests that need Spark will be skipped.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
