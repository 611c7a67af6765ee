"""From a stored sample to the model's input, one sample at a time: the dataset is never blown up in memory.

Order: to float (pictures become 0..1), to channels first, resize, grey to colour or back, subtract the mean, divide by
the standard deviation. Inputs of whole numbers (token ids, masks, bytes) are copied as they are.

A picture (8 or 16 bits, two or three dimensions) takes the size and the channels of the model's input by itself, other
arrays only as far as the recipe says so: a spectrogram of the wrong length is a mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from edgetrain.dataset.bounds import Bounds
from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.samples import Array, Sample, Samples
from edgetrain.errors import DataError
from edgetrain.recipes import DataSection
from edgetrain.value_bounds import InputBounds

_COLOUR_CHANNELS = (1, 3, 4)
_LOOKED_AT = 8  # pictures whose size is compared with the model's input
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601, as Pillow
_WHITE: Mapping[Any, float] = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What happens to each sample, the recipe's `data` section without the source, and what must hold afterwards."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: tuple[int, ...] = ()  # height, width
    interpolation: str = "bilinear"
    channels: int | None = None
    bounds: Bounds = field(default_factory=dict)  # of the model's inputs; a batch outside of them is refused
    label_bounds: InputBounds | None = None

    @staticmethod
    def of(data: DataSection) -> Conversion:
        return Conversion(
            mean=data.mean,
            std=data.std,
            resize=data.resize,
            interpolation=data.interpolation,
            channels=data.channels,
        )


class Change(Protocol):
    """What happens to a sample between becoming floats and being normalised; its shape stays.

    Pictures are (channels, height, width) where the model takes them so. `is_bounded`: from 0 to 1, as bytes become.
    """

    def __call__(self, value: Array, *, is_bounded: bool) -> Array: ...


def convert_sample(
    sample: Sample, outs: Mapping[str, Array], conversion: Conversion, change: Change | None = None
) -> None:
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
        return convert(np.asarray(sample), out, conversion, change)
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
            convert(np.asarray(sample[name]), out, conversion, change)
        except DataError as error:
            raise DataError(f"input `{name}`: {error.what}", why=error.why, fix=error.fix) from error


def convert(sample: Array, out: Array, conversion: Conversion, change: Change | None = None) -> None:
    """Writes one sample into `out`, a row of one input of the model.

    Raises `DataError` where the sample does not become the shape of `out`, holds NaN or infinity, or does not hold
    whole numbers where the input does.
    """
    if out.dtype.kind in "iub":
        if change is not None:
            raise DataError(
                f"the model's input is `{out.dtype}`: whole numbers cannot be augmented",
                fix="leave out `data.augment`, or export the model with an input of floats",
            )
        return _convert_whole(sample, out)
    value = sample
    if value.dtype.kind == "c":
        raise DataError(
            f"a sample has the type `{value.dtype}`: complex numbers",
            why="models read real ones, and the imaginary part would be lost",
            fix="store the real and the imaginary part as two channels, or the absolute value",
        )
    if value.dtype.kind not in "iuf":
        raise DataError(f"a sample has the type `{value.dtype}`", fix="store numbers: uint8 images or float32 features")
    if out.ndim == 3 and value.ndim in (2, 3):
        if out.shape[0] not in _COLOUR_CHANNELS and out.shape[2] in _COLOUR_CHANNELS:
            out = out.transpose(2, 0, 1)  # the model's channels come last, as in TensorFlow; a view, so `out` is filled
        value = _channels_first(value)
        if is_picture(sample, out.shape):
            value = _picture(value, out.shape, conversion)
        if conversion.resize and conversion.resize != out.shape[1:]:  # before it is computed: it may be huge
            channels = conversion.channels if conversion.channels and value.shape[0] == 1 else value.shape[0]
            raise _mismatch(sample.shape, (channels, *conversion.resize), out.shape)
        value = _resized(value, conversion)
    elif value.dtype == np.uint8:
        value = _unit(value, np.uint8)
    if change is not None:
        value = change(value, is_bounded=sample.dtype in _WHITE)
    if value.size != out.size or (value.ndim == out.ndim and value.shape != out.shape):
        raise _mismatch(sample.shape, value.shape, out.shape)
    np.copyto(out, value.reshape(out.shape), casting="same_kind" if value.dtype.kind == "f" else "unsafe")
    with np.errstate(all="ignore"):  # what comes of it is looked at
        _normalise(out, conversion)
    if not np.isfinite(out).all():
        raise DataError("a sample holds NaN or infinity", fix="remove or repair it")


def is_channels_last(value: Array) -> bool:
    """Whether a picture is (height, width, channels)."""
    return value.ndim == 3 and value.shape[2] in _COLOUR_CHANNELS and value.shape[0] not in _COLOUR_CHANNELS


def is_picture(sample: Array, shape: tuple[int, ...]) -> bool:
    """Whether a sample is a picture for an input of this shape (channels first or last)."""
    return sample.dtype in _WHITE and sample.ndim in (2, 3) and len(shape) == 3


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


def fitting_note(features: Samples, inputs: Mapping[str, tuple[tuple[int, ...], str]], conversion: Conversion) -> str:
    """A sentence where pictures are resized to the model's input by themselves; empty where none is.

    Looks at a few samples over the whole range.
    """
    shapes = [shape for shape, dtype in inputs.values() if len(shape) == 3 and dtype.startswith("float")]
    if len(inputs) != 1 or not shapes or conversion.resize:
        return ""
    (shape,) = shapes
    is_last = shape[0] not in _COLOUR_CHANNELS and shape[2] in _COLOUR_CHANNELS
    wanted = shape[:2] if is_last else shape[1:]
    for row in np.unique(np.linspace(0, len(features) - 1, _LOOKED_AT).astype(int)):
        sample = features[row]
        if isinstance(sample, Mapping) or not is_picture(np.asarray(sample), shape):
            return ""
        stored = _channels_first(np.asarray(sample)).shape[1:]
        if stored != wanted:
            return (
                f"pictures of another size, such as {stored[0]} × {stored[1]}, are resized to the model's "
                f"{wanted[0]} × {wanted[1]} (height × width)"
            )
    return ""


def check_sample(sample: Sample, inputs: Mapping[str, tuple[tuple[int, ...], str]], conversion: Conversion) -> None:
    """Raises `DataError` where the sample cannot become the model's inputs (name -> shape without batch, dtype)."""
    convert_sample(sample, {name: np.empty(shape, dtype) for name, (shape, dtype) in inputs.items()}, conversion)


def arranged(sample: Sample, conversion: Conversion) -> Sample:
    """The sample in the axes and the size that a model's input gets, where no model says yet what it takes.

    A grey picture keeps its two axes unless the conversion resizes or repeats it.
    """
    if isinstance(sample, Mapping):
        return sample
    value = np.asarray(sample)
    is_picture = value.ndim == 3 or (value.ndim == 2 and (conversion.resize or conversion.channels is not None))
    return _resized(_channels_first(value), conversion) if is_picture else value


def _channels_first(value: Array) -> Array:
    """An image as (channels, height, width)."""
    if value.ndim == 2:
        return value[np.newaxis]
    return value.transpose(2, 0, 1) if is_channels_last(value) else value


def _resized(value: Array, conversion: Conversion) -> Array:
    """As the recipe says: resized, and with a grey channel repeated."""
    if conversion.resize and value.shape[1:] != conversion.resize:
        value = _RESIZES[conversion.interpolation](value, conversion.resize[0], conversion.resize[1])
    if conversion.channels is not None and value.shape[0] == 1:
        value = np.broadcast_to(value, (conversion.channels, *value.shape[1:]))
    return value


def _picture(value: Array, shape: tuple[int, ...], conversion: Conversion) -> Array:
    """A picture from 0 to 1, with the channels of the model's input, and its size unless the recipe gives one."""
    stored = value.dtype
    fits = bool(conversion.resize) or value.shape[1:] == shape[1:]
    if not fits and conversion.interpolation == "bilinear":
        value = _shrunk(value, shape[1], shape[2])  # before it is blown up to floats: photos are large
    value = _unit(value, stored)
    if value.shape[0] == 3 and shape[0] == 1:
        value = np.tensordot(_LUMINANCE, value, axes=1)[np.newaxis]
    elif value.shape[0] == 1 and conversion.channels is None:
        value = np.broadcast_to(value, (shape[0], *value.shape[1:]))
    return value if fits else _RESIZES[conversion.interpolation](value, shape[1], shape[2])


def _unit(value: Array, stored: Any) -> Array:
    """Numbers that were stored as 8 or 16 bits, from 0 to 1."""
    return value.astype(np.float32) / np.float32(_WHITE[np.dtype(stored)])


def _shrunk(value: Array, height: int, width: int) -> Array:
    """The means of whole blocks of pixels, as large as asked for or larger: resizing what is left skips none."""
    rows, columns = max(1, value.shape[1] // height), max(1, value.shape[2] // width)
    if rows == columns == 1:
        return value
    new_height, new_width = value.shape[1] // rows, value.shape[2] // columns
    top, left = (value.shape[1] - new_height * rows) // 2, (value.shape[2] - new_width * columns) // 2
    inner = value[:, top : top + new_height * rows, left : left + new_width * columns]
    blocks = inner.reshape(len(value), new_height, rows, new_width, columns)
    means: Array = blocks.mean(axis=(2, 4), dtype=np.float32)
    return means


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
            settings.append(override_hint("data.resize", wanted[1:]))
        if converted[0] == 1 != wanted[0]:
            settings.append(override_hint("data.channels", wanted[0]))
        fix = f"add {' '.join(settings)}" if settings else "use images with as many channels as the model's input"
    return DataError(
        f"a sample of shape {list(stored)} does not fit the model's input {list(wanted)}",
        why=f"it becomes {list(converted)} with the recipe's `data` section",
        fix=fix,
    )
