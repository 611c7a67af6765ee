"""A program on a device that a command reaches: what comes back, and that a lost device is not waited for."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from edgetrain.compiler.measure.runners import Runner, run_on_device, runner_of
from edgetrain.errors import DeviceError, UsageError

HERE = Runner(command=("env",))  # `env sh` is a device, too


def _program(folder: Path, *lines: str) -> Path:
    """What a device would run: here, a shell script."""
    path = folder / "program"
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o700)
    return path


def _python(text: str, **limits: float) -> Runner:
    return Runner(command=(sys.executable, "-c", text), **limits)  # type: ignore[arg-type]


def test_a_program_of_any_bytes_runs_there_and_is_gone_afterwards(tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("edgetrain-*"))
    program = _program(
        tmp_path, "echo edgetrain-trial began", f"echo $0 > {tmp_path}/place", "echo edgetrain-trial result 1 2 3 4"
    )
    program.write_bytes(program.read_bytes() + b"exit 0\n" + bytes(range(256)) * 400)
    answer = run_on_device(HERE, program)
    assert (answer.status, answer.result, answer.failure) == (0, ("1", "2", "3", "4"), "")
    place = Path((tmp_path / "place").read_text().strip())
    assert place != program
    assert not place.exists()
    assert place not in before


def test_other_words_on_the_way_do_not_disturb(tmp_path: Path) -> None:
    program = _program(tmp_path, "echo edgetrain-trial began", "printf 'Welcome  '", "echo edgetrain-trial result 5")
    runner = Runner(command=("sh", "-c", "echo Last login; echo a warning >&2; exec sh"))
    assert run_on_device(runner, program).result == ("5",)


def test_a_command_may_have_its_words_joined_and_split_again(tmp_path: Path) -> None:
    """As `ssh` does, and `adb shell`."""
    runner = Runner(command=("sh", "-c", 'exec sh -c "$*"', "ssh"))
    program = _program(tmp_path, "echo edgetrain-trial began", "echo edgetrain-trial result 5")
    assert run_on_device(runner, program).result == ("5",)


def test_a_process_that_keeps_the_connection_is_not_waited_for(tmp_path: Path) -> None:
    """As `ssh` leaves one behind with `ControlPersist`."""
    runner = Runner(command=("sh", "-c", "tail -f /dev/null & exec sh"), run_s=10.0, way_s=20.0)
    program = _program(tmp_path, "echo edgetrain-trial began", "echo edgetrain-trial result 5")
    assert run_on_device(runner, program).result == ("5",)


@pytest.mark.parametrize(
    ("line", "status", "is_late"), [("kill -SEGV $$", 139, False), ("kill -ALRM $$", 142, True), ("exit 3", 3, False)]
)
def test_a_program_that_ends_without_a_result_is_told_apart(
    tmp_path: Path, line: str, status: int, is_late: bool
) -> None:
    answer = run_on_device(HERE, _program(tmp_path, "echo edgetrain-trial began", line))
    assert (answer.status, answer.result, answer.is_late) == (status, (), is_late)


def test_what_fails_on_the_device_says_why(tmp_path: Path) -> None:
    program = _program(tmp_path, "echo edgetrain-trial began", "echo edgetrain-trial failed too little memory")
    assert run_on_device(HERE, program).failure == "too little memory"


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="`no-such-command` of --runner does not start") as caught:
        run_on_device(Runner(command=("no-such-command", "pi")), _program(tmp_path))
    assert "ssh pi@host" in caught.value.fix
    assert caught.value.exit_code == 6


def test_a_connection_that_is_refused_is_said_with_its_last_words(tmp_path: Path) -> None:
    runner = _python("import sys; print('ssh: connect to host pi port 22: No route to host'); sys.exit(255)")
    with pytest.raises(DeviceError, match="ended with 255 before the trial did") as caught:
        run_on_device(runner, _program(tmp_path))
    assert caught.value.why == "ssh: connect to host pi port 22: No route to host"


def test_a_connection_that_breaks_in_a_trial_is_no_crash_of_the_kernel(tmp_path: Path) -> None:
    runner = _python("import os; print('edgetrain-trial began', flush=True); os._exit(255)")
    with pytest.raises(DeviceError, match="ended with 255 before the trial did"):
        run_on_device(runner, _program(tmp_path))


@pytest.mark.parametrize("text", ["print('good morning')", "print('edgetrain-trial ended soon')"])
def test_a_command_that_talks_of_something_else_is_no_device(tmp_path: Path, text: str) -> None:
    with pytest.raises(DeviceError, match="ended with 0 before the trial did"):
        run_on_device(_python(text), _program(tmp_path))


def test_a_command_that_talks_without_end_is_cut_short(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="printed too much other output"):
        run_on_device(Runner(command=("yes",)), _program(tmp_path))


def test_a_device_that_hangs_is_left_with_all_that_was_started_for_it(tmp_path: Path) -> None:
    """The command starts another process, as `ssh` does with a proxy, and neither answers."""
    held = tmp_path / "held"
    os.mkfifo(held)
    end = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    text = f"exec 3> {shlex.quote(str(held))}; echo hello; tail -f /dev/null & wait"
    with pytest.raises(DeviceError, match="did not answer in 2 s") as caught:
        run_on_device(Runner(command=("sh", "-c", text), run_s=1.5, way_s=0.5), _program(tmp_path))
    assert caught.value.why == "hello"
    os.set_blocking(end, True)
    assert os.read(end, 1) == b"", "whoever holds the other end is gone"
    os.close(end)


def test_a_program_for_another_machine_does_not_start(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(DeviceError, match="does not start programs for this target") as caught:
        run_on_device(HERE, program)
    assert "--target" in caught.value.fix


def test_a_runner_is_a_command_line() -> None:
    text = "ssh -i 'my key' pi@host"
    assert runner_of(text, "aarch64-linux-gnu") == Runner(command=("ssh", "-i", "my key", "pi@host"))
    assert runner_of(text, "aarch64-linux-gnu").text == shlex.join(shlex.split(text))


@pytest.mark.parametrize("text", ["", "  ", "ssh 'pi"])
def test_what_is_no_command_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError):
        runner_of(text, "aarch64-linux-gnu")


def test_an_emulator_that_is_missing_is_said_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="no emulator for `riscv64-linux-gnu`") as caught:
        runner_of("emulator", "riscv64-linux-gnu")
    assert "qemu-user-static" in caught.value.fix


def test_an_emulator_is_the_one_of_the_instruction_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = tmp_path / "qemu-arm-static"
    found.touch(mode=0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}")
    assert runner_of("emulator", "armv7a-linux-gnueabihf") == Runner(command=(str(found),), is_emulated=True)


def test_a_runner_crosses_to_the_process_that_measures() -> None:
    runner = Runner(command=("ssh", "pi"), is_emulated=True, run_s=3.0)
    assert Runner.from_json(runner.to_json()) == runner
