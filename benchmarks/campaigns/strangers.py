"""What strangers send to `edgetrain cache serve`: none of it gets in, and those who may are served meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator

from benchmarks.campaigns.ground import Ground, Result
from benchmarks.soaking.process import Command

_TOKEN = "right-token-of-a-server"
_ID = "0" * 64
_HEADERS = (
    "Bearer", "Bearer ", "Bearer x", f"bearer {_TOKEN}", f"Basic {_TOKEN}", f"Bearer  {_TOKEN}", f"Bearer {_TOKEN}x",
    f"Bearer {_TOKEN[:-1]}", f"Bearer {_TOKEN.upper()}", f"Bearer {_TOKEN}\t.",
    f"{_TOKEN}", f"Bearer {_TOKEN},{_TOKEN}",
)  # fmt: skip
_PLACES = (
    "/", "/..", "/../../etc/passwd", "/v1/schedules/../../../../etc/passwd", "/v1/schedules/..%2f..%2fetc%2fpasswd",
    "/v1/schedules/%2e%2e/%2e%2e/served.sqlite", "//etc/passwd", "/v1//schedules", "/v1/schedules/" + "A" * 64,
    "/v1/schedules/" + _ID + "/..", "/v1/classes/..", "/v1/classes/%00", "/served.sqlite",
    "/v1/schedules/....//....//x",
    "/v1/schedules/..\\..\\x", "/v1/schedules/" + "%" * 64,
)  # fmt: skip
_METHODS = ("POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "HEAD", "PROPFIND", "BREW")
_SMUGGLED = (
    "Content-Length: 5\r\nContent-Length: 40", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: +5",
    "Content-Length: 0x5", "Content-Length: 5, 40", "Content-Length : 5", "Transfer-Encoding: xchunked",
    "Content-Length: -1",
)  # fmt: skip
_SLOW, _MANY, _FEW = 64, 2000, 300
_MOST_THREADS = 200
_IN = (200, 201, 204)


def server_attacks(ground: Ground) -> Result:
    """Tokens, paths, methods, smuggled requests, slow senders and many connections."""
    wrong: list[str] = []
    many = _FEW if ground.quick else _MANY
    with _serving(ground) as (port, server):
        wrong += [f"token {h!r} got {c}" for h in _HEADERS if (c := _status(port, "GET", authorization=h)) in _IN]
        wrong += [f"path {p!r} got {c}" for p in _PLACES if (c := _status(port, "GET", place=p)) in _IN]
        wrong += [f"method {m} got {c}" for m in _METHODS if (c := _status(port, m)) in _IN]
        wrong += [f"{lines!r} answered {n} requests" for lines in _SMUGGLED if (n := _answers(port, lines)) > 1]
        with contextlib.ExitStack() as strangers:
            for _ in range(_SLOW):
                strangers.enter_context(_connected(port)).sendall(b"GET /v1/changes HTTP/1.1\r\nX-Slow: ")
            wrong += _still_serves(port, f"{_SLOW} slow senders")
        with contextlib.ExitStack() as strangers:
            for _ in range(many):
                with contextlib.suppress(OSError):
                    strangers.enter_context(_connected(port))
            threads = len(os.listdir(f"/proc/{server.pid}/task"))  # noqa: PTH208 - names alone
            if threads > _MOST_THREADS:
                wrong.append(f"{many} connections made {threads} threads")
            wrong += _still_serves(port, f"{many} connections")
        for _ in range(20):
            _connected(port).close()
        wrong += _still_serves(port, "clients that left")
    wrong += [f"the server said `{words}`: {server.text()[-800:]}" for words in server.bugs()]
    tries = len(_HEADERS) + len(_PLACES) + len(_METHODS) + len(_SMUGGLED) + _SLOW + many + 20
    detail = (
        f"{len(_HEADERS)} tokens, {len(_PLACES)} paths, {len(_METHODS)} methods, {len(_SMUGGLED)} smuggled requests, "
        f"{_SLOW} slow senders, {many} connections ({threads} threads), 20 clients that left"
    )
    return Result(tries=tries, wrong=tuple(wrong), detail=detail)


@contextlib.contextmanager
def _serving(ground: Ground) -> Iterator[tuple[int, Command]]:
    folder = ground.new_folder("server")
    token = folder / "token"
    token.write_text(_TOKEN)
    token.chmod(0o600)
    port = _free_port()
    words = ("cache", "serve", "--token-file", str(token), "--port", str(port), "--store", str(folder / "s.sqlite"))
    server = ground.start(words, cwd=folder)
    try:
        _wait_for(port, server)
        yield port, server
    finally:
        server.signal(signal.SIGTERM)
        server.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_for(port: int, server: Command) -> None:
    for _ in range(600):
        if server.code() is not None:
            break
        with contextlib.suppress(OSError), _connected(port):
            return
        time.sleep(0.1)
    raise SystemExit(f"`cache serve` does not listen: {server.text()}")


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _status(port: int, method: str, *, place: str = "/v1/changes?since=", authorization: str | None = None) -> int:
    """The status of the answer; 0 where there was none."""
    text = authorization or f"Bearer {_TOKEN}"
    request = f"{method} {place} HTTP/1.1\r\nHost: x\r\nAuthorization: {text}\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError, ValueError, IndexError), _connected(port) as connection:
        connection.sendall(request.encode("latin-1"))
        return int(connection.recv(4096).split()[1])
    return 0


def _answers(port: int, lines: str) -> int:
    """How many requests a server finds in one whose length is told in two ways."""
    inner = f"GET /v1/changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n"
    request = f"PUT /v1/schedules/{_ID} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {_TOKEN}\r\n{lines}\r\n\r\n"
    said = b""
    with contextlib.suppress(OSError), _connected(port) as connection:
        connection.sendall((request + "0\r\n\r\n" + inner).encode())
        connection.shutdown(socket.SHUT_WR)
        while chunk := connection.recv(4096):
            said += chunk
    return said.count(b"HTTP/1.")


def _still_serves(port: int, beside: str) -> list[str]:
    """Whoever has the token gets an answer, whatever strangers do."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/v1/changes?since=", headers={"Authorization": f"Bearer {_TOKEN}"})
        status = connection.getresponse().status
    except OSError as error:
        return [f"beside {beside} nobody is served: {error}"]
    finally:
        connection.close()
    return [] if status == 200 else [f"beside {beside} the answer was {status}"]
