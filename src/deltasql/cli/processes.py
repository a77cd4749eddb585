"""Parts of commands that run until they are interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

from deltasql.mirror import Mirror


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, so that the current work can finish."""
    stop = threading.Event()

    def set_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, set_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def serve_metrics(mirror: Mirror, port: int) -> Callable[[], None]:
    """Serve metrics on localhost; return the function that stops the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = mirror.metrics().encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing for a scrape."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="deltasql-metrics", daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
