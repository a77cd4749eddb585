"""The configuration reference, from the table of configuration keys."""

from __future__ import annotations

from deltasql.config import ENVIRONMENT_PREFIX, KEYS

_HEAD = """# Configuration

This page is generated from the configuration keys by `make docs`.

A key can be set in four places. A later one overrides an earlier one:

1. the default
2. the environment variable
3. `deltasql.connect(config={"key": value})`
4. the table property `deltasql.<key>`, for this table only; keys that concern the whole lake are rejected there

A duration is a number of seconds or a text such as `30s`, `500ms` or `5m`. An unknown key is
rejected, and the error names the closest known key.

| key | default | environment variable | meaning |
|---|---|---|---|
"""


def configuration_page() -> str:
    """Return the page with a table of all configuration keys."""
    rows = []
    for name, key in KEYS.items():
        variable = ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
        default = f"`{key.default}`" if key.default != "" else "none"
        rows.append(f"| `{name}` | {default} | `{variable}` | {key.meaning} |\n")
    return _HEAD + "".join(rows)
