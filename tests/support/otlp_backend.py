"""A second OTLP backend of the test's: keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Backend:
    """Listens on a free port, or on ``port``. ``answers`` are given one after the other, then 200."""

    def __init__(self, port: int = 0) -> None:
        self.received: list[tuple[str, bytes, dict[str, str]]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.gate = threading.Event()
        self.gate.set()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                backend.gate.wait(60)
                backend.received.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
                status, headers = backend.answers.pop(0) if backend.answers else (200, {})
                self.send_response(status)
                for name, value in {"content-length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def bodies(self) -> list[bytes]:
        """In the order they came."""
        return [body for _, body, _ in self.received]
