"""`edgetrain budget` against a `fit` in another process that would never end by itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.run.files.checkpoint import NEWEST, read_header
from edgetrain.run.files.history import read_history
from edgetrain.run.loop.step_log import LOG
from edgetrain.units import parse_bytes
from tests.edgetrain.cli.conftest import Command
from tests.edgetrain.cli.live_runs import (
    BESIDE_BYTES,
    KEEP_ALL_BYTES,
    LONG,
    budget_events,
    running,
    surviving_header,
    trained_bytes,
    wait_until,
)

pytestmark = pytest.mark.compile


def test_a_budget_that_moves_both_ways_is_kept_and_changes_no_bit(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    lower = KEEP_ALL_BYTES + BESIDE_BYTES - 1
    run = tmp_path / "runs" / "digits"
    with running(tmp_path, command_environment, "--budget", "2MB") as process:
        shown = json.loads(command("budget", "digits", "--json", cwd=tmp_path).stdout)
        assert (shown["budget_bytes"], shown["planned_peak_bytes"]) == (2_000_000, KEEP_ALL_BYTES)
        lowered = command("budget", "runs/digits", f"{lower}", "--json", cwd=tmp_path)
        assert lowered.returncode == 0, lowered.stderr
        small = json.loads(lowered.stdout)
        assert small["measured_peak_bytes"] <= small["planned_peak_bytes"] < KEEP_ALL_BYTES
        assert small["measured_peak_bytes"] > 0.9 * small["planned_peak_bytes"], "measured before anything ran"
        raised = command("budget", "digits", "1GB", cwd=tmp_path)
        assert raised.returncode == 0, raised.stderr
        assert "budget    1GB" in raised.stdout
        assert "<- runs" in raised.stdout
        assert command("budget", "digits", f"{lower}", "-q", cwd=tmp_path).returncode == 0
        process.send_signal(signal.SIGTERM)
        told = process.communicate()[1]
    assert process.returncode == 130, told
    assert [event["to"]["budget_bytes"] for event in budget_events(run)] == [lower, 10**9, lower]
    taken = read_header(run / NEWEST).progress
    undisturbed = tmp_path / "undisturbed"
    done = command("fit", *LONG, f"train.steps={taken.step}", "--out", undisturbed, "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    losses = [read_history(folder / LOG).losses for folder in (run, undisturbed)]
    assert losses[0] == losses[1]
    assert trained_bytes(run) == trained_bytes(undisturbed)


def test_a_budget_below_the_smallest_is_refused_with_the_smallest_and_the_run_goes_on(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    with running(tmp_path, command_environment, "--budget", "1.3MB"):
        before = json.loads(command("budget", "digits", "--json", cwd=tmp_path).stdout)
        refused = command("budget", "digits", "10kB", cwd=tmp_path)
        assert refused.returncode == 3
        assert "hint: ask for that much; the run continues unchanged inside 1.3MB" in refused.stderr
        least = refused.stderr.partition("the least possible is ")[2].splitlines()[0]
        after = json.loads(command("budget", "digits", "--json", cwd=tmp_path).stdout)
        assert after["step"] > before["step"]
        assert {**after, "step": 0} == {**before, "step": 0}
        enough = json.loads(command("budget", "digits", least, "--json", cwd=tmp_path).stdout)
        assert enough["planned_peak_bytes"] <= enough["budget_bytes"] == parse_bytes(least)


def test_a_resumed_run_keeps_the_budget_it_was_given_while_it_ran(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "digits"
    with running(tmp_path, command_environment) as process:
        wait_until(lambda: (run / NEWEST).exists(), process)
        assert command("budget", "digits", f"{KEEP_ALL_BYTES + BESIDE_BYTES - 1}", cwd=tmp_path).returncode == 0
        process.send_signal(signal.SIGKILL)
        process.wait()
    steps = surviving_header(run).progress.step + 5
    resumed = command("fit", "digits", f"train.steps={steps}", "--resume", "--json", "-q", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    report = json.loads(resumed.stdout)
    assert report["budget_bytes"] == KEEP_ALL_BYTES + BESIDE_BYTES - 1
    assert report["measured_peak_bytes"] < KEEP_ALL_BYTES


def test_a_run_that_is_going_on_cannot_be_resumed_beside_itself(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    with running(tmp_path, command_environment) as process:
        wait_until(lambda: (tmp_path / "runs" / "digits" / NEWEST).exists(), process)
        second = command("fit", "digits", "--resume", cwd=tmp_path)
    assert second.returncode == 2
    assert "error: the run in `runs/digits` is going on in another process" in second.stderr


def test_a_run_busy_with_a_long_step_is_shown_as_it_was_and_the_request_stands(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    with running(tmp_path, command_environment) as process:
        os.kill(process.pid, signal.SIGSTOP)
        shown = command("budget", "digits", "--timeout", "100ms", cwd=tmp_path)
        assert shown.returncode == 0
        assert "the run is busy; this was its state after step" in shown.stderr
        asked = command("budget", "digits", "2MB", "--timeout", "100ms", cwd=tmp_path)
        assert asked.returncode == 6
        assert "error: the run has not answered in 0.1 s" in asked.stderr
        os.kill(process.pid, signal.SIGCONT)
        log = tmp_path / "runs" / "digits" / "log.jsonl"
        wait_until(lambda: '"budget_bytes": 2000000' in log.read_text(), process)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("digits",), "error: there is no run `digits`"),
        ((".", "1MB"), "error: `.` is not running"),
        ((".", "much"), "error: `.` is not running"),
        ((), "error: `edgetrain budget` needs RUN [SIZE]"),
        (("a", "1MB", "2MB"), "does not know what to do with `2MB`"),
    ],
)
def test_what_makes_no_sense_is_said(words: tuple[str, ...], said: str, command: Command, tmp_path: Path) -> None:
    done = command("budget", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
