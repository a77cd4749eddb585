"""A proxy in front of an S3 server that simulates faults of networks and stores."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_UNAVAILABLE = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 67\r\nConnection: close\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>Wait a while</Message></Error>"
)

_UNKNOWN = (
    b"<Error><Code>NotImplemented</Code><Message>A header you provided implies functionality that is not "
    b"implemented</Message></Error>"
)


@dataclass(frozen=True)
class Request:
    """One request of a client."""

    method: str
    path: str
    head: bytes
    length: int
    body: bytes = field(repr=False)


class StoreProxy:
    """Forwards requests, each on a separate connection. If `fault` is set, requests for which `affects` is true fail.

    =========  ==========================================================================================
    fault      effect
    =========  ==========================================================================================
    refuse     the connection is refused
    503        the server answers 503 Slow Down
    501        the server answers 501: a header is not supported
    400        the server answers 400: a header is not supported
    cut        the connection breaks during the request
    lost       the request succeeds, and the connection breaks before the response
    late       the request succeeds, and the response is delayed until the block ends
    silent     the request is ignored, without a response
    =========  ==========================================================================================

    `before` is called before each request is forwarded, `after` when the server has processed it, before the response.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener: socket.socket | None = None
        self._ended = threading.Event()
        self.affects: Callable[[Request], bool] = lambda _: True
        self.before: Callable[[Request], None] = lambda _: None
        self.after: Callable[[Request], None] = lambda _: None
        self.fault: str | None = None
        self.affected = 0
        self.rate = 0
        """The bandwidth of uploads in bytes per second; 0 is unlimited."""
        self.written: dict[str, list[bytes]] = {}
        """The bodies of successful PUT requests, by path."""
        self.port = 0
        self._listen()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._ended.set()
        self._stop_listening()

    @contextmanager
    def failing(self, fault: str, affects: Callable[[Request], bool] = lambda _: True) -> Iterator[None]:
        """Simulate a fault for the duration of the block."""
        self.affects, self.affected = affects, 0
        self._ended.clear()
        self.fault = fault
        if fault == "refuse":
            self._stop_listening()
        try:
            yield
        finally:
            self.fault = None
            self._ended.set()
            if fault == "refuse":
                self._listen()

    def _listen(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        """Shut the listener down: closing it alone does not wake the thread that waits on it."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                more = client.recv(1 << 16)
                if not more:
                    return
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in lines[1:])}
            length = int(headers.get(b"content-length", 0))
            while len(body) < length:
                more = client.recv(1 << 16)
                if not more:
                    return
                body += more
                time.sleep(len(more) / self.rate if self.rate else 0)
            method, path, _ = lines[0].decode().split(" ")
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            once = b"\r\n".join([*kept, b"Connection: close", b"", b""])
            self._answer(client, Request(method, path, once, length, body))

    def _answer(self, client: socket.socket, request: Request) -> None:
        fault = self.fault if self.fault and self.affects(request) else None
        self.affected += fault is not None
        match fault:
            case None:
                client.sendall(self._pass_on(request))
            case "503":
                client.sendall(_UNAVAILABLE)
            case "501" | "400":
                head = f"HTTP/1.1 {fault} No\r\nContent-Length: {len(_UNKNOWN)}\r\nConnection: close\r\n\r\n"
                client.sendall(head.encode() + _UNKNOWN)
            case "cut":
                self._send(request, request.body[: request.length // 2])
                _reset(client)
            case "lost":
                self._pass_on(request)
                _reset(client)
            case "late":
                answer = self._pass_on(request)
                self._ended.wait(60)
                client.sendall(answer)
            case _:
                self._ended.wait(60)

    def _pass_on(self, request: Request) -> bytes:
        self.before(request)
        answer = self._send(request, request.body)
        if request.method == "PUT" and answer.startswith(b"HTTP/1.1 2"):
            self.written.setdefault(request.path, []).append(request.body)
        self.after(request)
        return answer

    def _send(self, request: Request, body: bytes) -> bytes:
        """Send a request and return the response; do not wait for a response to a truncated body."""
        with socket.create_connection(("127.0.0.1", self._server_port), timeout=30) as server:
            server.sendall(request.head + body)
            answer = b""
            while len(body) == request.length and (more := server.recv(1 << 16)):
                answer += more
            return answer


def _reset(client: socket.socket) -> None:
    """Close a connection with a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
