"""The HTTP client against servers that mean no good."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from edgetrain_tuner.cache.errors import AddressError, CacheError, EntryError, UnreachableError
from edgetrain_tuner.cache.remotes.http import HttpRemote
from edgetrain_tuner.cache.remotes.remote import Access, Changes, Listed
from edgetrain_tuner.cache.remotes.transport import checked_url, is_loopback
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.sync import pull
from edgetrain_tuner.cache.trust import Trust
from tests.edgetrain_tuner.cache.entries import entry


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that gives everybody the same answer, and its log of what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization')}")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_redirect_is_told_and_the_token_stays_here() -> None:
    with answering(200, b"{}") as (other, asked_other), answering(302, b"", Location=other) as (url, asked):
        with pytest.raises(AddressError, match="redirects to"):
            HttpRemote(url, Access(token="secret")).changes("")
        assert len(asked) == 1
        assert asked_other == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AddressError), (403, AddressError), (404, AddressError), (500, UnreachableError), (503, UnreachableError)],
)
def test_every_status_has_its_error(status: int, kind: type[CacheError]) -> None:
    with answering(status, b"<html>no</html>") as (url, _), pytest.raises(kind):
        HttpRemote(url, Access()).changes("")


ANSWERS = {
    "no json": b"<html>a web page</html>",
    "a list": b"[]",
    "more keys": json.dumps({"changes": [], "cursor": "", "more": 0, "run": "x"}).encode(),
    "no id": json.dumps({"changes": [{"id": "../x", "tag": "1", "text": ""}], "cursor": "", "more": 0}).encode(),
    "deep": b"[" * 100_000,
    "in circles": json.dumps({"changes": [], "cursor": "", "more": 1}).encode(),
    "a word for the cursor": json.dumps({"changes": [], "cursor": "a b&since=0", "more": 0}).encode(),
    "escape codes": json.dumps({"changes": [], "cursor": "\x1b[2J", "more": 0}).encode(),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_makes_no_sense_is_an_error_in_words(name: str) -> None:
    with answering(200, ANSWERS[name]) as (url, _):
        with pytest.raises(UnreachableError) as caught:
            HttpRemote(url, Access()).changes("")
        assert str(caught.value).isprintable()


def test_an_answer_without_end_is_cut_off() -> None:
    with answering(200, b" " * (9 << 20)) as (url, _), pytest.raises(UnreachableError, match="too much"):
        HttpRemote(url, Access()).changes("")


def test_an_entry_under_another_id_is_refused_and_the_rest_comes_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    listed = [
        {"id": entry(1).id, "tag": "1", "text": entry(2).text},
        {"id": entry(3).id, "tag": "2", "text": entry(3).text},
    ]
    answer = json.dumps({"changes": listed, "cursor": "a.2", "more": 0}).encode()
    with answering(200, answer) as (url, _), Store.open(tmp_path_factory.mktemp("x") / "s.sqlite") as store:
        transfer = pull(HttpRemote(url, Access()), store, trust=Trust())
        assert [refused.id for refused in transfer.refused] == [entry(1).id]
        assert [e.id for e in store] == [entry(3).id]


def test_what_a_server_says_of_a_bad_entry_is_shown_without_its_escape_codes() -> None:
    with answering(422, json.dumps({"what": "no", "why": "bad \x1b[31mtile"}).encode()) as (url, _):
        with pytest.raises(EntryError, match="bad") as caught:
            HttpRemote(url, Access()).put(entry())
        assert str(caught.value).isprintable()


def test_no_token_goes_over_plain_http_to_another_machine() -> None:
    with pytest.raises(AddressError, match="https"):
        checked_url("http://cache.example.org/team", secret="token")
    assert checked_url("http://cache.example.org/team/", secret="") == "http://cache.example.org/team"
    assert checked_url("http://localhost:8000", secret="token") == "http://localhost:8000"


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://127.0.0.1:1/", True),
        ("http://[::1]/", True),
        ("http://localhost/", True),
        ("http://localhost.example.org/", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_loopback_is_recognised(url: str, is_here: bool) -> None:
    assert is_loopback(url) is is_here


def test_a_certificate_that_nobody_vouches_for_is_told() -> None:
    from edgetrain_tuner.cache.remotes.transport import _reason

    error = ssl.SSLCertVerificationError()
    error.verify_message = "self-signed certificate"
    assert "self-signed certificate" in _reason(error)
    assert "SSL_CERT_FILE" in _reason(error)


def test_plain_http_where_tls_is_expected_is_told() -> None:
    with answering(200, b"{}") as (url, _), pytest.raises(UnreachableError, match="TLS"):
        HttpRemote(url.replace("http://", "https://"), Access()).changes("")


@contextmanager
def dripping(*, headers: bool) -> Iterator[str]:
    """A server that sends a byte again and again and never ends, in its headers or behind them."""
    done = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + (b"X: " if headers else b"\r\n"))
            while not done.wait(0.01):
                connection.sendall(b"a")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        done.set()
        listener.close()
        thread.join()


@pytest.mark.parametrize("headers", [True, False])
def test_an_answer_that_never_ends_is_given_up(headers: bool) -> None:
    with dripping(headers=headers) as url, pytest.raises(UnreachableError, match="broke off") as caught:
        HttpRemote(url, Access(timeout_s=0.1)).get(entry().id)
    assert "in time" in caught.value.why


class _Endless:
    """A remote that always says there is more."""

    def __init__(self, listed: tuple[Listed, ...]) -> None:
        self.listed = listed
        self.asked = 0

    def changes(self, since: str) -> Changes:
        self.asked += 1
        return Changes(listed=self.listed, cursor=str(self.asked), more=True)


@pytest.mark.parametrize("listed", [(), (Listed(id=entry().id, tag="1", text=entry().text),)])
def test_a_remote_that_always_has_more_is_left(listed: tuple[Listed, ...], tmp_path: Path) -> None:
    remote = _Endless(listed)
    with Store.open(tmp_path / "mine.sqlite") as store, pytest.raises(UnreachableError, match="in circles"):
        pull(remote, store, trust=Trust())  # type: ignore[arg-type]  # the one request that a pull makes
    assert remote.asked <= 4_000
