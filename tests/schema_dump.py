"""The schema as the migrations leave it, in PostgreSQL's own words: `store/sql/schema.sql`, written by `make docs`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import deltasql
from deltasql.embedded.binaries import find_binaries

SCHEMA_FILE = Path(deltasql.__file__).parent / "store" / "sql" / "schema.sql"
_HEAD = (
    "-- The whole schema, for reading: what the migrations add up to. Written by `make docs`, checked by a test.\n\n"
)


def dump(dsn: str) -> str:
    """`pg_dump` without what differs from run to run."""
    program = find_binaries().directory / "pg_dump"
    command = [program, "--schema-only", "--no-owner", "--no-privileges", "--schema=deltasql", f"--dbname={dsn}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if not re.match(r"--|SET |SELECT pg_catalog|\\", line)]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return _HEAD + body.replace("deltasql.", "") + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        with deltasql.connect(f"deltasql://embedded/{directory}/lake") as lake:
            SCHEMA_FILE.write_text(dump(lake.dsn))
    print(f"wrote {SCHEMA_FILE.name}")
