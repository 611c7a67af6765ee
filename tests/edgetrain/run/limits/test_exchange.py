"""Two processes that talk through files: each end on its own, and both together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.errors import DataError, DeviceError, UsageError
from edgetrain.run.files.run_folder import LIVE, REQUEST
from edgetrain.run.limits.exchange import (
    LiveState,
    Mailbox,
    Request,
    ask,
    hold_run,
    is_running,
    read_state,
    write_state,
)
from edgetrain.run.limits.ladder import Rung

RUNG = Rung(planned_peak_bytes=100, planned_seconds=0.5, program=Path("/builds/1/program"))
STATE = LiveState(
    step=3,
    steps=9,
    budget_bytes=None,
    limit_bytes=120,
    rung=RUNG,
    measured_peak_bytes=90,
    since_step=1,
    rungs=(RUNG,),
    compiled_directory="/builds/1",
    compiled_key="ab",
)


def silent() -> None:
    """Nobody is told."""


def leave(folder: Path, request: Request) -> None:
    """As `ask` does, without waiting."""
    staged = folder / "staged"
    staged.write_text(json.dumps(request.to_json()))
    staged.replace(folder / REQUEST)


@pytest.mark.parametrize("request_", [Request(id="1"), Request(id="2", budget_bytes=5, rung=RUNG, compiled_key="ab")])
def test_messages_survive_json(request_: Request) -> None:
    assert Request.from_json(json.loads(json.dumps(request_.to_json()))) == request_
    assert LiveState.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE


def test_a_run_is_running_while_it_is_held_and_its_messages_end_with_it(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    leave(tmp_path, Request(id="stale"))
    with hold_run(tmp_path):
        assert is_running(tmp_path)
        assert Mailbox(tmp_path).take() is None, "a request to an earlier run was taken"
        write_state(tmp_path, STATE)
        assert read_state(tmp_path) == STATE
    assert not is_running(tmp_path)
    assert not (tmp_path / LIVE).exists()


def test_a_run_cannot_be_held_twice(tmp_path: Path) -> None:
    with hold_run(tmp_path), pytest.raises(UsageError, match="in another process"), hold_run(tmp_path):
        pass
    with hold_run(tmp_path):
        pass


_HOLD = """
import sys, time
from pathlib import Path
from edgetrain.run.limits.exchange import hold_run
with hold_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_run_that_was_killed_is_not_running(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_running(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not is_running(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "edgetrain.live/9"}'])
def test_a_broken_state_is_an_error_and_a_broken_request_is_passed_over(text: str, tmp_path: Path) -> None:
    with hold_run(tmp_path):
        (tmp_path / LIVE).write_text(text)
        (tmp_path / REQUEST).write_text(text)
        with pytest.raises(DataError, match="cannot be used"):
            read_state(tmp_path)
        mailbox = Mailbox(tmp_path)
        assert mailbox.take() is None
        leave(tmp_path, Request(id="good"))
        assert mailbox.take() == Request(id="good")


def test_a_run_that_does_not_run_or_has_not_begun_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not running"):
        read_state(tmp_path)
    with hold_run(tmp_path), pytest.raises(UsageError, match="cannot change its plan now"):
        read_state(tmp_path)


def test_each_request_is_taken_once(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    for number in range(3):
        assert mailbox.take() is None
        leave(tmp_path, Request(id=str(number)))
        assert mailbox.take() == Request(id=str(number))
    assert mailbox.take() is None
    leave(tmp_path, Request(id="2"))
    assert mailbox.take() is None, "the same request in a new file was taken again"


def test_a_request_without_an_answer_stands_when_patience_ends(tmp_path: Path) -> None:
    with hold_run(tmp_path):
        write_state(tmp_path, STATE)
        with pytest.raises(DeviceError, match="has not answered in 0 s"):
            ask(tmp_path, Request(id="1"), patience_s=0, waiting=silent)
        assert Mailbox(tmp_path).take() == Request(id="1")


def test_many_askers_at_once_are_each_answered(tmp_path: Path) -> None:
    answers: dict[str, str] = {}

    def asker(name: str) -> None:
        answers[name] = ask(tmp_path, Request(id=name), patience_s=60, waiting=silent).answered

    with hold_run(tmp_path):
        write_state(tmp_path, STATE)
        mailbox = Mailbox(tmp_path)
        threads = [threading.Thread(target=asker, args=(f"asker {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            request = mailbox.take()
            if request is not None:
                write_state(tmp_path, replace(STATE, answered=request.id))
            time.sleep(0.001)
    assert answers == {f"asker {number}": f"asker {number}" for number in range(4)}
