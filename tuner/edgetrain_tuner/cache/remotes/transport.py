"""One HTTP request, with a time limit, a size limit, no redirects, and errors in words."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from edgetrain_tuner.cache.errors import AddressError, UnreachableError

_MOST_ANSWER_BYTES = 8 << 20
_MOST_REASON_BYTES = 4096
_WHOLE = 6  # times the time that a silent server is given: what an answer may take in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]  # names in small letters


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """`urllib` would send the token along to wherever it is redirected."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Deadline:
    """Hangs up when a request takes too long in all: a server that sends a byte now and then is never silent."""

    def __init__(self, seconds: float) -> None:
        self.reason = ""
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def watching(self, kind: Callable[..., http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        def connection(*words: Any, **options: Any) -> http.client.HTTPConnection:
            made = kind(*words, **options)
            connect = made.connect

            def remembering() -> None:
                connect()
                self._sockets.append(made.sock)  # the connection forgets it before the answer is read

            made.connect = remembering  # type: ignore[method-assign]
            return made

        return connection

    def _end(self) -> None:
        self.reason = _reason(TimeoutError())
        for connected in self._sockets:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._deadline.watching(http.client.HTTPConnection), request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._deadline.watching(http.client.HTTPSConnection), request)


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    timeout_s: float,
    most_bytes: int = _MOST_ANSWER_BYTES,
) -> Answer:
    """The answer, whatever its status. Raises `UnreachableError` where there is none, or it is too long or too slow."""
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers))
    deadline = _Deadline(_WHOLE * timeout_s)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), _Http(deadline), _Https(deadline)]
    if is_loopback(url):  # never by way of a proxy
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    try:
        with deadline, opener.open(request, timeout=timeout_s) as response:
            answer = _answer(response.status, response.headers, _bounded(response, most_bytes, url))
    except urllib.error.HTTPError as error:
        with error:
            answer = _answer(error.code, error.headers, error.read(_MOST_REASON_BYTES))
    except urllib.error.URLError as error:
        raise UnreachableError(f"`{_origin(url)}` cannot be reached", why=_reason(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"`{_origin(url)}` broke off", why=deadline.reason or _reason(error)) from None
    if deadline.reason:  # headers that were cut off look like whole ones
        raise UnreachableError(f"`{_origin(url)}` broke off", why=deadline.reason)
    return answer


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_url(url: str, *, secret: str) -> str:
    """The address without a slash at its end. Raises `AddressError` for one without a host, with a password in it, or
    one that would send `secret` in the clear."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"`{url}` is no address", why=str(error)) from None
    if not parts.hostname or port == 0 or not url.isprintable() or " " in url:
        raise AddressError(f"`{url}` is no address", why="it has no host, or characters that no address has")
    if parts.username is not None or parts.password is not None:
        raise AddressError(
            f"the address of {parts.hostname} holds a user or a password", why="addresses are kept and shown"
        )
    if parts.query or parts.fragment:
        raise AddressError(f"`{url}` has more than a path", why="`?` and `#` mean nothing here")
    if secret and parts.scheme == "http" and not is_loopback(url):
        raise AddressError(f"no token is sent to `{url}`", why="http is readable on the way; use https")
    return url.rstrip("/")


def _bounded(response: http.client.HTTPResponse, most_bytes: int, url: str) -> bytes:
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise UnreachableError(f"`{_origin(url)}` answered too much", why=f"more than {most_bytes} bytes")
    return body


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    return Answer(status=status, body=body, headers={name.lower(): value for name, value in headers.items()})


def _reason(reason: object) -> str:
    match reason:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted: {reason.verify_message}; SSL_CERT_FILE can name your own authority's"
            )
        case ssl.SSLError():
            return f"TLS failed: {reason.reason or reason}"
        case TimeoutError():
            return "it did not answer in time"
        case OSError():
            return reason.strerror or str(reason)
    return str(reason)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
