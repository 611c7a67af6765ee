from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgetrain.report.live.server import WatchServer
from edgetrain.report.live.watch import Watch
from edgetrain.run.loop.step_log import LOG
from tests.edgetrain.report.run_folders import HOSTILE
from tests.edgetrain.run.small_run import STEPS, run


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path, name=HOSTILE, budget_bytes=1000)


@pytest.fixture
def server(watch: Watch) -> Iterator[WatchServer]:
    server = WatchServer(watch)
    server.start()
    yield server
    server.close()


def get(
    server: WatchServer, path: str, *, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, Mapping[str, str]]:
    address = urlsplit(server.address)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    connection.request(method, path, headers=dict(headers or {}))
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.headers)
    connection.close()
    return found


def below_token(server: WatchServer, name: str = "") -> str:
    return urlsplit(server.address).path + name


def test_only_this_machine_is_served(server: WatchServer) -> None:
    assert server.address.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/state", "/guess/", "//", "/%00/", "/../"])
def test_a_request_without_the_token_is_refused(server: WatchServer, path: str) -> None:
    assert get(server, path)[0] == 403


def test_a_token_that_is_almost_right_is_refused(server: WatchServer) -> None:
    token = below_token(server).strip("/")
    assert get(server, f"/{token[:-1]}/")[0] == 403
    assert get(server, f"/{token}x/")[0] == 403
    assert get(server, f"/{token}/")[0] == 200


def test_two_servers_have_different_tokens(server: WatchServer, watch: Watch) -> None:
    other = WatchServer(watch)
    other.start()
    try:
        assert below_token(other) != below_token(server)
    finally:
        other.close()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_name_for_this_machine_is_refused_even_with_the_token(server: WatchServer, host: str) -> None:
    assert get(server, below_token(server), headers={"Host": host})[0] == 403


def test_nothing_can_be_sent(server: WatchServer) -> None:
    assert get(server, below_token(server), method="POST")[0] == 501


def test_answers_are_not_kept_and_not_framed_and_tell_no_version(server: WatchServer) -> None:
    _, _, headers = get(server, below_token(server))
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Server"].strip() == "edgetrain"


def test_a_page_is_told_what_is_new_and_only_that(server: WatchServer, watch: Watch) -> None:
    first = json.loads(get(server, below_token(server, "state?after=-1"))[1])
    assert "Preparing" in first["html"]
    assert "<script>" not in first["html"]
    again = json.loads(get(server, below_token(server, f"state?after={first['version']}"))[1])
    assert again == {"version": first["version"], "ended": False}
    watch.on_train_begin({"step": 0, "steps": 10, "epochs": 2})
    watch.on_step_end(1, {"loss": 2.5, "learning_rate": 0.1, "seconds": 0.01, "epoch": 1})
    later = json.loads(get(server, below_token(server, f"state?after={first['version']}"))[1])
    assert "Training" in later["html"]
    assert "2.5" in later["html"]
    watch.end()
    assert json.loads(get(server, below_token(server, "state"))[1])["ended"] is True


def test_more_silent_connections_than_threads_are_hung_up_on(server: WatchServer) -> None:
    address = urlsplit(server.address)
    assert address.hostname is not None
    assert address.port is not None
    silent = [socket.create_connection((address.hostname, address.port), timeout=10) for _ in range(4)]
    try:
        with socket.create_connection((address.hostname, address.port), timeout=10) as one_more:
            assert one_more.recv(1) == b""  # closed without an answer, at once and not after a time-out
    finally:
        for connection in silent:
            connection.close()


def test_a_closed_server_answers_nobody(watch: Watch) -> None:
    server = WatchServer(watch)
    server.start()
    server.close()
    with pytest.raises(OSError):  # noqa: PT011  # refused or reset, as the system likes
        get(server, below_token(server))


def test_a_watched_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    alone, _ = run(tmp_path / "alone")
    watch = Watch(tmp_path / "watched", name="small", budget_bytes=None)
    server = WatchServer(watch)
    server.start()
    try:
        watched, _ = run(tmp_path / "watched", callbacks=(watch,))
        state = json.loads(get(server, below_token(server, "state"))[1])
    finally:
        server.close()
    assert watched == alone
    assert f"of {STEPS}" in state["html"]
    assert "validation" in state["html"]


def test_a_resumed_run_shows_the_steps_before(tmp_path: Path) -> None:
    run(tmp_path)
    with (tmp_path / LOG).open("a") as log:
        log.write('{"torn')
    watch = Watch(tmp_path, name="small", budget_bytes=None, resumes=True)
    assert f"step {STEPS}" in watch.fragment()
