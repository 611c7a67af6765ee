"""`fit --adapt` in a control group of its own, whose limit the test lowers: the shortage is the system's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgetrain.run.files.checkpoint import NEWEST, read_header
from tests.edgetrain.cli.conftest import Command
from tests.edgetrain.cli.live_runs import KEEP_ALL_BYTES, LONG, budget_events, running, trained_bytes, wait_until

pytestmark = pytest.mark.compile

_CGROUPS = Path("/sys/fs/cgroup")
_SHORT_BYTES = 16 << 20  # half of the reserve below which `--adapt` calls memory short


@dataclass(frozen=True, kw_only=True)
class Group:
    """A control group for memory, made inside the one that this process is in."""

    folder: Path
    limit: Path
    use: Path

    def set_limit(self, left_bytes: int) -> None:
        self.limit.write_text(str(int(self.use.read_text()) + left_bytes))


def _new_group() -> Group:
    """Raises `OSError` where this process may not make one, or the controller of memory is not there."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    if "memory" in paths:
        root, limit, use = _CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
    else:
        root, limit, use = _CGROUPS, "memory.max", "memory.current"
    folder = root / paths.get("memory", paths.get("", "/")).lstrip("/") / f"edgetrain-test-{os.getpid()}"
    folder.mkdir()
    group = Group(folder=folder, limit=folder / limit, use=folder / use)
    try:
        group.use.read_text()
    except OSError:
        folder.rmdir()
        raise
    return group


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        made = _new_group()
    except OSError as error:
        pytest.skip(f"needs a control group for memory, and none can be made here: {error}")
    yield made
    made.folder.rmdir()


def test_a_control_group_that_runs_short_makes_the_run_smaller_and_changes_no_bit(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path, group: Group
) -> None:
    run = tmp_path / "runs" / "digits"
    inside = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group.folder))
    with running(tmp_path, command_environment, "--adapt", before=inside) as process:
        assert not budget_events(run), "it went down before memory was short"
        group.set_limit(_SHORT_BYTES)
        wait_until(lambda: bool(budget_events(run)), process)
        process.send_signal(signal.SIGTERM)
        told = process.communicate()[1]
    assert process.returncode == 130, told
    first = budget_events(run)[0]
    assert first["cause"] == "pressure"
    assert first["to"]["planned_peak_bytes"] < KEEP_ALL_BYTES == first["from"]["planned_peak_bytes"]
    steps = read_header(run / NEWEST).progress.step
    undisturbed = tmp_path / "undisturbed"
    done = command("fit", *LONG, f"train.steps={steps}", "--out", undisturbed, "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert trained_bytes(run) == trained_bytes(undisturbed)
