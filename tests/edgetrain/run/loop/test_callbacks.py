from __future__ import annotations

import io

from edgetrain.run.loop.callbacks import History, ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drive(bar: ProgressBar, *, steps: int) -> None:
    bar.on_train_begin({"step": 0, "steps": steps, "epochs": 1})
    bar.on_epoch_begin(1, {"step": 0, "steps_per_epoch": steps})
    for step in range(1, steps + 1):
        bar.on_step_end(step, {"loss": 1.0 / step, "learning_rate": 0.1, "seconds": 0.25, "epoch": 1.0})
    bar.on_epoch_end(1, {"loss": 0.52, "validation_accuracy": 0.75})
    bar.on_train_end({"step": steps})


def test_without_a_terminal_progress_is_plain_lines() -> None:
    stream = io.StringIO()
    drive(ProgressBar(stream, line_steps=2), steps=5)
    assert stream.getvalue().splitlines() == [
        "step 2/5 loss 0.5, 250.0 ms/step",
        "step 4/5 loss 0.25, 250.0 ms/step",
        "epoch 1: loss 0.52, validation accuracy 0.75",
    ]


def test_on_a_terminal_progress_is_a_bar_that_ends_full() -> None:
    stream = Terminal()
    drive(ProgressBar(stream), steps=5)
    last = stream.getvalue().rstrip().split("\r")[-1]
    assert "5/5" in last
    assert "loss 0.2" in last
    assert "epoch 1: loss 0.52, validation accuracy 0.75" in stream.getvalue()


def test_history_keeps_each_epochs_numbers_by_name() -> None:
    history = History()
    for epoch, loss in ((3, 0.5), (4, 0.25)):
        history.on_epoch_end(epoch, {"loss": loss, "validation_loss": 2 * loss})
    assert history.epochs == [3, 4]
    assert history.history == {"loss": [0.5, 0.25], "validation_loss": [1.0, 0.5]}
