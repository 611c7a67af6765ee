"""Runs that are stopped, signalled or killed at any point go on to the same bits; what is another run is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import DataError, EdgetrainError, InterruptedRunError, UsageError
from edgetrain.run.files.checkpoint import NEWEST, PREVIOUS, read_header
from edgetrain.run.files.epochs import EPOCHS
from edgetrain.run.files.history import RunHistory, read_history
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.step_log import LOG
from edgetrain.run.loop.train import train
from tests.edgetrain.run.small_run import (
    SETTINGS,
    STEPS,
    STEPS_PER_EPOCH,
    VALIDATED_STEPS,
    ShuffledRows,
    SoftmaxEngine,
    logged_steps,
    logged_validations,
    run,
)


class StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, step: int, logs: Logs) -> None:
        self.stop_training = step >= self._step


class SignalAt(Callback):
    def __init__(self, step: int, number: signal.Signals) -> None:
        self._step = step
        self._number = number

    def on_step_end(self, step: int, logs: Logs) -> None:
        if step == self._step:
            signal.raise_signal(self._number)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("stop_step", range(1, STEPS + 1))
def test_resuming_after_any_step_gives_the_same_bits(tmp_path: Path, stop_step: int, accumulate: int) -> None:
    chosen = replace(SETTINGS, accumulate=accumulate)
    whole_bits, whole = run(tmp_path / "whole", chosen)
    run(tmp_path / "parts", chosen, callbacks=(StopAfter(stop_step),))
    parts_bits, parts = run(tmp_path / "parts", chosen, resume=True)
    assert parts_bits == whole_bits
    assert parts.progress == whole.progress
    assert logged_steps(tmp_path / "parts") == list(range(1, STEPS + 1))
    assert logged_validations(tmp_path / "parts") == VALIDATED_STEPS


@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, STEPS), max_size=4), seed=st.integers(0, 3), every=st.integers(1, 5))
def test_any_number_of_stops_gives_the_same_bits(stops: list[int], seed: int, every: int) -> None:
    chosen = replace(SETTINGS, seed=seed, checkpoint_steps=every)
    with tempfile.TemporaryDirectory() as folder:
        whole_bits, whole = run(Path(folder) / "whole", chosen)
        out = Path(folder) / "parts"
        for number, stop in enumerate(sorted(stops)):
            run(out, chosen, resume=number > 0, callbacks=(StopAfter(stop),))
        parts_bits, parts = run(out, chosen, resume=bool(stops))
    assert parts_bits == whole_bits
    assert parts.progress == whole.progress


def run_and_die(out: Path, event: int, *, resume: bool) -> bool:
    """Trains in a child process that ends without any clean-up at its `event`-th call to the engine or the disk.

    Returns whether the child died, that is, whether the run has that many events.
    """
    child = os.fork()
    if child == 0:
        events = 0

        def count(*_: object) -> None:
            nonlocal events
            events += 1
            if events == event:
                os._exit(9)

        fsync, rename = os.fsync, Path.replace

        def counted_fsync(descriptor: int) -> None:
            count()
            fsync(descriptor)

        def counted_replace(path: Path, target: Path) -> Path:
            count()
            return rename(path, target)

        os.fsync = counted_fsync  # type: ignore[assignment]
        Path.replace = counted_replace  # type: ignore[assignment, method-assign]
        try:
            train(SoftmaxEngine(before_call=count), ShuffledRows(), SETTINGS, out=out, resume=resume)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.slow
def test_a_run_killed_at_any_point_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole_bits, whole = run(tmp_path / "whole")
    event, has_died = 0, True
    while has_died:
        event += 1
        out = tmp_path / str(event)
        has_died = run_and_die(out, event, resume=False)
        can_resume = (out / NEWEST).exists() or (out / PREVIOUS).exists()
        bits, outcome = run(out, resume=can_resume)
        assert bits == whole_bits, f"killed at event {event}"
        assert outcome.progress == whole.progress, f"killed at event {event}"
        assert logged_steps(out) == list(range(1, STEPS + 1)), f"killed at event {event}"
        assert logged_validations(out) == VALIDATED_STEPS, f"killed at event {event}"
        assert (out / EPOCHS).read_bytes() == (tmp_path / "whole" / EPOCHS).read_bytes(), f"killed at event {event}"
    assert event > 2 * STEPS  # else the loop above tried next to nothing


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 2, STEPS_PER_EPOCH, STEPS])
def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(
    tmp_path: Path, step: int, number: signal.Signals
) -> None:
    whole_bits, whole = run(tmp_path / "whole")
    handler = signal.getsignal(number)
    with pytest.raises(InterruptedRunError) as caught:
        run(tmp_path / "cut", callbacks=(SignalAt(step, number),))
    assert caught.value.exit_code == 130
    assert number.name in caught.value.what
    assert f"step {step} of {STEPS}" in caught.value.what
    assert "edgetrain fit --resume --out here" in caught.value.fix
    assert read_header(tmp_path / "cut" / NEWEST).progress.step == step
    assert signal.getsignal(number) is handler
    bits, outcome = run(tmp_path / "cut", resume=True)
    assert bits == whole_bits
    assert outcome.progress == whole.progress


def test_a_signal_during_validation_keeps_the_validation_owed(tmp_path: Path) -> None:
    whole_bits, whole = run(tmp_path / "whole")
    calls = iter(range(1000))

    def interrupt_second_evaluation(function: str) -> None:
        if function == "evaluate" and next(calls) == 1:
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "cut"
    with pytest.raises(InterruptedRunError):
        train(SoftmaxEngine(before_call=interrupt_second_evaluation), ShuffledRows(), SETTINGS, out=out)
    assert read_header(out / NEWEST).progress.validation is None
    bits, outcome = run(out, resume=True)
    assert bits == whole_bits
    assert outcome.progress == whole.progress
    assert logged_validations(out) == VALIDATED_STEPS


@pytest.mark.parametrize("stop_step", [2, 3, 7, 9])
def test_a_run_of_an_older_version_goes_on_to_the_same_bits_and_history(tmp_path: Path, stop_step: int) -> None:
    """Its checkpoint lists every loss and every validation, and its log has no line for a validation."""
    whole_bits, whole = run(tmp_path / "whole")
    out = tmp_path / "parts"
    run(out, callbacks=(StopAfter(stop_step),))
    history = read_history(out / LOG)
    lines = [line for line in (out / LOG).read_text().splitlines() if '"event"' not in line]
    (out / LOG).write_text("".join(f"{line}\n" for line in lines))
    write_as_format_3(out / NEWEST, history)
    bits, outcome = run(out, resume=True)
    assert bits == whole_bits
    assert outcome.progress == whole.progress
    assert read_history(out / LOG) == read_history(tmp_path / "whole" / LOG)


def write_as_format_3(path: Path, history: RunHistory) -> None:
    content = path.read_bytes()
    header_end = 16 + int.from_bytes(content[8:16], "little")
    data = json.loads(content[16:header_end])
    data["format"] = "edgetrain.checkpoint/3"
    del data["progress"]["epoch_loss"], data["progress"]["validation"]
    if data["progress"]["best"] is not None:
        del data["progress"]["best"]["ties"]
    data["progress"]["losses"] = base64.b64encode(np.array(history.losses, "<f8").tobytes()).decode()
    data["progress"]["validations"] = [asdict(validation) for validation in history.validations]
    text = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    body = content[:8] + len(text).to_bytes(8, "little") + text + content[header_end:-32]
    path.write_bytes(body + hashlib.sha256(body).digest())


@pytest.mark.parametrize(
    ("change", "rows", "error", "match"),
    [
        ({"seed": 1}, 14, UsageError, "seed 0"),
        ({"program_sha256": "cd" * 32}, 14, DataError, "another program"),
        ({}, 24, DataError, "3 steps in an epoch"),
    ],
)
def test_resuming_something_else_is_refused(
    tmp_path: Path, change: Mapping[str, str], rows: int, error: type[EdgetrainError], match: str
) -> None:
    run(tmp_path)
    with pytest.raises(error, match=match):
        train(
            SoftmaxEngine(),
            ShuffledRows(rows=rows),
            replace(SETTINGS, **change),  # type: ignore[arg-type]
            out=tmp_path,
            resume=True,
        )


def test_resuming_from_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=NEWEST):
        run(tmp_path, resume=True)
