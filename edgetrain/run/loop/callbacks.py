"""Hooks into the training loop, in the shape Keras made familiar."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from io import StringIO
from typing import Any, TextIO

from edgetrain.units import show_seconds

Logs = Mapping[str, float]


class Callback:
    """Override what you need. Set `stop_training` at any time to end the run after the current step.

    Steps and epochs count from 1. A run that resumes begins with `on_train_begin` again, its `step` where it left
    off. `on_train_end` is called however the run ends, so that a callback can let go of what it holds.
    """

    stop_training: bool = False

    def on_train_begin(self, logs: Logs) -> None:
        """`logs`: `step` (done before), `steps` (in all), `epochs`."""

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        """`logs`: `step` (done before), `steps_per_epoch`."""

    def on_step_end(self, step: int, logs: Logs) -> None:
        """`logs`: `loss`, `learning_rate`, `seconds`, `epoch`."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """`logs`: `loss` (mean over the epoch) and every validation metric as `validation_<name>`."""

    def on_train_end(self, logs: Logs) -> None:
        """`logs`: `step` (done)."""


class History(Callback):
    """Keeps what the epochs reported: `history["validation_accuracy"][0]` is after the first epoch of this session."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.epochs.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)


class ProgressBar(Callback):
    """A bar on a terminal; elsewhere plain lines, one per epoch and one every `line_steps` steps.

    `has_bar` decides where the stream does not know, as in a notebook.
    """

    def __init__(self, stream: TextIO | None = None, *, line_steps: int = 100, has_bar: bool | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._line_steps = line_steps
        self._total_steps = 0
        # tqdm has no types.
        self._new_bar: Any = None
        self._bar: Any = None
        if self._stream.isatty() if has_bar is None else has_bar:
            # Only there, since most runs on a device have no terminal; and not later, since what is loaded while the
            # run is measured would count as the program's.
            from tqdm import tqdm

            tqdm(total=1, file=StringIO()).close()
            self._new_bar = tqdm

    def on_train_begin(self, logs: Logs) -> None:
        self._total_steps = int(logs["steps"])
        if self._new_bar is not None:
            self._bar = self._new_bar(
                total=self._total_steps, initial=int(logs["step"]), unit="step", file=self._stream
            )

    def on_step_end(self, step: int, logs: Logs) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {logs['loss']:.4g}", refresh=False)
            self._bar.update(1)
        elif step % self._line_steps == 0:
            self._say(f"step {step}/{self._total_steps} loss {logs['loss']:.4g}, {show_seconds(logs['seconds'])}/step")

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in logs.items())
        self._say(f"epoch {epoch}: {shown}")

    def on_train_end(self, logs: Logs) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()
