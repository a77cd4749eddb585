"""Generate the pages of docs/reference that are made from the code, so that they cannot drift from it."""

from __future__ import annotations

from pathlib import Path

from .command_line import cli_page
from .configuration import configuration_page
from .python_api import python_api_page
from .sql_reference import sql_page

REFERENCE = Path(__file__).parents[1] / "reference"


def pages() -> dict[str, str]:
    """Return the text of each generated page by file name."""
    return {
        "cli.md": cli_page(),
        "configuration.md": configuration_page(),
        "python-api.md": python_api_page(),
        "sql.md": sql_page(),
    }
