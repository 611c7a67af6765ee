"""A small S3 in this process. It checks every signature with code of its own, written from the documentation."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
PAGE = 3  # a short page, so that lists have several


class FakeS3(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.regions: list[str] = []
        self.knows_conditions = True
        self.session_token = ""
        self.moved_to = ""
        self.list_answer: bytes | None = None  # instead of a list
        self.before_put: list[Any] = []  # called once each, before a PUT of an entry is looked at

    @property
    def url(self) -> str:
        return f"s3+http://127.0.0.1:{self.server_address[1]}/bucket/team%20one"


@contextmanager
def running() -> Iterator[FakeS3]:
    server = FakeS3()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeS3
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write: a second one would wait for the first to be acknowledged

    def do_GET(self) -> None:
        self._handle(b"")

    def do_PUT(self) -> None:
        self._handle(self.rfile.read(int(self.headers["Content-Length"])))

    def _handle(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        self.server.requests.append(f"{self.command} {parts.path}")
        if self._signature(body) not in self.headers.get("Authorization", ""):
            return self._reply(403, _error("SignatureDoesNotMatch"))
        if self.server.session_token != self.headers.get("x-amz-security-token", ""):
            return self._reply(403, _error("InvalidToken"))
        if self.server.moved_to:
            return self._reply(307, _error("TemporaryRedirect"), location=self.server.moved_to + self.path)
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        if bucket != "bucket":
            return self._reply(404, _error("NoSuchBucket"))
        if self.command == "PUT":
            return self._put(key, body)
        if not key:
            listed = self.server.list_answer
            return self._reply(200, self._list(dict(parse_qsl(parts.query))) if listed is None else listed)
        if key not in self.server.objects:
            return self._reply(404, _error("NoSuchKey"))
        return self._reply(200, self.server.objects[key])

    def _put(self, key: str, body: bytes) -> None:
        if key.endswith(".json") and self.server.before_put:
            self.server.before_put.pop(0)(self.server.objects, key)
        conditions = [name for name in ("If-Match", "If-None-Match") if name in self.headers]
        if conditions and not self.server.knows_conditions:
            return self._reply(501, _error("NotImplemented"))
        known = self.server.objects.get(key)
        if ("If-None-Match" in conditions and known is not None) or (
            "If-Match" in conditions and (known is None or self.headers["If-Match"] != _tag(known))
        ):
            return self._reply(412, _error("PreconditionFailed"))
        self.server.objects[key] = body
        return self._reply(200, b"")

    def _list(self, query: dict[str, str]) -> bytes:
        assert query["list-type"] == "2"
        keys = sorted(key for key in self.server.objects if key.startswith(query["prefix"]))
        start = int(query.get("continuation-token", "0"))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>{escape(_tag(self.server.objects[key]))}</ETag></Contents>"
            for key in keys[start : start + PAGE]
        )
        more = start + PAGE < len(keys)
        token = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        ).encode()

    def _signature(self, body: bytes) -> str:
        authorization = self.headers.get("Authorization", "")
        fields = dict(part.strip().split("=", 1) for part in authorization.removeprefix("AWS4-HMAC-SHA256 ").split(","))
        key_id, day, region, service, last = fields["Credential"].split("/")
        assert (key_id, service, last) == (KEY_ID, "s3", "aws4_request")
        self.server.regions.append(region)
        names = fields["SignedHeaders"].split(";")
        assert {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names)
        assert self.headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
        parts = urlsplit(self.path)
        query = sorted(
            quote(name, safe="") + "=" + quote(value, safe="")
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        )
        lines = [self.command, quote(unquote(parts.path)), "&".join(query)]
        lines += [f"{name}:{self.headers[name].strip()}" for name in names]
        lines += ["", fields["SignedHeaders"], self.headers["x-amz-content-sha256"]]
        hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{day}/{region}/s3/aws4_request\n{hashed}"
        key = ("AWS4" + SECRET).encode()
        for word in (day, region, "s3", "aws4_request", text):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        return f"Signature={key.hex()}"

    def _reply(self, status: int, body: bytes, *, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        if status == 200 and self.command == "GET":
            self.send_header("ETag", _tag(body))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
