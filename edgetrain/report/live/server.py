"""Serves the page of a running `fit` on this machine: to nobody without its secret address, and to no other site.

The address holds a random token; a request without it, or one whose `Host` is not this machine, gets 403. Other sites
can make a browser send requests here, but they know no token, and a name of theirs that points here (DNS rebinding)
is in `Host`.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from edgetrain.report.html import element
from edgetrain.report.live.watch import Watch
from edgetrain.report.page import document

_LOOPBACK = "127.0.0.1"
_MOST_THREADS = 4
_TIMEOUT_S = 5.0  # for a request to arrive and an answer to leave
_FAREWELL_S = 2.0  # how long a page that is open may take to hear that the run is over
_TOKEN_BYTES = 24


class _Server(ThreadingMixIn, HTTPServer):
    """At most `_MOST_THREADS` requests at a time; more are hung up on, and a page asks again."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, watch: Watch) -> None:
        super().__init__((_LOOPBACK, 0), _Handler)
        self.watch = watch
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.hosts = {f"{name}:{self.server_port}" for name in (_LOOPBACK, "localhost")}
        self.page = document(
            f"{watch.title} · live",
            element("div", element("main"), id="live", data_version=-1),
            scripts=("page.js", "live.js"),
            connects=True,
        ).encode()
        self.has_reader = threading.Event()
        self.has_said_farewell = threading.Event()
        self._free = threading.BoundedSemaphore(_MOST_THREADS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who leaves in the middle of an answer is none of the run's business."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S  # read by the base class
    server_version = "edgetrain"
    sys_version = ""

    def do_GET(self) -> None:
        path = self._path_below_token()
        if path is None:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"this address needs the token that edgetrain printed\n")
        elif path == "":
            self._answer(HTTPStatus.OK, "text/html", self.server.page)
        elif path.startswith("state"):
            self._answer(HTTPStatus.OK, "application/json", self._state(path.partition("?after=")[2]))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is nothing here\n")

    def _path_below_token(self) -> str | None:
        """None for a request that does not know the token, or came by another name."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return None
        given, _, rest = self.path.removeprefix("/").partition("/")
        return rest if hmac.compare_digest(given.encode(), self.server.token.encode()) else None

    def _state(self, seen: str) -> bytes:
        """What is new since the version that the page has seen."""
        watch = self.server.watch
        version, has_ended = watch.version, watch.has_ended
        self.server.has_reader.set()
        found: dict[str, object] = {"version": version, "ended": has_ended}
        if str(version) != seen:
            found["html"] = watch.fragment()
        if has_ended:
            self.server.has_said_farewell.set()
        return json.dumps(found).encode()

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Frame-Options": "DENY",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: standard error belongs to the run."""


class WatchServer:
    """Serves from `start` to `close`, with a thread of its own and at most four for requests."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._server = _Server(watch)
        self._thread = threading.Thread(target=self._serve, name="edgetrain-watch", daemon=True)

    @property
    def address(self) -> str:
        """With the token: who has it can read along."""
        return f"http://{_LOOPBACK}:{self._server.server_port}/{self._server.token}/"

    def start(self) -> None:
        """Answers from now on. Asks itself once, so that what an answer needs is in memory before a run is measured."""
        self._thread.start()
        with socket.create_connection((_LOOPBACK, self._server.server_port), timeout=_TIMEOUT_S) as own:
            path = f"/{self._server.token}/state"
            own.sendall(f"GET {path} HTTP/1.0\r\nHost: {_LOOPBACK}:{self._server.server_port}\r\n\r\n".encode())
            while own.recv(1 << 16):
                pass
        self._server.has_reader.clear()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Tells a page that is open that the run is over, for two seconds at most, and stops."""
        self._watch.end()
        if self._server.has_reader.is_set():
            self._server.has_said_farewell.wait(_FAREWELL_S)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_TIMEOUT_S)
