"""The compiler's progress: a bar on a terminal, else one line for each stage."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from edgetrain.cli.console import Console
from edgetrain.run.loop.callbacks import Callback, Logs


class StageProgress(Callback):
    """Satisfies `ReportProgress`. Use it in a `with` statement, so that no bar is left on the screen.

    As a callback it leaves the screen to the training loop's own bar.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        # tqdm has no types; it is only made on a terminal.
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._console.quiet:
            return
        if not self._console.talk.isatty():
            if stage != self._stage:
                self._console.say(stage)
            self._stage = stage
            return
        if stage != self._stage:
            self._begin(stage, total)
        self._bar.total = total or None
        self._bar.n = done
        self._bar.refresh()

    def on_train_begin(self, logs: Logs) -> None:
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _begin(self, stage: str, total: int) -> None:
        from tqdm import tqdm

        self.close()
        self._stage = stage
        shape = "{desc} {n_fmt}/{total_fmt} {bar}" if total else "{desc}"
        self._bar = tqdm(total=total or None, desc=stage, leave=False, file=self._console.talk, bar_format=shape)
