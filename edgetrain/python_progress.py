"""Progress of `edgetrain.fit` in Python: on a terminal and in a notebook, as in Keras; elsewhere only where asked for.

A program that trains in the background must not find lines on its standard error that nobody asked for.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from edgetrain.run.loop.callbacks import Callback, Logs, ProgressBar

_COLUMNS = 80


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def python_progress(wanted: bool | None) -> PythonProgress | None:
    """What shows progress; None for silence. Without a wish it is shown where somebody looks."""
    in_notebook = is_notebook()
    stream = sys.stdout if in_notebook else sys.stderr  # what goes to standard error has a red ground in notebooks
    is_shown = wanted if wanted is not None else in_notebook or stream.isatty()
    return PythonProgress(stream, has_bar=in_notebook or stream.isatty()) if is_shown else None


class PythonProgress(Callback):
    """A `ReportProgress` for what comes before training, a callback while it goes on."""

    def __init__(self, stream: TextIO, *, has_bar: bool) -> None:
        self._stream = stream
        self._has_bar = has_bar
        self._training = ProgressBar(stream, has_bar=has_bar)
        self._stage = ""
        self._bar: Any = None  # tqdm has no types

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._has_bar:
            if stage != self._stage:
                self.tell(stage)
        else:
            if stage != self._stage:
                self.close()
                self._begin(stage, total)
            self._bar.total = total or None
            self._bar.n = done
            self._bar.refresh()
        self._stage = stage

    def tell(self, line: str) -> None:
        """A line of its own."""
        self.close()
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Takes a bar away; training has one of its own."""
        self._stage = ""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def on_train_begin(self, logs: Logs) -> None:
        self.close()
        self._training.on_train_begin(logs)

    def on_step_end(self, step: int, logs: Logs) -> None:
        self._training.on_step_end(step, logs)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._training.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Logs) -> None:
        self._training.on_train_end(logs)

    def _begin(self, stage: str, total: int) -> None:
        from tqdm import tqdm

        shape = "{desc} {n_fmt}/{total_fmt} {bar}" if total else "{desc}"
        self._bar = tqdm(
            total=total or None, desc=stage, leave=False, file=self._stream, bar_format=shape, ncols=_COLUMNS
        )
