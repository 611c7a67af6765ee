"""What a training run is told to do. Plain data: the same settings, source and program give the same run."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path

from edgetrain.dataset.reading import Scaling
from edgetrain.errors import ModelError, UsageError
from edgetrain.files.regular_file import require_regular
from edgetrain.files.secret_key import SecretKey
from edgetrain.graph.options import LossOptions
from edgetrain.recipes import Recipe, TrainSection
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.metrics import LOSSES, METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Raises `UsageError` listing every mistake at once.

    `steps` ends the run early, within an epoch if need be; the learning-rate schedule then spans those steps.
    One optimizer step reads `accumulate` batches. Batches at the end of an epoch that do not fill a step are left
    out (the order changes with every epoch, so no example is left out for good).
    """

    program_sha256: str
    inputs: tuple[str, ...]  # ONNX names
    output: str  # ONNX name of the output that the loss and the metrics read
    loss: str
    epochs: int
    learning_rate: LearningRate
    loss_options: LossOptions = field(default_factory=LossOptions)
    steps: int | None = None
    seed: int = 0
    accumulate: int = 1
    adam_betas: tuple[float, float] | None = None  # set for adam and adamw
    metrics: tuple[str, ...] = ()
    validation_split: str | None = None
    monitor: str = "loss"  # the validation metric that decides which epoch is best
    patience_epochs: int | None = None  # stop after so many epochs that are no better
    least_gain: float = 0.0
    target: Scaling = field(default_factory=Scaling)  # how targets are trained; metrics are in their own units
    checkpoint_steps: int | None = None  # besides the one after each epoch
    finite_tensors: tuple[str, ...] = ()  # what no update may turn into NaN or infinity
    key: SecretKey | None = None  # what is saved is encrypted with it
    resume_command: str = "edgetrain fit --resume"

    def __post_init__(self) -> None:
        unknown = [f"`{m}` is not a metric" for m in self.metrics if m not in METRICS]
        known = ("loss", *self.metrics)
        mistakes = unknown + [
            message
            for is_wrong, message in (
                (self.loss not in LOSSES, f"`{self.loss}` is not a loss ({', '.join(LOSSES)})"),
                (self.epochs < 1, f"epochs = {self.epochs} is less than 1"),
                (self.steps is not None and self.steps < 1, f"steps = {self.steps} is less than 1"),
                (self.accumulate < 1, f"accumulate = {self.accumulate} is less than 1"),
                (self.monitor not in known, f"monitor = `{self.monitor}` is not one of {', '.join(known)}"),
                (
                    self.patience_epochs is not None and self.validation_split is None,
                    "patience needs a validation split to watch",
                ),
                (
                    self.patience_epochs is not None and self.patience_epochs < 1,
                    f"patience = {self.patience_epochs} is less than 1 epoch",
                ),
                (
                    self.checkpoint_steps is not None and self.checkpoint_steps < 1,
                    f"checkpoint_steps = {self.checkpoint_steps} is less than 1",
                ),
            )
            if is_wrong
        ]
        if mistakes:
            raise UsageError("; ".join(mistakes), fix=f"metrics are {', '.join(f'`{m}`' for m in METRICS)}")

    @property
    def monitor_rises(self) -> bool:
        """Whether a higher value of the monitored metric is the better one."""
        return self.monitor != "loss" and METRICS[self.monitor].higher_is_better


def loss_options_of(recipe: Recipe) -> LossOptions:
    """What the recipe's loss takes.

    Raises `ModelError` when the loss's own file cannot be read, `UsageError` where class weights are still to be
    counted from data.
    """
    train, graph = recipe.train, ""
    if train.loss_graph:
        require_regular(Path(train.loss_graph), ModelError)
        try:
            graph = base64.b64encode(Path(train.loss_graph).read_bytes()).decode()
        except OSError as error:
            raise ModelError(
                f"cannot read the loss `{train.loss_graph}`", why=str(error), fix="check `train.loss_graph`"
            ) from error
    return LossOptions(
        label_smoothing=train.label_smoothing,
        class_weights=_class_weights(train),
        has_label_rows=train.loss == "cross-entropy" and recipe.data.augment.mixes,
        focal_gamma=train.focal_gamma,
        temperature=train.temperature,
        label_length=train.label_length,
        graph=graph,
    )


def _class_weights(train: TrainSection) -> tuple[float, ...]:
    if isinstance(train.class_weights, tuple):
        return train.class_weights
    if train.class_weights == "none":
        return ()
    raise UsageError(
        "train.class_weights = 'balanced' needs data to count the classes in",
        why="a class weighs the more the fewer samples it has",
        fix="add data.source=PATH, or give a number for each class",
    )
