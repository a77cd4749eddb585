"""An S3-compatible server in a separate process: MinIO if available, otherwise moto.

MinIO is used if `TEST_MINIO` names its program or it is on the PATH. As a program, this module runs moto's server with
two guarantees of S3: requests are atomic, and a truncated body is rejected.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ports import free_port

REGION = "us-east-1"


def minio_binary() -> str | None:
    """Return the path of the MinIO program, or None."""
    return os.environ.get("TEST_MINIO") or shutil.which("minio")


class S3Server:
    """A server that starts on entry and stops on exit; `page` is the number of objects per page of a listing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._minio = minio_binary()
        self.kind = "MinIO" if self._minio else "moto"
        self.page = 1000 if self._minio else 50
        self.key, self.secret = f"key{secrets.token_hex(8)}", f"secret{secrets.token_hex(16)}"
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> S3Server:
        directory = self._directory
        if self._minio:
            address = f"127.0.0.1:{self.port}"
            command = [self._minio, "server", "--quiet", "--address", address, str(directory / "objects")]
        else:
            command = [sys.executable, "-m", "tests.s3", str(self.port)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "MINIO_"))}
        environment |= {
            "MINIO_ROOT_USER": self.key,
            "MINIO_ROOT_PASSWORD": self.secret,
            "MINIO_BROWSER": "off",
            "MOTO_S3_DEFAULT_MAX_KEYS": str(self.page),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        }
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=self._log, stderr=subprocess.STDOUT
        )
        self._await()
        return self

    def _await(self) -> None:
        path = "/minio/health/ready" if self._minio else "/moto-api/data.json"
        deadline = time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(self.endpoint + path, timeout=5):
                    return
            except OSError:
                log = (self._directory / "log").read_text()
                alive = self._process.poll() is None and time.monotonic() < deadline
                assert alive, f"{self.kind} does not run: {log}"
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def options(self, endpoint: str | None = None, **more: str) -> dict[str, str]:
        """Return the storage options for `deltasql.connect` and `DeltaTable`."""
        return {
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_region": REGION,
            "aws_endpoint": endpoint or self.endpoint,
            "allow_http": "true",
            **more,
        }

    def create_bucket(self, name: str) -> None:
        """Create a bucket with a signed request."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        url = f"{self.endpoint}/{name}"
        request = AWSRequest("PUT", url, data=b"", headers={"x-amz-content-sha256": _EMPTY})
        SigV4Auth(Credentials(self.key, self.secret), "s3", REGION).add_auth(request)
        with urllib.request.urlopen(urllib.request.Request(url, b"", dict(request.headers), method="PUT")):
            pass

    @contextmanager
    def checking_credentials(self) -> Iterator[None]:
        """Make moto check credentials, which real servers always do."""
        if self._minio:
            yield
            return
        self._moto("reset-auth", b"0")
        try:
            yield
        finally:
            self._moto("reset-auth", b"inf")

    def _moto(self, what: str, body: bytes) -> None:
        request = urllib.request.Request(f"{self.endpoint}/moto-api/{what}", body, {"content-type": "text/plain"})
        with urllib.request.urlopen(request):
            pass


_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class _SerializedRequests:
    """Run one request at a time, because moto's conditional PUT is not atomic, and reject truncated bodies as S3 does."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        if len(body) < length:
            start_response("400 Bad Request", [("Content-Length", "0")])
            return []
        environ["wsgi.input"] = io.BytesIO(body)
        with self._turn:
            return list(self._application(environ, start_response))


def _serve_moto(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    class Handler(MotoRequestHandler):
        def log_request(self, *_: Any) -> None:
            pass

    application = _SerializedRequests(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    _serve_moto(int(sys.argv[1]))
