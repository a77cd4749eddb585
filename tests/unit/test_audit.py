"""The audit of the lock files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests import audit

HASH = "--hash=sha256:" + "0" * 64


def _lock(folder: Path, text: str) -> Path:
    file = folder / "requirements.lock"
    file.write_text(text)
    return file


def test_known_vulnerabilities_are_found_without_a_service(tmp_path: Path) -> None:
    lock = _lock(tmp_path, f"# comment\nSome_Package==1.2 \\\n    {HASH}\nother==3 ; python_version > '3' {HASH}\n")
    packages = audit.locked_packages([lock])
    assert set(packages) == {("some-package", "1.2"), ("other", "3")}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as database:
        for number, (name, versions, more) in enumerate(
            [("some-package", ["1.1", "1.2"], {}), ("other", ["2"], {}), ("other", ["3"], {"withdrawn": "2026"})]
        ):
            affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "versions": versions}]
            database.writestr(f"{number}.json", json.dumps({"id": f"PYSEC-{number}", "affected": affected, **more}))
    assert audit.in_database(tmp_path / "all.zip", packages) == ["some-package 1.2 (requirements.lock): PYSEC-0"]


@pytest.mark.parametrize("line", ["pkg==1", f"pkg>=1 {HASH}", f"pkg {HASH}"])
def test_every_package_is_pinned_with_a_hash(tmp_path: Path, line: str) -> None:
    with pytest.raises(SystemExit, match="not pinned to a version with a hash"):
        audit.locked_packages([_lock(tmp_path, line)])


def test_a_missing_service_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _lock(tmp_path, f"pkg==1 {HASH}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "_SERVICE", "http://127.0.0.1:1/")
    monkeypatch.delenv("AUDIT_DATABASE", raising=False)
    audit.main()
    assert "Known vulnerabilities were NOT looked up" in capsys.readouterr().out
