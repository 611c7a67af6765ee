"""A store over HTTP, for a team: `python -m http.server` it is not, it serves entries and nothing else.

    GET  /v1/schedules/ID          the entry
    PUT  /v1/schedules/ID          joins an entry with the one that is there
    GET  /v1/classes/CLASS         {"ids": [...]}
    GET  /v1/changes?since=CURSOR  {"changes": [{"id", "tag", "text"}], "cursor", "more"}

Errors are `{"what", "why"}`. TLS is for a proxy in front of it to do. A connection has one request, which has a
deadline as a whole. Whoever has not shown a token yet gives way to whoever comes.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edgetrain_tuner.cache.entry import MOST_BYTES
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.remotes.http import MOST_PAGE, PREFIX
from edgetrain_tuner.cache.remotes.remote import read_as
from edgetrain_tuner.cache.store import NEW, Store
from edgetrain_tuner.cache.trust import Trust

log = logging.getLogger(__name__)

_QUIET_SECONDS = 10  # a client that says nothing for so long is let go
_KNOCK_SECONDS = 10  # from the connection to the end of the request's headers
_REQUEST_SECONDS = 60  # from the connection to the end of the answer
MOST_CLIENTS = 64
_MOST_HEADER_BYTES = 16 << 10
_CURSOR = re.compile(r"([0-9a-f]+)\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is served to whom. Without a token everyone who reaches the port may read, and write unless `read_only`."""

    store: Store
    token: str = field(default="", repr=False)
    read_only: bool = False
    trust: Trust = field(default_factory=Trust)
    lock: threading.Lock = field(default_factory=threading.Lock)  # requests take turns on the store's connection


class _Refusal(Exception):
    def __init__(self, status: int, what: str, why: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.why = status, what, why


@dataclass(slots=True)
class _Client:
    """One connection, which has one request."""

    connection: socket.socket
    since: float
    is_admitted: bool = False  # it showed the token, or where there is none, its request came whole


class CacheServer(ThreadingHTTPServer):
    """Serves until `shutdown`. Port 0 picks a free one; `server_address` has it.

    A thread for each of at most `MOST_CLIENTS` connections. Where all places are taken, the connection that has waited
    longest without a whole request is closed for a new one: slow strangers cannot keep others out.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.service = service
        self._clients: dict[socket.socket, _Client] = {}
        self._clients_lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._clients_lock:
            has_place = len(self._clients) < MOST_CLIENTS or self._make_room()
            if has_place:
                self._clients[request] = _Client(connection=request, since=time.monotonic())
        if has_place:
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def admit(self, connection: socket.socket) -> None:
        """From here on the connection is not closed for another one, and has time for its answer."""
        with self._clients_lock:
            if connection in self._clients:
                self._clients[connection].is_admitted = True

    def shutdown_request(self, request: Any) -> None:
        with self._clients_lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between two polls of the listening socket: whoever is past the deadline is let go."""
        now = time.monotonic()
        with self._clients_lock:
            for client in self._clients.values():
                if now - client.since > (_REQUEST_SECONDS if client.is_admitted else _KNOCK_SECONDS):
                    _hang_up(client.connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left in the middle; what went wrong with a request itself was answered by its handler."""
        log.info("the connection of %s broke", client_address[0])

    def _make_room(self) -> bool:
        """Whether a place was freed. The thread of that connection ends by itself."""
        waiting = [client for client in self._clients.values() if not client.is_admitted]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda client: client.since)
        del self._clients[oldest.connection]
        _hang_up(oldest.connection)
        return True


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _BoundedHeaders:
    """A request's stream, which ends where its headers grow too long. `body` reads on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = _MOST_HEADER_BYTES

    def readline(self, size: int = -1) -> bytes:
        line: bytes = self._stream.readline(self._left if size < 0 else min(size, self._left))
        self._left -= len(line)
        return line

    def body(self, size: int) -> bytes:
        read: bytes = self._stream.read(size)
        return read

    def close(self) -> None:
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    server: CacheServer
    server_version = "edgetrain-cache"
    sys_version = ""
    timeout = _QUIET_SECONDS
    rfile: Any  # in the parent a plain file

    def setup(self) -> None:
        super().setup()
        self.rfile = _BoundedHeaders(self.rfile)

    def do_GET(self) -> None:
        self._respond(
            {
                r"/schedules/([0-9a-f]{64})": self._get,
                r"/classes/([0-9a-f]{64})": self._index,
                r"/changes": self._changes,
            }
        )

    def do_PUT(self) -> None:
        self._respond({r"/schedules/([0-9a-f]{64})": self._put})

    def _respond(self, routes: Mapping[str, Callable[..., tuple[int, str]]]) -> None:
        try:
            self._require_token()
            if self.server.service.token:
                self.server.admit(self.connection)
            status, body = self._route(routes)
            self.server.admit(self.connection)
        except _Refusal as refusal:
            status, body = refusal.status, json.dumps({"what": refusal.what, "why": refusal.why})
            self.close_connection = True  # what is left of the request is not read
        except Exception:  # a request must not end the server
            log.exception("a request failed")
            status, body = 500, json.dumps({"what": "the server failed", "why": ""})
            self.close_connection = True
        raw = body.encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _route(self, routes: Mapping[str, Callable[..., tuple[int, str]]]) -> tuple[int, str]:
        try:
            path = urlsplit(self.path).path
        except ValueError as error:  # a bracket that begins a host and never ends
            raise _Refusal(400, "the request has no path that can be read", str(error)) from None
        for pattern, answer in routes.items():
            match = re.fullmatch(re.escape(PREFIX) + pattern, path)
            if match:
                return answer(*match.groups())
        raise _Refusal(404, "there is nothing at this path")

    def _require_token(self) -> None:
        token = self.server.service.token
        given = self.headers.get("Authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise _Refusal(401, "the token is missing or wrong")

    def _get(self, id_: str) -> tuple[int, str]:
        with self._store() as store:
            entry = store.get(id_)
        if entry is None:
            raise _Refusal(404, "there is no entry of this id")
        return 200, entry.text

    def _index(self, class_: str) -> tuple[int, str]:
        with self._store() as store:
            return 200, json.dumps({"ids": store.by_class(class_)})

    def _changes(self) -> tuple[int, str]:
        words = parse_qs(urlsplit(self.path).query).get("since", [""])[0]
        known = _CURSOR.fullmatch(words)
        with self._store() as store:
            identity = store.identity
            # A cursor of another store, one that was deleted and begun again, means nothing here: from the beginning.
            since = int(known[2]) if known and known[1] == identity else 0
            changes = store.changes(since, most=MOST_PAGE)
            listed = [
                {"id": change.id, "tag": f"{identity}.{change.number}", "text": entry.text}
                for change in changes
                if (entry := store.get(change.id)) is not None
            ]
        last = changes[-1].number if changes else since
        more = int(len(changes) == MOST_PAGE)
        return 200, json.dumps({"changes": listed, "cursor": f"{identity}.{last}", "more": more})

    def _put(self, id_: str) -> tuple[int, str]:
        service = self.server.service
        if service.read_only:
            raise _Refusal(403, "this cache is read-only", "it was started with --read-only")
        try:
            entry = read_as(id_, self._body())
            objection = service.trust.objection(entry)
        except CacheError as error:
            raise _Refusal(422, error.what, error.why) from None
        if objection:
            raise _Refusal(422, "the entry is refused", objection)
        with self._store() as store:
            (result,) = store.put_all([entry])
        return (201 if result == NEW else 200), json.dumps({"result": result})

    @contextlib.contextmanager
    def _store(self) -> Iterator[Store]:
        """The store, for as long as it takes; never while a client is waited for."""
        with self.server.service.lock:
            yield self.server.service.store

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length):
            raise _Refusal(411, "a length is needed", "send Content-Length")
        if int(length) > MOST_BYTES:
            raise _Refusal(413, "the entry is too long", f"{length} bytes are more than {MOST_BYTES}")
        body: bytes = self.rfile.body(int(length))
        if len(body) != int(length):
            raise _Refusal(400, "the request ended early")
        return body

    def log_message(self, format: str, *args: Any) -> None:
        log.info("%s %s", self.address_string(), format % args)
