from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgetrain.errors import DataError, DeviceError, UsageError
from edgetrain.run.files.claim import LOCK, claimed, new_run_folder, resumed_run_folder


def make_run(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(b"")
    return folder


def test_a_new_run_takes_the_first_free_folder(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "report.json")
    make_run(tmp_path / "a-2", "checkpoint.bin")
    make_run(tmp_path / "a-4", "report.json")
    with new_run_folder(None, "a", runs=tmp_path) as folder:
        assert folder == tmp_path / "a-3"


def test_runs_that_begin_at_once_get_a_folder_each(tmp_path: Path) -> None:
    with ExitStack() as claims, ThreadPoolExecutor(8) as threads:
        begun = [threads.submit(claims.enter_context, new_run_folder(None, "a", runs=tmp_path)) for _ in range(40)]
        assert len({claim.result() for claim in begun}) == 40


def test_the_folder_of_a_run_that_goes_on_is_refused(tmp_path: Path) -> None:
    with new_run_folder(tmp_path / "a", "a"):
        with pytest.raises(UsageError, match="going on in another process"), new_run_folder(tmp_path / "a", "a"):
            pass
        with pytest.raises(UsageError, match="going on in another process"), resumed_run_folder(tmp_path / "a"):
            pass


def test_what_finished_while_the_claim_waited_is_not_overwritten(tmp_path: Path) -> None:
    with claimed(tmp_path / "a"):
        (tmp_path / "a" / "report.json").write_bytes(b"")
    with pytest.raises(UsageError, match="has finished"), new_run_folder(tmp_path / "a", "a"):
        pass


def test_a_claim_in_which_nothing_was_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_run_folder(None, "a", runs=tmp_path / "new" / "runs"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_or_was_written_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    with new_run_folder(tmp_path, "a"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with new_run_folder(tmp_path / "a", "a") as folder:
        (folder / "recipe.json").write_bytes(b"")
    assert {path.name for path in folder.iterdir()} == {LOCK, "recipe.json"}


def test_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    code = "import os, signal, sys\nfrom pathlib import Path\nfrom edgetrain.run.files.claim import claimed\n"
    code += "with claimed(Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False).returncode == -9
    assert (tmp_path / "a" / LOCK).exists()
    with new_run_folder(None, "a", runs=tmp_path) as folder:
        assert folder == tmp_path / "a"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_no_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    folder = make_run(tmp_path / "a")
    if kind == "link":
        (folder / LOCK).symlink_to(victim)
    else:
        os.mkfifo(folder / LOCK)
    with pytest.raises(DeviceError, match=LOCK), claimed(folder):
        pass
    assert not victim.exists()


@pytest.mark.parametrize("name", ["program", "tensorboard"])
def test_a_folder_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    folder = make_run(tmp_path / "a")
    (folder / name).symlink_to(tmp_path / "victim")
    with pytest.raises(DeviceError, match=name), claimed(folder):
        pass


def test_a_folder_that_is_not_there_is_not_resumed_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run folder"), resumed_run_folder(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_killed_writers_are_swept_and_files_of_others_are_not(tmp_path: Path) -> None:
    old, young, other = ".job.json.0123456789abcdef.tmp", ".job.json.0000000000000000.tmp", "notes.tmp"
    for name in (old, young, other):
        (tmp_path / name).write_bytes(b"")
    for name in (old, other):
        os.utime(tmp_path / name, (0, 0))
    with claimed(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {LOCK, young, other}
