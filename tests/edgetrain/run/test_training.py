"""The loop, against a small engine that really computes: softmax regression with Adam, in one NumPy arena."""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import DataError, DivergedError, EdgetrainError, InterruptedRunError, UsageError
from edgetrain.run.callbacks import Callback, History, Logs
from edgetrain.run.checkpoint import BEST, NEWEST, PREVIOUS, read_header
from edgetrain.run.engine import Array
from edgetrain.run.learning_rate import LearningRate, learning_rate
from edgetrain.run.session import Ending
from edgetrain.run.settings import TrainSettings
from edgetrain.run.step_log import LOG
from edgetrain.run.training import TrainOutcome, train

FEATURES, CLASSES, BATCH = 5, 3, 4
BETAS = (0.9, 0.999)
WEIGHTS = (FEATURES + 1) * CLASSES  # with a row of biases


class SoftmaxEngine:
    """Satisfies `Engine`. The arena is weights, two moments and the gradient's accumulator, then inputs and outputs."""

    def __init__(self, *, accumulate: int = 1, before_call: Callable[[str], None] = lambda _: None) -> None:
        self._saved = np.zeros(4 * WEIGHTS, dtype=np.float32)
        self._weights, self._first, self._second, self._gradient = (
            part.reshape(FEATURES + 1, CLASSES) for part in np.split(self._saved, 4)
        )
        self._weights[...] = np.random.default_rng(7).normal(size=self._weights.shape)
        self._accumulate = accumulate
        self._before_call = before_call
        self._tensors: dict[str, Array] = {
            "pixels": np.zeros((BATCH, FEATURES), np.float32),
            "train.labels": np.zeros(BATCH, np.int64),
            "train.learning_rate": np.zeros((), np.float32),
            "train.first_correction": np.zeros((), np.float32),
            "train.second_correction": np.zeros((), np.float32),
            "train.loss": np.zeros((), np.float32),
            "evaluate.scores": np.zeros((BATCH, CLASSES), np.float32),
        }

    def tensor(self, name: str) -> Array:
        return self._tensors[name]

    @property
    def saved(self) -> memoryview:
        return self._saved.data

    def measured_peak_bytes(self) -> int:
        return self._saved.nbytes

    def close(self) -> None: ...

    def call(self, function: str) -> None:
        self._before_call(function)
        {"step": self._step, "apply": self._apply, "evaluate": self._evaluate}[function]()

    def _extended(self) -> Array:
        return np.concatenate([self._tensors["pixels"], np.ones((BATCH, 1), np.float32)], axis=1)

    def _step(self) -> None:
        rows, labels = self._extended(), self._tensors["train.labels"]
        scores = rows @ self._weights
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        chosen = np.arange(BATCH), labels
        self._tensors["train.loss"][...] = -np.log(shares[chosen]).mean()
        shares[chosen] -= 1
        self._gradient += rows.T @ shares / np.float32(BATCH * self._accumulate)
        if self._accumulate == 1:
            self._apply()

    def _apply(self) -> None:
        self._first += np.float32(1 - BETAS[0]) * (self._gradient - self._first)
        self._second += np.float32(1 - BETAS[1]) * (self._gradient**2 - self._second)
        first = self._first / self._tensors["train.first_correction"]
        second = self._second / self._tensors["train.second_correction"]
        self._weights -= self._tensors["train.learning_rate"] * first / (np.sqrt(second) + np.float32(1e-8))
        self._gradient[...] = 0

    def _evaluate(self) -> None:
        self._tensors["evaluate.scores"][...] = self._extended() @ self._weights


class ShuffledRows:
    """Satisfies `BatchSource`: rows of a made-up problem, in an order that depends on seed and epoch alone."""

    def __init__(self, *, rows: int = 14, seed: int = 0, poisoned_batch: tuple[int, int] | None = None) -> None:
        random = np.random.default_rng(3)
        self._pixels = random.normal(size=(rows, FEATURES)).astype(np.float32)
        self._labels = (self._pixels @ random.normal(size=(FEATURES, CLASSES))).argmax(axis=1)
        self._seed = seed
        self._poisoned_batch = poisoned_batch
        self.position = (0, 0)

    @property
    def steps_per_epoch(self) -> int:
        return len(self._pixels) // BATCH

    def seek(self, position: tuple[int, int]) -> None:
        self.position = position

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
        epoch, index = self.position
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._pixels))
        chosen = order[index * BATCH : (index + 1) * BATCH]
        inputs["pixels"][...] = np.nan if self.position == self._poisoned_batch else self._pixels[chosen]
        labels[...] = self._labels[chosen]
        self.position = (epoch, index + 1)

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        assert split == "validation"
        for start in range(0, len(self._pixels), BATCH):
            valid = min(BATCH, len(self._pixels) - start)
            inputs["pixels"][...] = 1e30  # rows that only pad must not reach any metric
            labels[...] = 0
            inputs["pixels"][:valid] = self._pixels[start : start + valid]
            labels[:valid] = self._labels[start : start + valid]
            yield valid
        self.position = (99, 99)  # the loop may not rely on where an evaluation leaves us


SETTINGS = TrainSettings(
    program_sha256="ab" * 32,
    inputs=("pixels",),
    output="scores",
    loss="cross-entropy",
    epochs=4,
    learning_rate=LearningRate(peak=0.05, schedule="cosine", warmup_steps=2),
    adam_betas=BETAS,
    metrics=("accuracy",),
    validation_split="validation",
    monitor="loss",
    checkpoint_steps=2,
    resume_command="edgetrain fit --resume --out here",
)
STEPS_PER_EPOCH = 3
STEPS = 4 * STEPS_PER_EPOCH


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


def logged_steps(out: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (out / LOG).read_text().splitlines()]


def run(
    out: Path, chosen: TrainSettings = SETTINGS, *, resume: bool = False, callbacks: tuple[Callback, ...] = ()
) -> tuple[bytes, TrainOutcome]:
    """A run with a new engine, as a new process would have; the saved memory at its end, and the outcome."""
    engine = SoftmaxEngine(accumulate=chosen.accumulate)
    source = ShuffledRows(seed=chosen.seed, rows=14 * chosen.accumulate)
    outcome = train(engine, source, chosen, out=out, resume=resume, callbacks=callbacks)
    return bytes(engine.saved), outcome


def test_training_lowers_the_loss_and_raises_the_accuracy(tmp_path: Path) -> None:
    _, outcome = run(tmp_path, replace(SETTINGS, epochs=60))
    first, last = outcome.progress.validations[0].metrics, outcome.progress.validations[-1].metrics
    assert last["loss"] < 0.5 * first["loss"]
    assert last["accuracy"] > first["accuracy"]
    assert outcome.ending is Ending.FINISHED
    assert outcome.epochs == 60
    assert outcome.seconds_per_step is not None


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
    assert read_header(out / NEWEST).progress.validations == ()
    bits, outcome = run(out, resume=True)
    assert bits == whole_bits
    assert outcome.progress == whole.progress


class Poison:
    """Makes the weights useless from the update of one step on, as an update that overflows does."""

    def __init__(self, step: int, value: float) -> None:
        self._steps_left = step
        self._value = value
        self.engine = SoftmaxEngine(before_call=self._before_call)

    def _before_call(self, function: str) -> None:
        if function != "step":
            return
        if self._steps_left == 0:
            np.frombuffer(self.engine.saved, np.float32)[:WEIGHTS] = self._value
        self._steps_left -= 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("poisoned_step", "good_step"), [(1, None), (3, None), (4, 2), (5, 3), (6, 4), (8, 6)])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_last_good_checkpoint(
    tmp_path: Path, poisoned_step: int, good_step: int | None, value: float
) -> None:
    """Checkpoints are at steps 2, 3, 4, 6, 8. One right before the failing step holds what made it fail."""
    poison = Poison(poisoned_step - 1, value)
    with pytest.raises(DivergedError) as caught:
        train(poison.engine, ShuffledRows(), SETTINGS, out=tmp_path)
    assert caught.value.exit_code == 7
    assert f"step {poisoned_step} is nan" in caught.value.what
    assert "train.learning_rate=0.005" in caught.value.fix  # a tenth of the rate
    assert ("go on with `edgetrain fit --resume" in caught.value.fix) == (good_step is not None)
    assert logged_steps(tmp_path) == list(range(1, poisoned_step))
    if good_step is None:
        assert "no good checkpoint" in caught.value.what
    else:
        assert f"step {good_step}" in caught.value.what
        header = read_header(tmp_path / NEWEST)
        assert header.progress.step == good_step
        bits, _ = run(tmp_path, resume=True)
        assert np.isfinite(np.frombuffer(bits, np.float32)).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_validation_outputs_that_are_no_number_stop_the_run(tmp_path: Path) -> None:
    engine = SoftmaxEngine()

    class Break(Callback):
        def on_step_end(self, step: int, logs: Logs) -> None:
            if step == STEPS_PER_EPOCH:
                np.frombuffer(engine.saved, np.float32)[:WEIGHTS] = np.nan

    with pytest.raises(DivergedError, match="validation split"):
        train(engine, ShuffledRows(), SETTINGS, out=tmp_path, callbacks=(Break(),))
    assert read_header(tmp_path / NEWEST).progress.step == 2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_batch_that_holds_nan_is_the_datas_fault(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        train(SoftmaxEngine(), ShuffledRows(poisoned_batch=(1, 1)), SETTINGS, out=tmp_path)
    assert "`pixels`" in caught.value.why
    assert read_header(tmp_path / NEWEST).progress.step == 4  # the parameters are sound: nothing was dropped


def test_accumulated_gradients_update_like_one_large_batch(tmp_path: Path) -> None:
    """Four batches of the same rows, accumulated, are the same rows once."""

    class SameBatch(ShuffledRows):
        def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
            self.position = (0, 0)
            super().fill(inputs, labels)

    finals = []
    for accumulate in (1, 4):
        engine = SoftmaxEngine(accumulate=accumulate)
        chosen = replace(SETTINGS, accumulate=accumulate, steps=3, epochs=20)
        source = SameBatch(rows=16)
        outcome = train(engine, source, chosen, out=tmp_path / str(accumulate))
        finals.append((np.frombuffer(engine.saved, np.float32).copy(), outcome.progress.losses))
    np.testing.assert_allclose(finals[0][0], finals[1][0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(finals[0][1], finals[1][1], rtol=1e-6)


def test_the_engine_gets_each_steps_rate_and_corrections(tmp_path: Path) -> None:
    seen: list[tuple[float, float, float]] = []
    names = ("train.learning_rate", "train.first_correction", "train.second_correction")

    def note(function: str) -> None:
        if function == "step":
            rate, first, second = (float(engine.tensor(name)) for name in names)
            seen.append((rate, first, second))

    engine = SoftmaxEngine(before_call=note)
    train(engine, ShuffledRows(), SETTINGS, out=tmp_path)
    expected = [
        (learning_rate(SETTINGS.learning_rate, t, total_steps=STEPS), 1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1))
        for t in range(STEPS)
    ]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_patience_ends_the_run_and_the_best_parameters_remain(tmp_path: Path) -> None:
    """A rate this high overshoots, so that an early epoch is the best."""
    chosen = replace(SETTINGS, learning_rate=LearningRate(peak=2.0), epochs=50, patience_epochs=2)
    bits, outcome = run(tmp_path, chosen)
    values = [v.metrics["loss"] for v in outcome.progress.validations]
    best = min(range(len(values)), key=values.__getitem__)
    assert outcome.ending is Ending.NO_LONGER_BETTER
    assert len(values) == best + 1 + 2
    assert outcome.progress.best is not None
    assert (outcome.progress.best.epoch, outcome.progress.best.value) == (best + 1, values[best])
    assert outcome.holds_best
    bits_of_best, _ = run(tmp_path / "short", replace(chosen, epochs=best + 1, patience_epochs=None))
    assert bits == bits_of_best
    assert run(tmp_path, chosen, resume=True) == (bits, replace(outcome, seconds_per_step=None, steps_taken=0))


def test_a_damaged_best_checkpoint_leaves_the_last_parameters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = replace(SETTINGS, learning_rate=LearningRate(peak=2.0), epochs=50, patience_epochs=2)
    run(tmp_path, chosen)
    (tmp_path / BEST).write_bytes(b"")
    _, outcome = run(tmp_path, chosen, resume=True)
    assert not outcome.holds_best
    assert "keeping the last parameters" in caplog.text


def test_a_run_of_few_steps_still_validates_at_its_end(tmp_path: Path) -> None:
    _, outcome = run(tmp_path, replace(SETTINGS, steps=2))
    assert outcome.progress.step == 2
    assert [v.step for v in outcome.progress.validations] == [2]
    assert outcome.epochs == pytest.approx(2 / 3)


def test_callbacks_hear_everything_in_order(tmp_path: Path) -> None:
    heard: list[str] = []

    class Listener(Callback):
        def on_train_begin(self, logs: Logs) -> None:
            heard.append(f"begin {logs['step']}/{logs['steps']}")

        def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
            heard.append(f"epoch {epoch}")

        def on_step_end(self, step: int, logs: Logs) -> None:
            heard.append(f"step {step} of epoch {logs['epoch']:g}")

        def on_epoch_end(self, epoch: int, logs: Logs) -> None:
            heard.append(f"end of {epoch}: {', '.join(logs)}")

        def on_train_end(self, logs: Logs) -> None:
            heard.append(f"end {logs['step']}")

    history = History()
    _, outcome = run(tmp_path, replace(SETTINGS, steps=4), callbacks=(Listener(), history))
    assert heard == [
        "begin 0/4",
        "epoch 1",
        *(f"step {n} of epoch 1" for n in (1, 2, 3)),
        "end of 1: loss, validation_loss, validation_accuracy",
        "epoch 2",
        "step 4 of epoch 2",
        "end of 2: loss, validation_loss, validation_accuracy",
        "end 4",
    ]
    assert history.history["loss"][0] == pytest.approx(np.mean(outcome.progress.losses[:3]))


def test_callbacks_hear_the_end_of_a_run_that_fails(tmp_path: Path) -> None:
    ends: list[float] = []

    class Failing(Callback):
        def on_step_end(self, step: int, logs: Logs) -> None:
            raise RuntimeError

        def on_train_end(self, logs: Logs) -> None:
            ends.append(logs["step"])

    with pytest.raises(RuntimeError):
        run(tmp_path, callbacks=(Failing(),))
    assert ends == [1]


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


def test_more_batches_a_step_than_an_epoch_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="3 batches and one step needs 4"):
        train(SoftmaxEngine(accumulate=4), ShuffledRows(), replace(SETTINGS, accumulate=4), out=tmp_path)


def test_a_new_run_forgets_the_files_of_an_older_one(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, replace(SETTINGS, steps=1, checkpoint_steps=None, validation_split=None))
    assert logged_steps(tmp_path) == [1]
    assert read_header(tmp_path / NEWEST).progress.step == 1
    assert not (tmp_path / PREVIOUS).exists()
    assert not (tmp_path / BEST).exists()
