"""Runs of many steps: what is kept in memory and in checkpoints is as large after the last step as after a few."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.run.files.checkpoint import BEST, NEWEST
from edgetrain.run.files.sessions import SessionKeeper
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.train import train
from edgetrain.run.sensors.energy import EnergyMeter
from tests.edgetrain.run.small_run import SETTINGS, ShuffledRows, SoftmaxEngine

EPOCHS = 120
LONG = replace(SETTINGS, epochs=EPOCHS, checkpoint_steps=5)
FEW, FIRST = 12, 5  # in the first epochs something may be made once


class Sizes(Callback):
    """What the process and the checkpoint hold after some epochs."""

    def __init__(self, out: Path, epochs: tuple[int, ...]) -> None:
        self._out, self._epochs = out, epochs
        self.memory_bytes: list[int] = []
        self.file_bytes: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if epoch not in self._epochs:
            return
        gc.collect()
        self.memory_bytes.append(tracemalloc.get_traced_memory()[0])
        self.file_bytes.append(max((self._out / name).stat().st_size for name in (NEWEST, BEST)))


@pytest.mark.slow
def test_neither_memory_nor_checkpoints_grow_with_the_steps(tmp_path: Path) -> None:
    """10 steps an epoch: 11 bytes a step would be 10 kB in the file, and 16 bytes a step 14 kB in memory."""
    sizes = Sizes(tmp_path, epochs=(EPOCHS // 4, EPOCHS))
    source = ShuffledRows(rows=40)
    tracemalloc.start()
    try:
        train(SoftmaxEngine(), source, LONG, out=tmp_path, callbacks=(sizes,))
    finally:
        tracemalloc.stop()
    assert abs(sizes.file_bytes[1] - sizes.file_bytes[0]) < 200
    assert sizes.memory_bytes[1] - sizes.memory_bytes[0] < 8_000


class Garbage(Callback):
    """How many objects that refer to each other each epoch has left behind."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.found.append(gc.collect())


def test_an_epoch_leaves_no_garbage_that_has_to_be_looked_for(tmp_path: Path) -> None:
    garbage = Garbage()
    keeper = SessionKeeper(tmp_path / "sessions.json", (), EnergyMeter(None), joules_per_step=1.0)
    gc.disable()
    try:
        train(
            SoftmaxEngine(), ShuffledRows(rows=40), replace(LONG, epochs=FEW), out=tmp_path, callbacks=(keeper, garbage)
        )
    finally:
        gc.enable()
    assert garbage.found[FIRST:] == [0] * (FEW - FIRST)


class EpochLosses(Callback):
    def __init__(self) -> None:
        self.losses: dict[int, float] = {}

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.losses[epoch] = logs["loss"]


class StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, step: int, logs: Logs) -> None:
        self.stop_training = step >= self._step


@pytest.mark.parametrize("stop_step", [1, 9, 10, 11, 15, 19])
def test_the_mean_loss_of_an_epoch_has_the_same_bits_after_a_stop_within_it(tmp_path: Path, stop_step: int) -> None:
    chosen = replace(SETTINGS, epochs=2)
    heard = []
    for name, stops in (("whole", (None,)), ("parts", (stop_step, None))):
        epochs = EpochLosses()
        for stop in stops:
            callbacks: tuple[Callback, ...] = (epochs,) if stop is None else (epochs, StopAfter(stop))
            train(
                SoftmaxEngine(),
                ShuffledRows(rows=40),
                chosen,
                out=tmp_path / name,
                callbacks=callbacks,
                resume=stop is None and len(stops) > 1,
            )
        heard.append(epochs.losses)
    assert heard[0] == heard[1]
