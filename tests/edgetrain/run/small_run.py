"""A run so small that a test can repeat it hundreds of times, on an engine that really computes.

Softmax regression with Adam, in one NumPy arena.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.run.engines.engine import Array
from edgetrain.run.loop.callbacks import Callback
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings
from edgetrain.run.loop.step_log import LOG, VALIDATION
from edgetrain.run.loop.train import TrainOutcome, train

FEATURES, CLASSES, BATCH = 5, 3, 4
BETAS = (0.9, 0.999)
SAVED = ("weights", "first_moment", "second_moment", "gradient")
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
            **dict(zip(SAVED, (self._weights, self._first, self._second, self._gradient), strict=True)),
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

    def release(self) -> None:
        """There are no copies."""

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
    finite_tensors=SAVED,
    resume_command="edgetrain fit --resume --out here",
)
STEPS_PER_EPOCH = 3
STEPS = 4 * STEPS_PER_EPOCH
VALIDATED_STEPS = list(range(STEPS_PER_EPOCH, STEPS + 1, STEPS_PER_EPOCH))


def logged_steps(out: Path) -> list[int]:
    return [line["step"] for line in _logged(out) if "event" not in line]


def logged_validations(out: Path) -> list[int]:
    return [line["step"] for line in _logged(out) if line.get("event") == VALIDATION]


def _logged(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / LOG).read_text().splitlines()]


def run(
    out: Path, chosen: TrainSettings = SETTINGS, *, resume: bool = False, callbacks: tuple[Callback, ...] = ()
) -> tuple[bytes, TrainOutcome]:
    """A run with a new engine, as a new process would have; the saved memory at its end, and the outcome."""
    engine = SoftmaxEngine(accumulate=chosen.accumulate)
    source = ShuffledRows(seed=chosen.seed, rows=14 * chosen.accumulate)
    outcome = train(engine, source, chosen, out=out, resume=resume, callbacks=callbacks)
    return bytes(engine.saved), outcome
