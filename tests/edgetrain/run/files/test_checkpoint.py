from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import resource
import shutil
import subprocess
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import DataError, DeviceError
from edgetrain.files import atomic_file as durable
from edgetrain.run.files import checkpoint
from edgetrain.run.files.checkpoint import (
    NEWEST,
    PREVIOUS,
    Header,
    Progress,
    Validation,
    load_checkpoint,
    load_run_checkpoint,
    read_header,
    save_checkpoint,
    save_run_checkpoint,
)
from edgetrain.run.loop.early_stopping import Best
from edgetrain.run.loop.running import ExactSum
from edgetrain.schema import LARGEST_INTEGER

PROGRAM = "0123456789ab" + "c" * 52
PROGRESS = Progress(
    step=7,
    position=(1, 2),
    steps_per_epoch=5,
    seed=3,
    epoch_loss=(2.5, 1e-17),
    validation=Validation(epoch=1, step=5, metrics={"loss": 0.7, "accuracy": 0.5}),
    best=Best(value=0.7, step=5, epoch=1, stale_epochs=0),
)
PAYLOAD = bytes(range(200)) * 3


def saved_file(folder: Path, payload: bytes = PAYLOAD, progress: Progress = PROGRESS) -> Path:
    path = folder / NEWEST
    save_checkpoint(path, memoryview(payload), progress, program_sha256=PROGRAM)
    return path


def assert_refused_untouched(path: Path, match: str | None = None) -> None:
    memory = bytearray(b"\xaa" * len(PAYLOAD))
    with pytest.raises(DataError, match=match) as caught:
        load_checkpoint(path, memoryview(memory), program_sha256=PROGRAM)
    assert memory == b"\xaa" * len(PAYLOAD)
    assert str(path) in caught.value.what
    assert caught.value.why
    assert caught.value.fix


COUNTS = st.integers(1, LARGEST_INTEGER)


@settings(max_examples=30, deadline=None)
@given(
    payload=st.binary(max_size=300),
    parts=st.lists(st.floats(allow_nan=False, allow_infinity=False)),
    best=st.none() | st.builds(Best, value=st.floats(-1, 1), step=COUNTS, epoch=COUNTS),
)
def test_what_is_saved_is_what_is_loaded(payload: bytes, parts: list[float], best: Best | None) -> None:
    progress = Progress(step=4, position=(0, 1), steps_per_epoch=9, seed=0, epoch_loss=tuple(parts), best=best)
    memory = bytearray(len(payload))
    with tempfile.TemporaryDirectory() as folder:
        path = saved_file(Path(folder), payload, progress)
        assert load_checkpoint(path, memoryview(memory), program_sha256=PROGRAM) == progress
    assert memory == payload


def test_arrays_of_any_type_are_saved_as_their_bytes(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32)
    path = tmp_path / NEWEST
    save_checkpoint(path, values.data, PROGRESS, program_sha256=PROGRAM)
    loaded = np.zeros_like(values)
    load_checkpoint(path, loaded.data, program_sha256=PROGRAM)
    np.testing.assert_array_equal(loaded, values)


@pytest.mark.parametrize("version", [2, 3])
def test_a_checkpoint_that_lists_all_losses_is_read(tmp_path: Path, version: int) -> None:
    """Of them only the epoch that is going on counts, and of the validations the last; the log gets the others."""
    losses, validations = [9.0, 8.0, 7.0, 6.0, 5.0, 0.1, 0.2], [Validation(epoch=1, step=5, metrics={"loss": 0.7})]
    header = file_of_format(tmp_path, version, losses, validations)
    total = ExactSum()
    total.add(0.1)
    total.add(0.2)
    best = Best(value=0.7, step=5, epoch=1, loss=None if version == 2 else 0.7)
    assert header.progress == Progress(
        step=7,
        position=(1, 2),
        steps_per_epoch=5,
        seed=3,
        epoch_loss=total.parts,
        validation=validations[-1],
        best=best,
        earlier=tuple(validations),
    )


def file_of_format(folder: Path, version: int, losses: list[float], validations: list[Validation]) -> Header:
    """What version 0.1 (format 2) or 0.2 (format 3) left, read again."""
    best = {"value": 0.7, "step": 5, "epoch": 1, "stale_epochs": 0} | ({} if version == 2 else {"loss": 0.7})
    data = {
        "format": f"edgetrain.checkpoint/{version}",
        "program_sha256": PROGRAM,
        "payload_bytes": len(PAYLOAD),
        "progress": {
            "step": len(losses),
            "position": [1, 2],
            "steps_per_epoch": 5,
            "seed": 3,
            "losses": base64.b64encode(np.array(losses, "<f8").tobytes()).decode(),
            "validations": [asdict(validation) for validation in validations],
            "best": best,
        },
    }
    text = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    content = b"EDGETRN\n" + len(text).to_bytes(8, "little") + text + PAYLOAD
    (folder / NEWEST).write_bytes(content + hashlib.sha256(content).digest())
    return read_header(folder / NEWEST)


def test_the_same_state_gives_the_same_file(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files.append(saved_file(tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_a_file_cut_at_any_length_is_refused(tmp_path: Path) -> None:
    path = saved_file(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert_refused_untouched(path)


def test_a_file_with_any_byte_changed_is_refused(tmp_path: Path) -> None:
    path = saved_file(tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        assert_refused_untouched(path)


def test_a_file_with_something_behind_its_end_is_refused(tmp_path: Path) -> None:
    path = saved_file(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    assert_refused_untouched(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert_refused_untouched(tmp_path / NEWEST)


def test_a_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NEWEST
    save_checkpoint(path, memoryview(PAYLOAD), PROGRESS, program_sha256="f" * 64)
    assert_refused_untouched(path, "another program")


def test_a_checkpoint_of_another_size_is_refused(tmp_path: Path) -> None:
    assert_refused_untouched(saved_file(tmp_path, PAYLOAD[:-1]), "another program")


def test_a_checkpoint_of_a_later_format_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "FORMAT", "edgetrain.checkpoint/9")
        path = saved_file(tmp_path)
    with pytest.raises(DataError) as caught:
        read_header(path)
    assert "edgetrain.checkpoint/9" in caught.value.why


def test_the_header_is_canonical_json(tmp_path: Path) -> None:
    text = Header(program_sha256=PROGRAM, payload_bytes=4, progress=PROGRESS).to_json()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    assert json.loads(text)["format"] == "edgetrain.checkpoint/4"
    assert text.encode() in saved_file(tmp_path, b"four").read_bytes()


def test_saving_and_loading_copy_no_more_than_a_few_pieces(tmp_path: Path) -> None:
    payload = bytearray(32 << 20)
    tracemalloc.start()
    path = tmp_path / NEWEST
    save_checkpoint(path, memoryview(payload), PROGRESS, program_sha256=PROGRAM)
    load_checkpoint(path, memoryview(payload), program_sha256=PROGRAM)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


class TestTwoCheckpoints:
    """`out` holds step 1 as the previous and step 2 as the newest."""

    @pytest.fixture
    def out(self, tmp_path: Path) -> Path:
        for step in (1, 2):
            self.save(tmp_path, step)
        return tmp_path

    @staticmethod
    def save(out: Path, step: int) -> None:
        progress = Progress(step=step, position=(0, step), steps_per_epoch=9, seed=0)
        save_run_checkpoint(out, memoryview(bytes([step]) * 100), progress, program_sha256=PROGRAM)

    @staticmethod
    def load(out: Path) -> tuple[int, bytes]:
        memory = bytearray(100)
        progress = load_run_checkpoint(out, memoryview(memory), program_sha256=PROGRAM)
        return progress.step, bytes(memory)

    def test_the_newest_is_loaded(self, out: Path) -> None:
        assert self.load(out) == (2, b"\2" * 100)
        assert read_header(out / PREVIOUS).progress.step == 1

    def test_a_damaged_newest_gives_way_to_the_previous_with_a_warning(
        self, out: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (out / NEWEST).write_bytes((out / NEWEST).read_bytes()[:-40])
        with caplog.at_level(logging.WARNING):
            assert self.load(out) == (1, b"\1" * 100)
        assert NEWEST in caplog.text
        assert PREVIOUS in caplog.text

    def test_after_a_fall_back_no_save_replaces_the_good_by_the_damaged(self, out: Path) -> None:
        (out / NEWEST).write_bytes(b"damaged")
        self.load(out)
        self.save(out, 3)
        assert read_header(out / NEWEST).progress.step == 3
        assert read_header(out / PREVIOUS).progress.step == 1

    def test_a_missing_newest_gives_way_to_the_previous(self, out: Path) -> None:
        """A power cut between the two renames of a save leaves this."""
        (out / NEWEST).unlink()
        assert self.load(out) == (1, b"\1" * 100)

    def test_two_damaged_ones_are_both_named(self, out: Path) -> None:
        for name in (NEWEST, PREVIOUS):
            (out / name).write_bytes(b"damaged")
        with pytest.raises(DataError) as caught:
            self.load(out)
        assert str(out / NEWEST) in caught.value.what
        assert str(out / PREVIOUS) in caught.value.what

    def test_another_program_is_never_passed_over_for_the_previous(self, out: Path) -> None:
        with pytest.raises(DataError, match="another program"):
            load_run_checkpoint(out, memoryview(bytearray(100)), program_sha256="f" * 64)
        assert read_header(out / NEWEST).progress.step == 2

    @pytest.mark.parametrize("missing_bytes", [1, 32, 33, 132, 133, 300])
    def test_a_full_disk_leaves_both_as_they_were(
        self, out: Path, missing_bytes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        room = (out / NEWEST).stat().st_size - missing_bytes
        monkeypatch.setattr(durable, "open_for_writing", lambda path: FullDisk(path, room))
        with pytest.raises(DeviceError) as caught:
            self.save(out, 3)
        assert "No space left" in caught.value.why
        assert "free space" in caught.value.fix
        assert sorted(p.name for p in out.iterdir()) == sorted((NEWEST, PREVIOUS))
        assert self.load(out) == (2, b"\2" * 100)
        assert read_header(out / PREVIOUS).progress.step == 1

    def test_a_file_size_limit_leaves_both_as_they_were(self, out: Path) -> None:
        """The real thing without root: the kernel refuses to let the file grow."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
        try:
            with pytest.raises(DeviceError, match=NEWEST):
                self.save(out, 3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert self.load(out) == (2, b"\2" * 100)


class FullDisk:
    """A file on a disk with `room` bytes left."""

    def __init__(self, path: Path, room: int) -> None:
        self._file = path.open("wb")
        self._room = room

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(28, "No space left on device")
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root and `mount`")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full_keeps_the_old_checkpoint(small_disk: Path) -> None:
    small, large = bytes(100), bytes(1 << 20)
    save_run_checkpoint(small_disk, memoryview(small), PROGRESS, program_sha256=PROGRAM)
    with pytest.raises(DeviceError) as caught:
        save_run_checkpoint(small_disk, memoryview(large), PROGRESS, program_sha256=PROGRAM)
    assert "No space left" in caught.value.why
    assert [p.name for p in small_disk.iterdir()] == [NEWEST]
    assert read_header(small_disk / NEWEST).payload_bytes == 100


def test_a_file_that_changes_between_its_two_readings_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved_file(tmp_path)
    verify = checkpoint._verify

    def verify_then_damage(file: BinaryIO) -> Header:
        header = verify(file)
        whole = path.read_bytes()
        with path.open("r+b") as other:
            other.write(whole[:-50] + b"!" + whole[-49:])
        return header

    monkeypatch.setattr(checkpoint, "_verify", verify_then_damage)
    with pytest.raises(DeviceError, match="although its check sum was right"):
        load_checkpoint(path, memoryview(bytearray(len(PAYLOAD))), program_sha256=PROGRAM)


@pytest.mark.parametrize(
    "change",
    [
        {"step": "1"},
        {"step": True},
        {"step": -1},
        {"step": 10**30},
        {"best": {"value": 1.0, "step": 10**30, "epoch": 1, "stale_epochs": 0}},
        {"position": [0]},
        {"position": ["a", 1]},
        {"position": 5},
        {"steps_per_epoch": 0},
        {"seed": None},
        {"epoch_loss": 5},
        {"validation": {"epoch": 1, "step": "x", "metrics": {}}},
        {"validation": 3},
        {"best": {"value": "high", "step": 1, "epoch": 1}},
        {"best": [1]},
    ],
)
def test_a_header_that_the_check_sum_vouches_for_is_still_read_with_care(
    change: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Header(program_sha256=PROGRAM, payload_bytes=len(PAYLOAD), progress=PROGRESS).to_json()
    header = json.loads(text)
    header["progress"] |= change
    monkeypatch.setattr(Header, "to_json", lambda _header: json.dumps(header))
    path = saved_file(tmp_path)
    with pytest.raises(DataError, match="cannot be used"):
        read_header(path)
