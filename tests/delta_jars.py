"""Delta's jars for Spark, which no Python package brings: fetched once from Maven Central, by checksum.

`python -m tests.delta_jars` fetches those that are missing; `make test` runs it.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"
REQUIRE_SPARK = "TEST_REQUIRE_SPARK"
_TIMEOUT_SECONDS = 60


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
    def url(self) -> str:
        return f"{REPOSITORY}/io/delta/{self.artifact}/{self.version}/{self.name}"


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
    """Download what is missing; raises OSError or HTTPException where that does not work."""
    folder.mkdir(parents=True, exist_ok=True)
    for jar in missing(folder):
        print(f"Downloading {jar.name} from Maven Central, {jar.size / 1e6:.1f} MB", flush=True)
        partial = folder / f"{jar.name}.{os.getpid()}.part"
        try:
            with urllib.request.urlopen(jar.url, timeout=_TIMEOUT_SECONDS) as source, partial.open("wb") as target:
                shutil.copyfileobj(source, target)
            if not _is_right(partial, jar):
                raise OSError(f"{jar.url} has other bytes than the pinned checksum says")
            partial.replace(folder / jar.name)
        finally:
            partial.unlink(missing_ok=True)


def _is_right(path: Path, jar: Jar) -> bool:
    if not path.is_file() or path.stat().st_size != jar.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def main() -> int:
    try:
        fetch(directory())
    except (OSError, http.client.HTTPException) as error:
        print(f"Delta's jars cannot be had: {error}", file=sys.stderr)
        if required():
            return 1
        print("The tests that need Spark will be skipped.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
