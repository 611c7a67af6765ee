"""Devices that are reached through a command: a program goes out, the lines that it prints come back. No TVM.

The command is put before `sh`, as in `ssh pi@host sh`, and reads a shell script from standard input that holds the
program. Nothing is installed on the device, and no word of the command line needs quoting on the way.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import secrets
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import DeviceError, UsageError
from edgetrain.toolchain.c_compiler import parse_triple

EMULATOR = "emulator"
_EMULATORS: Mapping[str, str] = {"aarch64": "aarch64", "armv": "arm", "riscv64": "riscv64", "x86_64": "x86_64"}
_MOST_BYTES = 1 << 16  # of what a trial prints: some lines
_CHUNK = 1 << 14
_SAID = re.compile(r"edgetrain-trial (began|ended|result|failed)([^\r\n]*)")
_ENDED = re.compile(rb"edgetrain-trial ended \d+\s")
_TOLD_LINES = 3
# Android has no /tmp. A name that nobody can guess, and that must be new: others may write to the folder too.
_SCRIPT = """umask 077
set -C
folder=/tmp
[ -w "$folder" ] || folder=/data/local/tmp
program=$folder/edgetrain-{token}
trap 'rm -f "$program"' EXIT
base64 -d > "$program" <<'EDGETRAIN' && chmod 700 "$program" && "$program" < /dev/null
{text}EDGETRAIN
status=$?
rm -f "$program"
echo "edgetrain-trial ended $status"
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """How programs come to run on a device. An emulator's are started by `command` itself, here."""

    command: tuple[str, ...]
    is_emulated: bool = False
    run_s: float = 20.0  # what a trial may take on the device, where it then ends itself
    way_s: float = 40.0  # there and back

    @property
    def text(self) -> str:
        return shlex.join(self.command)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Runner:
        return Runner(**{**data, "command": tuple(data["command"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a trial said: the words of its result, why it failed, or neither where it ended itself with `status`."""

    status: int
    result: tuple[str, ...] = ()
    failure: str = ""

    @property
    def is_late(self) -> bool:
        return self.status == 128 + signal.SIGALRM


def runner_of(text: str, triple: str) -> Runner:
    """What `--runner` says. Raises `UsageError` for what is no command, `DeviceError` where there is no emulator."""
    if text != EMULATOR:
        try:
            command = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"`{text}` is not a command", why=str(error)) from error
        if not command:
            raise UsageError("--runner is empty", fix="give the command that reaches the device, like `ssh pi@host`")
        return Runner(command=command)
    architecture = parse_triple(triple).architecture
    name = next((name for prefix, name in _EMULATORS.items() if architecture.startswith(prefix)), architecture)
    found = next((p for p in (shutil.which(f"qemu-{name}-static"), shutil.which(f"qemu-{name}")) if p), None)
    if found is None:
        raise DeviceError(
            f"there is no emulator for `{triple}`",
            why=f"`qemu-{name}-static` is not on the path",
            fix="install it (Debian: `apt-get install qemu-user-static`), or give a command that reaches a device",
        )
    return Runner(command=(found,), is_emulated=True)


def run_on_device(runner: Runner, program: Path) -> Answer:
    """Runs a program of `harness/trial.c` to its end.

    Raises `DeviceError` where that says nothing about the program: no command, no device, no answer, or another's.
    """
    with tempfile.TemporaryFile() as given:
        command: Sequence[str] = (*runner.command, "sh")
        if runner.is_emulated:
            command = (*runner.command, str(program))
        else:
            text = base64.encodebytes(program.read_bytes()).decode()
            given.write(_SCRIPT.format(token=secrets.token_hex(8), text=text).encode())
            given.seek(0)
        said, code = _run(command, given, runner)
    found = dict(_SAID.findall(said))
    if runner.is_emulated and code is not None:
        found["ended"] = str(code if code >= 0 else 128 - code)
    if "ended" not in found or not found["ended"].strip().isdecimal():
        raise _lost(runner, said, code)
    status = int(found["ended"])
    if "began" not in found:
        raise DeviceError(
            f"`{runner.text}` does not start programs for this target",
            why=_last_lines(said) or f"the shell there ended with {status}",
            fix="check that --target is that device: its instruction set, `base64`, and a /tmp that may hold programs",
        )
    return Answer(status=status, result=tuple(found.get("result", "").split()), failure=found.get("failed", "").strip())


def _run(command: Sequence[str], given: Any, runner: Runner) -> tuple[str, int | None]:
    """What the command printed until the trial ended, and its exit code where that is not what ended it.

    Never longer than the runner's limits, nor more than some lines.
    """
    limit_s = runner.run_s + runner.way_s
    try:
        # In a group of its own, so that whatever it has started ends with it.
        process = subprocess.Popen(
            command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise DeviceError(
            f"`{command[0]}` of --runner does not start",
            why=error.strerror or str(error),
            fix="give a command that starts a shell on the device when `sh` is added, like `ssh pi@host`",
        ) from error
    assert process.stdout is not None
    said = bytearray()
    until = time.monotonic() + limit_s
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(said) <= _MOST_BYTES:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise DeviceError(
                        f"`{runner.text}` did not answer in {limit_s:g} s",
                        why=_last_lines(said.decode(errors="replace")) or "it said nothing",
                        fix=f"try `{runner.text} true`; it must not ask for a password",
                    )
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                if not chunk:
                    break
                said += chunk
                if _ENDED.search(said):  # ssh leaves a process behind that keeps a connection, and its output, open
                    break
        code = None if _ENDED.search(said) or len(said) > _MOST_BYTES else _code(process, until)
    finally:
        _end(process)
    return said[:_MOST_BYTES].decode(errors="replace"), code


def _code(process: subprocess.Popen[bytes], until: float) -> int | None:
    """Of a process that has closed its output; None where it lives on for all that."""
    try:
        return process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _lost(runner: Runner, said: str, code: int | None) -> DeviceError:
    ending = "printed too much other output" if code is None else f"ended with {code} before the trial did"
    return DeviceError(
        f"`{runner.text}` {ending}",
        why=_last_lines(said) or "it said nothing",
        fix=f"try `{runner.text} true`; with ssh a key must be set up, since nobody can type a password here",
    )


def _last_lines(said: str) -> str:
    lines = [line.strip()[:200] for line in said.splitlines() if line.strip() and not _SAID.match(line)]
    return "\n".join(lines[-_TOLD_LINES:])
