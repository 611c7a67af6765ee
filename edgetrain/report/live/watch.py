"""What a run that is going on has said so far: a callback of the loop, read by the server's threads."""

from __future__ import annotations

import threading
from pathlib import Path

from edgetrain.files.texts import parse_json
from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.run_record import Measured
from edgetrain.report.sections.numbers import metric_value, words
from edgetrain.report.sections.training import curves
from edgetrain.report.sections.verdict import fact
from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.history import ThinnedValidations
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.thinned import ThinnedCurve
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.step_log import LOG
from edgetrain.units import show_bytes, show_seconds

_VALIDATION = "validation_"
_STATES = {
    "preparing": ("Preparing", "var(--muted)"),
    "training": ("Training", "var(--accent)"),
    "closing": ("Evaluating", "var(--accent)"),
    "ended": ("Ended", "var(--good)"),
}


class Watch(Callback):
    """`fragment` may be called from any thread. Its memory does not grow with the run."""

    def __init__(self, folder: Path, *, name: str, budget_bytes: int | None, resumes: bool = False) -> None:
        self._folder, self._name, self._budget_bytes = folder, name, budget_bytes
        self._lock = threading.Lock()
        self._losses = ThinnedCurve()
        self._validations = ThinnedValidations()
        self._state = "preparing"
        self._step = self._steps = self._epoch = self._epochs = self._version = 0
        self._loss: float | None = None
        self._seconds: float | None = None
        if resumes:
            self._read_log(folder / LOG)

    def _read_log(self, path: Path) -> None:
        """The losses of the sessions before; a torn or foreign line ends them, as it does for the run itself."""
        try:
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    record = parse_json(line)
                    if "loss" in record and "event" not in record:
                        self._losses.add(float(record["step"]), float(record["loss"]))
        except (OSError, ValueError, KeyError, TypeError):
            return

    def on_train_begin(self, logs: Logs) -> None:
        with self._lock:
            self._state, self._step, self._steps = "training", int(logs["step"]), int(logs["steps"])
            self._epochs = int(logs["epochs"])
            self._version += 1

    def on_step_end(self, step: int, logs: Logs) -> None:
        with self._lock:
            self._step, self._epoch = step, int(logs["epoch"])
            self._loss, self._seconds = logs["loss"], logs["seconds"]
            self._losses.add(float(step), logs["loss"])
            self._version += 1

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        metrics = {k.removeprefix(_VALIDATION): v for k, v in logs.items() if k.startswith(_VALIDATION)}
        with self._lock:
            if metrics:
                self._validations.add(Validation(epoch=epoch, step=self._step, metrics=metrics))
            self._version += 1

    def on_train_end(self, logs: Logs) -> None:
        with self._lock:
            self._state = "closing"
            self._version += 1

    def end(self) -> None:
        """The run is over, however it ended."""
        with self._lock:
            self._state = "ended"
            self._version += 1

    @property
    def version(self) -> int:
        """Changes whenever there is something new to see."""
        with self._lock:
            return self._version

    @property
    def has_ended(self) -> bool:
        with self._lock:
            return self._state == "ended"

    @property
    def title(self) -> str:
        return self._name

    def fragment(self) -> Markup:
        """The page's body as it stands."""
        with self._lock:
            points, kept = self._losses.points, self._validations.kept
            state, step, steps, epoch, epochs = self._state, self._step, self._steps, self._epoch, self._epochs
            loss, seconds = self._loss, self._seconds
        validations = tuple(Measured(epoch=v.epoch, step=v.step, metrics=v.metrics) for v in kept)
        word, ink = _STATES[state]
        header = element(
            "header",
            element("p", "edgetrain ", element("span", "live"), class_="kind"),
            element("h1", self._name),
            element(
                "p", element("span", word, class_="status", style=f"--ink:{ink}"), self._more(state), class_="verdict"
            ),
            element(
                "dl",
                *_facts(step, steps, epoch, epochs, loss, seconds, validations, self._budget_bytes),
                class_="facts",
            ),
        )
        if not points:
            return joined(header, element("main"))
        body = curves(points, validations, best_step=None)
        title = element("h2", "Training", id="training-title")
        return joined(header, element("main", element("section", title, body, aria_labelledby="training-title")))

    def _more(self, state: str) -> Child:
        if state != "ended":
            return joined(" · ", element("code", str(self._folder)))
        return joined(". Its page is ", element("code", str(RunFolder(self._folder).page)), ".")


def _facts(
    step: int,
    steps: int,
    epoch: int,
    epochs: int,
    loss: float | None,
    seconds: float | None,
    validations: tuple[Measured, ...],
    budget_bytes: int | None,
) -> list[Markup]:
    share = step / steps if steps else 0.0
    bar = element(
        "div",
        element("i", style=f"width:{100 * share:.1f}%"),
        class_="meter",
        role="img",
        aria_label=f"{share:.0%} done",
    )
    left = f"{show_seconds((steps - step) * seconds)} left, without validation" if seconds and step < steps else ""
    found = [
        fact(
            "Steps",
            joined(f"{step:,}", bar),
            f"of {steps:,}, epoch {epoch} of {epochs}" if steps else "",
            left,
            first=True,
        ),
        fact("Loss", f"{loss:.4g}" if loss is not None else "–"),
        fact("Time of a step", show_seconds(seconds) if seconds else "–"),
    ]
    if validations:
        last = validations[-1]
        name, value = next(
            ((n, v) for n, v in last.metrics.items() if n != "loss"), ("loss", last.metrics.get("loss", 0.0))
        )
        found.append(fact(f"Validation {words(name)}", metric_value(name, value), f"after epoch {last.epoch}"))
    elif budget_bytes is not None:
        found.append(fact("Budget", show_bytes(budget_bytes)))
    return found
