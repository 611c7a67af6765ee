"""A request to `edgetrain cache serve`, byte by byte as it comes, against the handler without a socket."""

from __future__ import annotations

import io
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from edgetrain_tuner.cache.serve import Service, _Handler
from edgetrain_tuner.cache.store import Store

WORDS = (
    *(
        b"GET ",
        b"PUT ",
        b"HEAD ",
        b" HTTP/1.1\r\n",
        b" HTTP/0.9\r\n",
        b" HTTP/1.0\r\n",
        b"/v1/schedules/",
        b"/v1/classes/",
    ),
    *(
        b"/v1/changes?since=",
        b"a" * 64,
        b"Content-Length: ",
        b"Authorization: Bearer secret",
        b"\r\n\r\n",
        b"//[",
        b"%00",
    ),
    *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: keep-alive", b"\r\n "),
)
_ANSWER = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


class _Connection:
    """What the handler needs of a socket: it reads a request from it, and writes the answer."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.answer = b""

    def makefile(self, *_arguments: Any) -> io.BytesIO:
        return io.BytesIO(self._request)

    def sendall(self, data: Any) -> None:
        self.answer += bytes(data)

    def settimeout(self, _seconds: float) -> None:
        """It never waits."""


class _Server:
    def __init__(self, service: Service) -> None:
        self.service = service

    def admit(self, _connection: Any) -> None:
        """There is one client."""


@cache
def _store() -> tuple[Store, Any]:
    """One for all requests, with its folder, which goes when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="edgetrain-fuzz-store-")
    return Store.open(Path(folder.name) / "store.sqlite"), folder


def one_input(data: bytes) -> None:
    for token, read_only in (("", False), ("secret", True)):
        connection = _Connection(data)
        service = Service(store=_store()[0], token=token, read_only=read_only)
        _Handler(connection, ("127.0.0.1", 1), _Server(service))  # type: ignore[arg-type]  # stands for a socket
        status = _ANSWER.match(connection.answer)
        assert status is None or status[1] != b"500", "the server failed: a request that it did not expect"
