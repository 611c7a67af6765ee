"""Batches in an order that depends on (seed, epoch) only, written into arrays the caller owns.

Training batches may be augmented: each row then becomes what the epoch makes of it, whichever batch reads it.

A position is a plain value: a stream that starts there goes on bit for bit as one that never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from edgetrain.dataset.augment.augmentation import Augmentation, Variation
from edgetrain.dataset.augment.mixing import mix_into
from edgetrain.dataset.bounds import check_rows
from edgetrain.dataset.convert import Conversion, convert_sample
from edgetrain.dataset.samples import Array, Part, sample_name
from edgetrain.errors import DataError

# What a batch is written into: an array for each of the model's inputs by name, or the array of the only one.
Inputs = Array | Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next batch: `index` counts batches within the epoch."""

    epoch: int = 0
    index: int = 0


class BatchStream:
    """Endless training batches of one size. The rows that do not fill a last batch are left out of their epoch.

    Raises `DataError` when the part has fewer samples than one batch.
    """

    def __init__(
        self,
        part: Part,
        *,
        batch: int,
        seed: int,
        conversion: Conversion | None = None,
        position: Position | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        require_batch(len(part), batch)
        self._part = part
        self._batch = batch
        self._seed = seed
        self._conversion = conversion or Conversion()
        self._augmentation = augmentation
        self._position = Position()
        self._order = epoch_order(len(part), seed=seed, epoch=0)
        self.seek(position or Position())

    @property
    def batches_per_epoch(self) -> int:
        return len(self._part) // self._batch

    @property
    def position(self) -> Position:
        """Where the next `fill` reads."""
        return self._position

    def seek(self, position: Position) -> None:
        """Continues from a position of this or of an equal stream."""
        if not (position.epoch >= 0 and 0 <= position.index < self.batches_per_epoch):
            raise DataError(
                f"there is no batch {position.index} in epoch {position.epoch}",
                why=f"an epoch has {self.batches_per_epoch} batches of {self._batch}",
                fix="resume with the data and the batch size the run began with",
            )
        if position.epoch != self._position.epoch:
            self._order = epoch_order(len(self._part), seed=self._seed, epoch=position.epoch)
        self._position = position

    def fill(self, inputs: Inputs, y_out: Array) -> None:
        """Writes the next batch into the arrays and moves on."""
        start = self._position.index * self._batch
        rows, epoch, index = self._order[start : start + self._batch], self._position.epoch, self._position.index + 1
        varied = None if self._augmentation is None else self._augmentation.variation(seed=self._seed, epoch=epoch)
        fill_rows(self._part, rows, inputs, y_out, self._conversion, varied)
        self.seek(Position(epoch=epoch, index=index) if index < self.batches_per_epoch else Position(epoch=epoch + 1))


def require_batch(samples: int, batch: int) -> None:
    """Raises `DataError` where the training part does not fill one batch."""
    if samples < batch:
        raise DataError(
            f"there are {samples} training samples, fewer than one batch of {batch}",
            why="`data.limit` and `data.validation` count too",
            fix=f"set `train.batch={max(samples, 1)}` or less, or use more data",
        )


def epoch_order(samples: int, *, seed: int, epoch: int) -> Array:
    """The order in which an epoch visits the samples."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples)


def evaluation_batches(part: Part, inputs: Inputs, y_out: Array, conversion: Conversion | None = None) -> Iterator[int]:
    """Fills the arrays with each batch in turn, in order, and yields how many of its rows are valid.

    The last batch repeats the part's last sample where rows are left over; every sample is valid exactly once.
    """
    batch = len(y_out)
    for start in range(0, len(part), batch):
        rows = np.minimum(np.arange(start, start + batch), len(part) - 1)
        fill_rows(part, rows, inputs, y_out, conversion or Conversion())
        yield min(batch, len(part) - start)


def fill_rows(
    part: Part,
    rows: Array,
    inputs: Inputs,
    y_out: Array,
    conversion: Conversion,
    variation: Variation | None = None,
) -> None:
    """Writes these samples and their labels into the arrays, varied where a variation says how.

    Classes become one-hot rows where `y_out` has columns. Raises `DataError` naming the sample that does not fit the
    model's inputs, or the conversion's bounds.
    """
    by_name = inputs if isinstance(inputs, Mapping) else {"the input": inputs}
    for slot, row in enumerate(rows):
        # A slice, not an index: the row of an array with one dimension must stay a view.
        outs = {name: array[slot : slot + 1].reshape(array.shape[1:]) for name, array in by_name.items()}
        _write_sample(part, row, outs, conversion, variation)
    _write_labels(part.labels[rows], y_out)
    _check_bounds(part, rows, by_name, y_out, conversion)
    if variation is not None and variation.mixes:
        _mix(part, rows, by_name, y_out, conversion, variation)


def _check_bounds(part: Part, rows: Array, inputs: Mapping[str, Array], y_out: Array, conversion: Conversion) -> None:
    """Of the whole batch at once: a look at each sample would cost more than copying it."""
    for name, bounds in conversion.bounds.items():
        if name in inputs:
            check_rows(part, rows, f"`{name}`", inputs[name], bounds)
    if conversion.label_bounds is not None:
        check_rows(part, rows, "its label", y_out, conversion.label_bounds)


def _write_sample(
    part: Part, row: int, outs: Mapping[str, Array], conversion: Conversion, variation: Variation | None
) -> None:
    change = variation.change(int(row)) if variation is not None else None
    try:
        convert_sample(part.features[row], outs, conversion, change)
    except DataError as error:
        raise DataError(f"{sample_name(part.features, row)}: {error.what}", why=error.why, fix=error.fix) from error


def _mix(
    part: Part,
    rows: Array,
    inputs: Mapping[str, Array],
    y_out: Array,
    conversion: Conversion,
    variation: Variation,
) -> None:
    """Mixes each row with another of the part, as that is varied in this epoch, and their labels alike."""
    if y_out.dtype.kind != "f":
        raise DataError(
            f"labels of type `{y_out.dtype}` cannot be mixed",
            why="they are class numbers, and a mixed sample is a share of two classes",
            fix="set data.augment.mixup=0 and data.augment.cutmix=0",
        )
    ((name, samples),) = inputs.items()
    mixes = [variation.mix(int(row), samples=len(part)) for row in rows]
    other = np.empty(samples.shape[1:], samples.dtype)
    shares = np.empty((len(rows), *[1] * (y_out.ndim - 1)), y_out.dtype)
    for slot, mix in enumerate(mixes):
        _write_sample(part, mix.partner, {name: other}, conversion, variation)
        shares[slot] = mix_into(samples[slot : slot + 1].reshape(other.shape), other, mix)
    others = np.empty_like(y_out)
    _write_labels(part.labels[[mix.partner for mix in mixes]], others)
    y_out *= shares
    y_out += (1 - shares) * others


def _write_labels(labels: Array, y_out: Array) -> None:
    is_class = np.issubdtype(labels.dtype, np.integer)
    if is_class and y_out.ndim == 2 and y_out.shape[1] > 1 and labels.ndim == 1:
        y_out[...] = labels[:, np.newaxis] == np.arange(y_out.shape[1])
    else:
        np.copyto(y_out, labels.reshape(y_out.shape), casting="same_kind" if not is_class else "unsafe")


def check_labels(part: Part, classes: int, *, name: str) -> None:
    """Raises `DataError` where a label is not a class of the model."""
    if not np.issubdtype(part.labels.dtype, np.integer):
        raise DataError(
            f"{name} has labels of type `{part.labels.dtype}` and the model tells {classes} classes apart",
            fix="store labels as whole numbers; if they are values to predict, add `train.loss=mse metric=mse`",
        )
    wrong = np.flatnonzero((part.labels < 0) | (part.labels >= classes))
    if len(wrong):
        largest = int(part.labels.max())
        # Nobody has so many classes and so few of their samples: these are values.
        is_value = largest >= max(len(part), 1000)
        raise DataError(
            f"{name} has the label {int(part.labels.flat[wrong[0]])} at sample {int(wrong[0])}, "
            f"outside 0 to {classes - 1}",
            why=f"the model has {classes} outputs; {len(wrong)} of {len(part)} labels are outside",
            fix="if the labels are values to predict, add `train.loss=mse metric=mse`; else number the classes from 0"
            if is_value
            else f"add `model.classes={max(largest + 1, 2)}`, or correct the labels",
        )
