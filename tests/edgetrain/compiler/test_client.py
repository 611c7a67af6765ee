"""Claims about the compiler's process when the machine fails it: never called a bug, never left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.compiler import client
from edgetrain.errors import DeviceError, InternalError
from edgetrain.files.scratch import OWNER, sweep

_PATIENCE_S = 30.0


def ending_as(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's process is one that runs this code; the rest is as it is."""
    start = subprocess.Popen

    def started(_: object, **options: object) -> object:
        return start([sys.executable, "-c", "import sys; sys.stdin.read()\n" + code], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", started)


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",  # what the system does where memory runs out
        "raise MemoryError",
        "import os; print('terminate called … std::bad_alloc', file=sys.stderr, flush=True); os.abort()",
        "print('LLVM ERROR: out of memory', file=sys.stderr); sys.exit(1)",
        "raise ImportError('libtvm.so: failed to map segment from shared object')",
    ],
)
def test_memory_that_runs_out_is_the_machines_fault(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ending_as(code, monkeypatch)
    with pytest.raises(DeviceError, match="memory ran out") as caught:
        client.run_compiler({"job": "compile"}, None)
    assert "needs about" in caught.value.why


def test_any_other_end_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    ending_as("raise KeyError('x')", monkeypatch)
    with pytest.raises(InternalError, match="code 1"):
        client.run_compiler({"job": "compile"}, None)


def test_a_full_disk_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    ending_as("raise OSError(28, 'No space left on device')", monkeypatch)
    with pytest.raises(DeviceError, match="could not use"):
        client.run_compiler({"job": "compile"}, None)


def test_a_full_disk_of_temporary_files_does_not_silence_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full takes no last words either."""
    lost = "os.fstat(2).st_dev == os.stat(os.environ['TMPDIR']).st_dev"
    ending_as(
        f"import os\nif {lost}: os._exit(1)\nraise OSError(28, 'No space left on device')",
        monkeypatch,
    )
    with pytest.raises(DeviceError, match="could not use"):
        client.run_compiler({"job": "compile"}, None)


def test_a_killed_command_leaves_no_folder_for_ever(command_environment: Mapping[str, str], tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = subprocess.Popen(
        [sys.executable, "-m", "edgetrain", "plan", "digits"],
        env={**command_environment, "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list(temporary.glob(f"edgetrain-compile-*/{OWNER}")):
        assert command.poll() is None
    command.kill()
    command.wait()
    left = list(temporary.iterdir())
    for path in left:
        minutes_ago = path.stat().st_mtime - 120
        os.utime(path, (minutes_ago, minutes_ago))
    ends = time.monotonic() + _PATIENCE_S  # a process that it had just forked holds the lock until it ends, too
    while (swept := sweep(left)) == 0 and time.monotonic() < ends:
        time.sleep(0.1)
    assert swept == len(left)


def test_a_limit_below_what_compiling_needs_is_told_before(
    command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    environment = {**command_environment, "XDG_CACHE_HOME": str(tmp_path)}

    def limited(nbytes: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "edgetrain", "plan", "digits"],
            env=environment,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes)),
            capture_output=True,
            text=True,
            check=False,
        )

    for nbytes, words in ((100 << 20, "200 MB of addresses"), (450 << 20, "compiling this model needs about")):
        done = limited(nbytes)
        assert (done.returncode, words in done.stderr, "Traceback" in done.stderr) == (6, True, False), done.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL, signal.SIGTERM])
def test_the_compiler_does_not_outlive_the_command(
    number: signal.Signals, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "edgetrain", "plan", "digits"],
        env={**command_environment, "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while not (found := children.read_text().split()):
        assert command.poll() is None
    command.send_signal(number)
    command.wait()
    for pid in map(int, found):
        while is_running(pid):
            os.sched_yield()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
