"""Audit the lock files: `python -m tests.audit`, part of `make lint`.

Every package must be pinned with hashes. Then known vulnerabilities are looked up: in a database file if AUDIT_DATABASE
names one (`PyPI/all.zip` of https://osv.dev), else with the service of osv.dev. Without either, the audit says that it did
not run.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

_SERVICE = "https://api.osv.dev/v1/querybatch"
_TIMEOUT = 20
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)(.*)", re.DOTALL)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")

Packages = Mapping[tuple[str, str], str]
"""The lock file of each name and version."""


def locked_packages(files: Iterable[Path]) -> Packages:
    """Return the packages of lock files.

    Raises:
        SystemExit: A package is not pinned, or has no hash.
    """
    found: dict[tuple[str, str], str] = {}
    for file in files:
        lines = re.sub(r"\\\n", " ", file.read_text("utf-8")).splitlines()
        for line in (line.strip() for line in lines):
            if not line or line.startswith(("#", "--")):
                continue
            pin = _PIN.match(line)
            if pin is None or not _HASH.search(line):
                sys.exit(f"{file.name}: not pinned to a version with a hash: {line[:100]}")
            found[_normal(pin[1]), pin[2]] = file.name
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def in_database(database: Path, packages: Packages) -> list[str]:
    """Return the vulnerabilities that a database file knows."""
    found = []
    with zipfile.ZipFile(database) as entries:
        for name in entries.namelist():
            entry = json.loads(entries.read(name))
            if entry.get("withdrawn"):
                continue
            for affected in entry.get("affected", ()):
                package = _normal(affected.get("package", {}).get("name", ""))
                found += [
                    f"{package} {version} ({packages[package, version]}): {entry['id']}"
                    for version in affected.get("versions", ())
                    if (package, version) in packages
                ]
    return sorted(set(found))


def from_service(packages: Packages) -> list[str]:
    """Return the vulnerabilities that the service knows.

    Raises:
        OSError: The service was not reached.
    """
    keys = sorted(packages)
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in keys]
    request = urllib.request.Request(_SERVICE, json.dumps({"queries": queries}).encode())
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
        results = json.load(reply)["results"]
    return [
        f"{name} {version} ({packages[name, version]}): {found['id']}"
        for (name, version), result in zip(keys, results, strict=True)
        for found in result.get("vulns", ())
    ]


def main() -> None:
    """Audit the lock files of the current directory."""
    packages = locked_packages(sorted(Path().glob("requirements*.lock")))
    database = os.environ.get("AUDIT_DATABASE")
    try:
        found = in_database(Path(database), packages) if database else from_service(packages)
    except (OSError, urllib.error.URLError) as error:
        print(f"{len(packages)} locked packages, all with hashes. Known vulnerabilities were NOT looked up: {error}")
        return
    if found:
        sys.exit("Known vulnerabilities:\n  " + "\n  ".join(found))
    print(f"{len(packages)} locked packages, all with hashes and without known vulnerabilities.")


if __name__ == "__main__":
    main()
