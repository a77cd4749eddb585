"""Azurite, the emulator of Azure Blob Storage.

TEST_AZURITE is the path of its `azurite-blob` command, which `npm install azurite` installs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

ACCOUNT = "devstoreaccount1"
# the emulator's public key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PORT = 10000
OPTIONS = {
    "azure_storage_account_name": ACCOUNT,
    "azure_storage_account_key": KEY,
    "azure_storage_use_emulator": "true",
    "allow_http": "true",
}


@contextmanager
def azurite(command: str, folder: Path, container: str) -> Iterator[dict[str, str]]:
    """Start the emulator, create a container, and yield the storage options."""
    arguments = [command, "--location", str(folder), "--blobPort", str(PORT), "--silent", "--skipApiVersionCheck"]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(process)
            _create(container)
            yield OPTIONS
        finally:
            process.terminate()


def _wait(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"azurite did not start on port {PORT}")


def _create(container: str) -> None:
    headers = {
        "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "x-ms-version": "2021-08-06",
    }
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + named + f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/{ACCOUNT}/{container}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"},
    )
    urllib.request.urlopen(request).close()
