"""Jars for Spark that no Python package contains: Delta's, and those of Hadoop's S3A file system.

`jars.lock` lists them with checksums. `python -m tests.jars`, which `make test` runs, downloads missing jars from Maven
Central.
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
    purpose: str
    coordinates: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def resolved_name(self) -> str:
        """Return the file name that Spark's resolver uses."""
        return f"{self.coordinates.partition(':')[0]}_{self.name}"


def _locked() -> tuple[Jar, ...]:
    lines = Path(__file__).with_suffix(".lock").read_text().splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return tuple(Jar(purpose, coordinates, int(size), sha256) for purpose, coordinates, size, sha256 in rows)


DELTA, S3A = "delta", "s3a"
# Delta's artifact is built for one release of Spark, and hadoop-aws for the release of Hadoop that Spark ships: update
# them together with pyspark in pyproject.toml. The Unity Catalog client, a dependency of Delta, and jars that Spark
# ships are left out.
JARS = _locked()


def directory() -> Path:
    """Return the directory of the jars: TEST_JARS, or `.venv/jars`, which `make clean` removes."""
    configured = os.environ.get("TEST_JARS")
    return Path(configured) if configured else Path(__file__).parents[1] / ".venv" / "jars"


def required() -> bool:
    """Return whether tests fail instead of being skipped when Spark cannot run."""
    return os.environ.get(REQUIRE_SPARK) == "1"


def missing(folder: Path, purpose: str | None = None) -> list[Jar]:
    """Return the jars that are missing or have a wrong checksum."""
    return [jar for jar in JARS if purpose in (None, jar.purpose) and not _is_right(folder / jar.name, jar)]


def paths(purpose: str) -> str:
    """Return the jars of a purpose as a value of `spark.jars`."""
    return ",".join(str(directory().absolute() / jar.name) for jar in JARS if jar.purpose == purpose)


def obstacle(purpose: str) -> str | None:
    """Return why the jars of a purpose are not available, or None."""
    lacking = missing(directory(), purpose)
    names = ", ".join(jar.name for jar in lacking)
    return f"Spark needs jars ({names}): fetch them with `python -m tests.jars`" if lacking else None


def fetch(folder: Path) -> None:
    """Download missing jars with Spark's resolver; raise OSError if this fails."""
    absent = missing(folder)
    if not absent:
        return
    size = sum(jar.size for jar in absent) / 1e6
    names = absent[0].name if len(absent) == 1 else f"{len(absent)} jars for Spark"
    print(f"Downloading {names} from Maven Central, {size:.1f} MB", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _resolve(absent, Path(scratch))
        for jar in absent:
            found = Path(scratch) / "jars" / jar.resolved_name
            if not _is_right(found, jar):
                raise OSError(f"{jar.coordinates} has other bytes than the pinned checksum says")
            found.replace(folder / jar.name)


def _resolve(jars: list[Jar], folder: Path) -> None:
    """Resolve jars with Spark, and show its output only if it fails."""
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
        print(f"Jars for Spark cannot be had: {error}", file=sys.stderr)
        if required():
            return 1
        print("The tests that need Spark will be skipped.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
