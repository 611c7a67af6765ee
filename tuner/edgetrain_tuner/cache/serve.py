"""A store over HTTP, for a team: `python -m http.server` it is not, it serves entries and nothing else.

    GET  /v1/schedules/ID          the entry
    PUT  /v1/schedules/ID          joins an entry with the one that is there
    GET  /v1/classes/CLASS         {"ids": [...]}
    GET  /v1/changes?since=CURSOR  {"changes": [{"id", "tag", "text"}], "cursor", "more"}

Errors are `{"what", "why"}`. TLS is for a proxy in front of it to do.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import re
import threading
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

_QUIET_SECONDS = 30  # a client that says nothing for so long is let go
_MOST_CLIENTS = 64
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


class CacheServer(ThreadingHTTPServer):
    """Serves until `shutdown`. Port 0 picks a free one; `server_address` has it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.service = service
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(address, _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._places:
            super().process_request_thread(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: CacheServer
    server_version = "edgetrain-cache"
    sys_version = ""
    timeout = _QUIET_SECONDS

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
            status, body = self._route(routes)
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
        path = urlsplit(self.path).path
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
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise _Refusal(400, "the request ended early")
        return body

    def log_message(self, format: str, *args: Any) -> None:
        log.info("%s %s", self.address_string(), format % args)
