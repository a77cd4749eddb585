"""`make docs`: write the generated pages."""

from __future__ import annotations

from . import REFERENCE, pages

for name, text in pages().items():
    (REFERENCE / name).write_text(text, encoding="utf-8")
    print(f"wrote docs/reference/{name}")
