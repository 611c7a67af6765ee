from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from edgetrain.errors import DeviceError
from edgetrain.run.loop.step_log import VALIDATION, StepRecord, open_log


def record(step: int) -> StepRecord:
    return StepRecord(step=step, epoch=1, loss=0.5, learning_rate=0.1, seconds=0.01)


def write(path: Path, steps: range, *, after_step: int = 0) -> None:
    log = open_log(path, after_step=after_step)
    for step in steps:
        log.write(record(step))
    log.close()


def steps_of(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = open_log(path, after_step=0)
    log.write(record(1))
    assert json.loads(path.read_text()) == {
        "step": 1,
        "epoch": 1,
        "loss": 0.5,
        "learning_rate": 0.1,
        "seconds": 0.01,
    }
    log.close()


@pytest.mark.parametrize("after_step", range(7))
def test_resuming_cuts_the_log_back_to_the_resumed_step(tmp_path: Path, after_step: int) -> None:
    path = tmp_path / "log.jsonl"
    write(path, range(1, 6))
    write(path, range(after_step + 1, 9), after_step=after_step)
    assert steps_of(path) == [*range(1, min(after_step, 5) + 1), *range(after_step + 1, 9)]


@pytest.mark.parametrize(
    "torn",
    ['{"step": 3, "ep', '{"step": 3}', "\0\0\0\0", "\0" * 200_000, '["step"]\n', '{"other": 1}\n'],
    ids=["cut", "no end of line", "zeros", "many zeros", "a list", "another object"],
)
def test_a_torn_line_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "log.jsonl"
    write(path, range(1, 3))
    with path.open("a") as file:
        file.write(torn)
    write(path, range(3, 5), after_step=9)
    assert steps_of(path) == [1, 2, 3, 4]


def test_a_log_that_cannot_be_opened_is_a_device_error(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=str(tmp_path)):
        open_log(tmp_path, after_step=0)


def test_a_disk_that_takes_no_more_is_a_device_error(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.jsonl", after_step=0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        log.write(record(1))
        with pytest.raises(DeviceError) as caught:
            log.write(record(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large" in caught.value.why


@pytest.mark.parametrize(("validated_step", "kept"), [(3, [1, 2, 3, 3]), (0, [1, 2, 3])])
def test_a_validation_that_the_checkpoint_does_not_know_is_cut_off(
    tmp_path: Path, validated_step: int, kept: list[int]
) -> None:
    path = tmp_path / "log.jsonl"
    log = open_log(path, after_step=0)
    for step in range(1, 4):
        log.write(record(step))
    log.write_event(VALIDATION, 3, {"epoch": 1, "loss": 0.25})
    log.close()
    open_log(path, after_step=3, validated_step=validated_step).close()
    assert steps_of(path) == kept


def test_a_log_that_is_a_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "log.jsonl").symlink_to(victim)
    with pytest.raises(DeviceError, match="remove the link"):
        open_log(tmp_path / "log.jsonl", after_step=0)
    assert victim.read_text() == "mine"
