"""From a stored sample to the model's input, one sample at a time: the dataset is never blown up in memory.

Order: to float (uint8 becomes 0..1), to channels first, resize, repeat a grey channel, subtract the mean, divide by
the standard deviation. Inputs of whole numbers (token ids, masks, bytes) are copied as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from edgetrain.dataset.samples import Array, Sample
from edgetrain.errors import DataError
from edgetrain.recipes import DataSection

_COLOUR_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What happens to each sample; the recipe's `data` section without the source."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: tuple[int, ...] = ()  # height, width
    interpolation: str = "bilinear"
    channels: int | None = None

    @staticmethod
    def of(data: DataSection) -> Conversion:
        return Conversion(
            mean=data.mean,
            std=data.std,
            resize=data.resize,
            interpolation=data.interpolation,
            channels=data.channels,
        )


def convert_sample(sample: Sample, outs: Mapping[str, Array], conversion: Conversion) -> None:
    """Writes one sample into a row of each of the model's inputs, by their names.

    An array goes to a model with one input, whatever its name; inputs that a sample has beyond the model's are
    ignored. Raises `DataError` as `convert` does, and where an input is missing.
    """
    if not isinstance(sample, Mapping):
        if len(outs) != 1:
            raise DataError(
                f"the model has {len(outs)} inputs ({', '.join(outs)}), and a sample is one array",
                fix="store an array for each input under its name, or export the model with one data input",
            )
        (out,) = outs.values()
        return convert(np.asarray(sample), out, conversion)
    missing = [name for name in outs if name not in sample]
    if missing and len(outs) == len(sample) == 1:  # one input and one array belong together whatever their names
        missing, sample = [], dict(zip(outs, sample.values(), strict=True))
    if missing:
        raise DataError(
            f"a sample lacks {', '.join(f'`{name}`' for name in missing)}",
            why=f"the model reads {', '.join(outs)}; a sample holds {', '.join(sample) or 'nothing'}",
            fix="store the arrays under the names of the model's inputs",
        )
    for name, out in outs.items():
        try:
            convert(np.asarray(sample[name]), out, conversion)
        except DataError as error:
            raise DataError(f"input `{name}`: {error.what}", why=error.why, fix=error.fix) from error


def convert(sample: Array, out: Array, conversion: Conversion) -> None:
    """Writes one sample into `out`, a row of one input of the model.

    Raises `DataError` where the sample does not become the shape of `out`, holds NaN or infinity, or does not hold
    whole numbers where the input does.
    """
    if out.dtype.kind in "iub":
        return _convert_whole(sample, out)
    value = sample
    if value.dtype == np.uint8:
        value = value.astype(np.float32) / np.float32(255)
    elif not np.issubdtype(value.dtype, np.number):
        raise DataError(f"a sample has the type `{value.dtype}`", fix="store numbers: uint8 images or float32 features")
    if out.ndim == 3 and (value.ndim in (2, 3)):
        value = _image(value, conversion)
    if value.size != out.size or (value.ndim == out.ndim and value.shape != out.shape):
        raise _mismatch(sample.shape, value.shape, out.shape)
    np.copyto(out, value.reshape(out.shape), casting="same_kind" if value.dtype.kind == "f" else "unsafe")
    _normalise(out, conversion)
    if not np.isfinite(out).all():
        raise DataError("a sample holds NaN or infinity", fix="remove or repair it")


def _convert_whole(sample: Array, out: Array) -> None:
    if sample.dtype.kind not in "iub":
        raise DataError(
            f"a sample has the type `{sample.dtype}`, and the model's input is `{out.dtype}`",
            fix="store whole numbers: token ids, masks or bytes",
        )
    if sample.size != out.size or (sample.ndim == out.ndim and sample.shape != out.shape):
        raise DataError(
            f"a sample of shape {list(sample.shape)} does not fit the model's input {list(out.shape)}",
            fix="set the length in the recipe's `data` section, or `model.inputs`, so that the two agree",
        )
    np.copyto(out, sample.reshape(out.shape), casting="unsafe")
    if not np.array_equal(out, sample.reshape(out.shape)):
        raise DataError(f"a sample holds numbers that `{out.dtype}` cannot", fix="check the ids in the data")


def check_sample(sample: Sample, inputs: Mapping[str, tuple[tuple[int, ...], str]], conversion: Conversion) -> None:
    """Raises `DataError` where the sample cannot become the model's inputs (name -> shape without batch, dtype)."""
    convert_sample(sample, {name: np.empty(shape, dtype) for name, (shape, dtype) in inputs.items()}, conversion)


def _image(value: Array, conversion: Conversion) -> Array:
    """An image as (channels, height, width), resized and with its channels repeated."""
    if value.ndim == 2:
        value = value[np.newaxis]
    elif value.shape[2] in _COLOUR_CHANNELS and value.shape[0] not in _COLOUR_CHANNELS:
        value = value.transpose(2, 0, 1)
    if conversion.resize and value.shape[1:] != conversion.resize:
        value = _RESIZES[conversion.interpolation](value, conversion.resize[0], conversion.resize[1])
    if conversion.channels is not None and value.shape[0] == 1:
        value = np.broadcast_to(value, (conversion.channels, *value.shape[1:]))
    return value


def _nearest(value: Array, height: int, width: int) -> Array:
    rows = (np.arange(height) * value.shape[1]) // height
    columns = (np.arange(width) * value.shape[2]) // width
    return value[:, rows[:, np.newaxis], columns]


def _bilinear(value: Array, height: int, width: int) -> Array:
    """Pixel centres aligned (as `half_pixel` in ONNX), edges repeated."""
    value = value.astype(np.float32, copy=False)
    for axis, size in ((1, height), (2, width)):
        low, high, weight = _neighbours(value.shape[axis], size)
        shape = (1, -1, 1) if axis == 1 else (1, 1, -1)
        at_low, at_high = value.take(low, axis=axis), value.take(high, axis=axis)
        value = at_low + (at_high - at_low) * weight.reshape(shape)
    return value


def _neighbours(old: int, new: int) -> tuple[Array, Array, Array]:
    position = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.floor(position).astype(np.intp)
    return low, np.minimum(low + 1, old - 1), (position - low).astype(np.float32)


_RESIZES: Mapping[str, Callable[[Array, int, int], Array]] = {"bilinear": _bilinear, "nearest": _nearest}


def _normalise(out: Array, conversion: Conversion) -> None:
    """Per channel for images; one value for all where one is given or the sample is no image."""
    for values, apply in ((conversion.mean, np.subtract), (conversion.std, np.divide)):
        if not values:
            continue
        if len(values) not in (1, out.shape[0] if out.ndim else 1):
            raise DataError(
                f"`data.mean` or `data.std` has {len(values)} values and the model's input has {out.shape[0]} channels",
                fix="give one value, or one for each channel",
            )
        apply(out, np.asarray(values, out.dtype).reshape(-1, *[1] * (out.ndim - 1)), out=out)


def _mismatch(stored: tuple[int, ...], converted: tuple[int, ...], wanted: tuple[int, ...]) -> DataError:
    fix = f"use data whose samples have {math.prod(wanted)} values"
    if len(converted) == len(wanted) == 3:
        settings = []
        if converted[1:] != wanted[1:]:
            settings.append(f"`data.resize = [{wanted[1]}, {wanted[2]}]`")
        if converted[0] == 1 != wanted[0]:
            settings.append(f"`data.channels = {wanted[0]}`")
        fix = f"set {' and '.join(settings)}" if settings else "use images with as many channels as the model's input"
    return DataError(
        f"a sample of shape {list(stored)} does not fit the model's input {list(wanted)}",
        why=f"it becomes {list(converted)} with the recipe's `data` section",
        fix=fix,
    )
