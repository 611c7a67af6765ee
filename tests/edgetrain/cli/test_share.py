"""Jobs in processes of their own that share one budget."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.run.files.checkpoint import NEWEST, read_header
from edgetrain.units import show_bytes
from tests.edgetrain.cli.conftest import PLANNABLE, SHORT, Command
from tests.edgetrain.cli.live_runs import (
    BESIDE_BYTES,
    KEEP_ALL_BYTES,
    LONG,
    budget_events,
    running,
    trained_bytes,
    wait_until,
)

pytestmark = pytest.mark.compile

LEAST_BYTES = 930_000 + BESIDE_BYTES  # enough for a plan of that recipe with all parameters in memory
ENOUGH_FOR_TWO = 2 * (LEAST_BYTES + KEEP_ALL_BYTES + BESIDE_BYTES) // 2


def test_two_jobs_stay_inside_one_budget_and_the_first_grows_again_when_the_second_is_killed(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    share = ("--share", f"two={ENOUGH_FOR_TWO}")
    first = tmp_path / "runs" / "first"
    with running(tmp_path, command_environment, *share, name="first") as process:
        alone = json.loads(command("budget", "first", "--json", cwd=tmp_path).stdout)
        assert alone["planned_peak_bytes"] == KEEP_ALL_BYTES
        with running(tmp_path, command_environment, *share, name="second") as other:
            pair = [json.loads(command("budget", n, "--json", cwd=tmp_path).stdout) for n in ("first", "second")]
            assert sum(one["planned_peak_bytes"] for one in pair) <= ENOUGH_FOR_TWO
            assert pair[0]["planned_peak_bytes"] < KEEP_ALL_BYTES
            assert pair[0]["measured_peak_bytes"] <= pair[0]["planned_peak_bytes"]
            other.send_signal(signal.SIGKILL)
            other.wait()
            wait_until(lambda: len(budget_events(first)) == 2, process)
        process.send_signal(signal.SIGTERM)
        told = process.communicate()[1]
    assert process.returncode == 130, told
    down, up = budget_events(first)
    assert (down["cause"], up["cause"]) == ("share", "share")
    assert down["to"]["planned_peak_bytes"] < KEEP_ALL_BYTES == up["to"]["planned_peak_bytes"]
    steps = read_header(first / NEWEST).progress.step
    undisturbed = tmp_path / "undisturbed"
    done = command("fit", *LONG, f"train.steps={steps}", "--out", undisturbed, "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert trained_bytes(first) == trained_bytes(undisturbed)


def test_a_job_for_which_there_is_no_room_says_who_holds_it_or_waits(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    share = ("--share", f"one={LEAST_BYTES * 3 // 2}")
    with running(tmp_path, command_environment, *share, name="first") as process:
        refused = command("fit", *SHORT, PLANNABLE, *share, "--out", "runs/second", cwd=tmp_path)
        assert refused.returncode == 3
        assert (
            f"error: no room in `one`: it is {show_bytes(LEAST_BYTES * 3 // 2)}, and all its jobs need"
            in refused.stderr
        )
        assert f"`{tmp_path / 'runs' / 'first'}` (process {process.pid}) holds" in refused.stderr
        assert not (tmp_path / "runs" / "second").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        waited = command("fit", *SHORT, PLANNABLE, *share, "--wait", "--out", "runs/second", "--json", cwd=tmp_path)
        assert waited.returncode == 0, waited.stderr
    report = json.loads(waited.stdout)
    assert report["is_within_budget"]
    assert report["planned_peak_bytes"] == KEEP_ALL_BYTES
    resumed = json.loads((tmp_path / "runs" / "second" / "job.json").read_text())
    assert (resumed["share"], resumed["weight"]) == (share[1], 1)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--share", "desk"), "error: `desk` is not a share"),
        (("--share", "d" * 101 + "=2GB"), "is not a share"),
        (("--threads", "9" * 5000), "has more than 18 digits"),
        (("--threads", "65"), "error: a program cannot run on 65 threads"),
        (("data.source=",), "error: `data.source` is empty"),
        (("--wait",), "error: --wait needs --share"),
        (("--weight", "2"), "error: --weight needs --share"),
    ],
)
def test_shares_that_make_no_sense_are_refused(
    flags: tuple[str, ...], said: str, command: Command, tmp_path: Path
) -> None:
    done = command("fit", *SHORT, *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_run_that_adapts_has_a_ladder_and_trains_to_the_same_bits(command: Command, tmp_path: Path) -> None:
    reports = []
    for flags in ((), ("--adapt",)):
        done = command("fit", *SHORT, *flags, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
    (sizes,) = re.findall(r"plans that the run can switch to: (.*)", done.stderr)
    assert len(sizes.split(", ")) > 2
    assert reports[0]["parameters_sha256"] == reports[1]["parameters_sha256"]
