"""`make docs`: write the generated pages."""

from __future__ import annotations

from . import REFERENCE, pages
from .sql_tables import tables_page_of_this_release

for name, text in {**pages(), "tables.md": tables_page_of_this_release()}.items():
    (REFERENCE / name).write_text(text, encoding="utf-8")
    print(f"wrote docs/reference/{name}")
