"""The server, asked by our client and by ruder ones."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from edgetrain_tuner.cache import serve
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.remotes.http import MOST_PAGE, HttpRemote
from edgetrain_tuner.cache.remotes.remote import Access
from edgetrain_tuner.cache.serve import MOST_CLIENTS, CacheServer, Service
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.sync import pull
from edgetrain_tuner.cache.trust import Trust
from tests.edgetrain_tuner.cache.conftest import TOKEN, serving
from tests.edgetrain_tuner.cache.entries import entry, hash_of

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "served.sqlite"


@pytest.fixture
def url(path: Path) -> Iterator[str]:
    with serving(path, token=TOKEN) as address:
        yield address


def ask(
    url: str, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] = AUTHORIZED
) -> tuple[int, bytes]:
    """As a client that follows no rules of ours."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request(method, path, body=body, headers=dict(headers))
    response = connection.getresponse()
    result = response.status, response.read()
    connection.close()
    return result


def test_the_right_token_opens_and_another_does_not(url: str) -> None:
    remote = HttpRemote(url, Access(token=TOKEN))
    remote.put(entry())
    assert remote.get(entry().id) == entry()
    for token, words in (("", "got none"), ("guess", "not the one")):
        with pytest.raises(AddressError, match=words) as caught:
            HttpRemote(url, Access(token=token)).get(entry().id)
        assert "guess" not in str(caught.value)
    for header in ("Bearer", "Bearer ", f"bearer {TOKEN}", f"Basic {TOKEN}", "Bearer é"):
        raw = {"Authorization": header.encode("utf-8").decode("latin-1")}
        assert ask(url, "GET", f"/v1/schedules/{entry().id}", headers=raw)[0] == 401


def test_without_a_token_anyone_may_read_and_write(path: Path) -> None:
    with serving(path) as url:
        HttpRemote(url, Access()).put(entry())
        assert HttpRemote(url, Access()).get(entry().id) == entry()


def test_read_only_answers_and_takes_nothing(path: Path) -> None:
    with Store.open(path) as store:
        store.put(entry(1))
    with serving(path, read_only=True) as url:
        remote = HttpRemote(url, Access())
        assert remote.get(entry(1).id) == entry(1)
        with pytest.raises(AddressError, match="read-only"):
            remote.put(entry(2))
        assert [listed.id for listed in remote.changes("").listed] == [entry(1).id]


BAD_PUTS = {
    "no json": (b"import os", 422),
    "another id": (entry(2).text.encode(), 422),
    "nan": (entry(1).text.replace("1.5e-06", "NaN").encode(), 422),
    "deep": (b"[" * 4000, 422),
    "too long": (b" " * 4097, 413),
    "empty": (b"", 422),
}


@pytest.mark.parametrize("name", BAD_PUTS)
def test_a_bad_put_is_refused_with_a_reason(url: str, name: str) -> None:
    body, status = BAD_PUTS[name]
    answer, words = ask(url, "PUT", f"/v1/schedules/{entry(1).id}", body=body)
    assert answer == status
    assert json.loads(words)["what"]
    with pytest.raises(MissingEntryError):
        HttpRemote(url, Access(token=TOKEN)).get(entry(1).id)


def test_a_put_without_its_length_is_refused(url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.putrequest("PUT", f"/v1/schedules/{entry().id}")
    for name, value in {**AUTHORIZED, "Transfer-Encoding": "chunked"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


def test_a_request_that_ends_early_stores_nothing(url: str, path: Path) -> None:
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        text = entry().text.encode()
        head = (
            f"PUT /v1/schedules/{entry().id} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(text)}"
        )
        connection.sendall(head.encode() + b"\r\n\r\n" + text[:-5])
        connection.shutdown(socket.SHUT_WR)
        assert b" 400 " in connection.recv(4096)
    with Store.open(path) as store:
        assert len(store) == 0


@pytest.mark.parametrize(
    "place",
    [
        "/",
        "/v1/",
        "/v1/schedules/",
        "/v1/schedules/../../../../etc/passwd",
        "/v1/schedules/..%2f..%2fserved.sqlite",
        f"/v1/schedules/{'0' * 63}",
        f"/v1/schedules/{'A' * 64}",
        f"/v1/schedules/{'0' * 64}/",
        "/v1/classes/x",
        "/served.sqlite",
        "//etc/passwd",
        "/v1/changesX",
    ],
)
def test_nothing_but_entries_is_served(url: str, place: str) -> None:
    status, body = ask(url, "GET", place)
    assert status == 404
    assert json.loads(body).keys() == {"what", "why"}


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_else_can_be_done_to_an_entry(url: str, method: str) -> None:
    HttpRemote(url, Access(token=TOKEN)).put(entry())
    assert ask(url, method, f"/v1/schedules/{entry().id}")[0] in (405, 501)
    assert HttpRemote(url, Access(token=TOKEN)).get(entry().id) == entry()


def test_a_server_takes_what_it_trusts_only(path: Path) -> None:
    strict = Trust(keys=frozenset({"0" * 64}), require_signature=True)
    with serving(path, trust=strict) as url, pytest.raises(EntryError, match="not signed"):
        HttpRemote(url, Access()).put(entry())


def test_more_than_a_page_is_pulled_whole(path: Path, tmp_path: Path) -> None:
    count = MOST_PAGE + 3
    with Store.open(path) as store:
        store.put_all(entry(number) for number in range(count))
    with serving(path) as url, Store.open(tmp_path / "mine.sqlite") as mine:
        assert pull(HttpRemote(url, Access()), mine, trust=Trust()).entries == count
        assert len(mine) == count


def test_a_server_that_began_again_is_pulled_from_the_beginning(path: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "mine.sqlite") as mine:
        with serving(path) as url:
            for number in range(3):
                HttpRemote(url, Access()).put(entry(number))
            assert pull(HttpRemote(url, Access()), mine, trust=Trust()).entries == 3
        for file in tmp_path.glob("served.sqlite*"):
            file.unlink()
        with serving(path) as url:
            HttpRemote(url, Access()).put(entry(9))
            assert pull(HttpRemote(url, Access()), mine, trust=Trust()).entries == 1


@pytest.mark.parametrize("cursor", ["", "x", "1", "0.1", "'; DROP TABLE entries; --", "9" * 100])
def test_a_cursor_that_means_nothing_starts_at_the_beginning(url: str, cursor: str) -> None:
    HttpRemote(url, Access(token=TOKEN)).put(entry())
    status, body = ask(url, "GET", f"/v1/changes?since={quote(cursor)}")
    assert status == 200
    assert [change["id"] for change in json.loads(body)["changes"]] == [entry().id]


def test_an_entry_that_a_client_refuses_is_asked_for_again(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        store.put(entry(1))
    strict = Trust(keys=frozenset({"0" * 64}), require_signature=True)
    with serving(path) as url, Store.open(tmp_path / "mine.sqlite") as mine:
        refused = pull(HttpRemote(url, Access()), mine, trust=strict).refused
        assert [one.why for one in refused] == ["it is not signed"]
        assert len(mine) == 0
        assert pull(HttpRemote(url, Access()), mine, trust=Trust()).entries == 1


def test_the_index_of_a_class_is_served(url: str) -> None:
    HttpRemote(url, Access(token=TOKEN)).put(entry(1))
    assert json.loads(ask(url, "GET", f"/v1/classes/{hash_of(1)}")[1]) == {"ids": [entry(1).id]}


def test_a_port_where_nobody_listens_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnreachableError, match="refused"):
        HttpRemote(f"http://127.0.0.1:{port}", Access()).changes("")


def test_slow_strangers_do_not_keep_others_out(path: Path) -> None:
    with serving(path, token=TOKEN) as url, contextlib.ExitStack() as strangers:
        host, port = urlsplit(url).netloc.split(":")
        for _ in range(2 * MOST_CLIENTS):
            stranger = strangers.enter_context(socket.create_connection((host, int(port)), timeout=20))
            stranger.sendall(b"GET /v1/changes HTTP/1.1\r\nX-Slow: ")
        assert threads_of_requests() <= MOST_CLIENTS
        HttpRemote(url, Access(token=TOKEN)).put(entry())
        assert HttpRemote(url, Access(token=TOKEN)).get(entry().id) == entry()


def test_a_stranger_is_let_go_at_the_deadline(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_KNOCK_SECONDS", 0)
    with serving(path, token=TOKEN) as url:
        host, port = urlsplit(url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            assert connection.recv(1) == b""  # hung up, though the client keeps its end open


def test_endless_headers_end_the_connection(url: str) -> None:
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"GET /v1/changes HTTP/1.1\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for number in range(1000):
                connection.sendall(f"X-{number}: ".encode() + b"a" * 200 + b"\r\n")
            while connection.recv(4096):
                pass
    assert ask(url, "GET", "/v1/changes")[0] == 200


def test_a_client_that_leaves_is_no_traceback(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = urlsplit(url).netloc.split(":")
    for _ in range(5):
        connection = socket.create_connection((host, int(port)), timeout=20)
        connection.sendall(f"GET /v1/changes HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        connection.close()
    assert ask(url, "GET", "/v1/changes")[0] == 200
    while threads_of_requests():
        pass
    assert capsys.readouterr().err == ""


def test_a_server_listens_at_an_address_of_version_6(path: Path) -> None:
    with Store.open(path) as store:
        server = CacheServer(("::1", 0), Service(store=store, token=TOKEN))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            remote = HttpRemote(f"http://[::1]:{server.server_address[1]}", Access(token=TOKEN))
            remote.put(entry())
            assert remote.get(entry().id) == entry()
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def threads_of_requests() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())
