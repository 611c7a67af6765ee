"""Claims about temporary folders: gone at the end, swept when their owner was killed, never anybody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgetrain.files.atomic_folder import scratch_directory, sweep_beside
from edgetrain.files.scratch import OWNER, owned_folder, scratch_folder, sweep, sweep_scratch_folders
from edgetrain_tuner import disk

_OLD = 1_000_000_000


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, as a process would see it that is told of it by TMPDIR."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed_in(code: str, temporary: Path) -> None:
    """Runs a process that makes a folder and is then killed."""
    script = f"from edgetrain.files.scratch import *\nfrom pathlib import Path\nimport os\n{code}"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has made its folder
    process.send_signal(signal.SIGKILL)
    process.wait()
    for path in temporary.iterdir():
        os.utime(path, (_OLD, _OLD))


WAIT = "print('made', flush=True); import signal; signal.pause()"


@pytest.mark.parametrize("call", ["make_folder", "open_file", "lock"])
def test_a_folder_that_cannot_be_finished_is_gone(call: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, call, refuse)
    with pytest.raises(OSError, match="No space"), scratch_folder("test"):
        pytest.fail("there is no such folder")
    assert not list(temporary.iterdir())


def test_a_folder_is_gone_at_the_end(temporary: Path) -> None:
    with scratch_folder("test") as folder:
        (folder / "file").write_text("x")
    assert not list(temporary.iterdir())


def test_what_a_killed_process_left_is_swept(temporary: Path) -> None:
    killed_in(f"with scratch_folder('test') as folder:\n    (folder / 'file').write_text('x'); {WAIT}", temporary)
    assert len(list(temporary.iterdir())) == 1
    assert sweep_scratch_folders() == 1
    assert not list(temporary.iterdir())


def test_what_a_living_process_holds_is_left(temporary: Path) -> None:
    with scratch_folder("test") as folder:
        os.utime(folder.parent, (_OLD, _OLD))
        assert sweep_scratch_folders() == 0
        assert folder.is_dir()


def test_a_young_folder_without_an_owner_is_left(temporary: Path) -> None:
    (temporary / "edgetrain-new-x").mkdir()
    assert sweep_scratch_folders() == 0
    os.utime(temporary / "edgetrain-new-x", (_OLD, _OLD))
    assert sweep_scratch_folders() == 1


def test_links_and_files_are_never_swept(temporary: Path) -> None:
    kept = temporary / "kept"
    kept.mkdir()
    (kept / OWNER).touch()
    (temporary / "edgetrain-a-link").symlink_to(kept)
    (temporary / "edgetrain-a-file").touch()
    os.utime(kept, (_OLD, _OLD))
    assert sweep_scratch_folders() == 0
    assert kept.is_dir()


def test_what_another_user_owns_is_left(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_in(f"with scratch_folder('test') as folder:\n    {WAIT}", temporary)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert sweep_scratch_folders() == 0


def test_unfinished_folders_beside_a_place_are_swept_and_the_place_stays(temporary: Path) -> None:
    (temporary / "program").mkdir()
    with scratch_directory(temporary / "program"):
        assert sweep_beside(temporary / "program") == 0
    killed_in(f"with owned_folder(Path('{temporary}'), '.program-') as folder:\n    {WAIT}", temporary)
    assert sweep_beside(temporary / "program") == 1
    assert [path.name for path in temporary.iterdir()] == ["program"]


def test_what_is_left_in_a_held_folder_is_swept_however_young_and_what_is_in_use_is_not(temporary: Path) -> None:
    place = temporary / "program"
    killed_in(f"with owned_folder(Path('{temporary}'), '.program-') as folder:\n    {WAIT}", temporary)
    (temporary / ".program-without-owner").mkdir()
    for path in temporary.iterdir():
        os.utime(path)
    with scratch_directory(place) as in_use:
        assert sweep_beside(place) == 0
        assert sweep_beside(place, is_held=True) == 2
        assert in_use.is_dir()


def test_a_folder_that_goes_meanwhile_is_no_error(temporary: Path) -> None:
    with owned_folder(temporary, "edgetrain-x-") as folder:
        gone = folder.parent
    assert sweep([gone]) == 0
