"""An S3-compatible server in a process of its own: MinIO where there is one, else moto's.

MinIO is used if `TEST_MINIO` names its program or it is on the PATH. Run as a program, this module is moto's
server, held to what S3 promises: requests take effect one after the other, and a body that was cut short leaves
nothing behind.
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
    """The MinIO of this machine, if it has one."""
    return os.environ.get("TEST_MINIO") or shutil.which("minio")


class S3Server:
    """Starts on entry, stops on exit. `kind` says which server it is, `page` how many objects a listing tells at once."""

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

    def options(self, endpoint: str | None = None, **others: str) -> dict[str, str]:
        """What `deltasql.connect(storage_options=…)` and `DeltaTable(storage_options=…)` take."""
        return {
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_region": REGION,
            "aws_endpoint": endpoint or self.endpoint,
            "allow_http": "true",
            **others,
        }

    def create_bucket(self, name: str) -> None:
        """A bucket, by a request signed as S3 wants it."""
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
        """Real servers always check who asks; moto only when told to."""
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


class _OneByOne:
    """moto looks whether an object exists and writes it in two steps: requests take turns. A body is read before its
    turn, and one that ends early is refused, as S3 does."""

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

    application = _OneByOne(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    _serve_moto(int(sys.argv[1]))
