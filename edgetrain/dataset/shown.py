"""A sample as a person knows it: its file, its text, or what it looks like."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from edgetrain.dataset.samples import Array, NamedSamples, Rows, Samples
from edgetrain.errors import DataError

_MOST_PIXELS = 96  # on the longer side
_LEAST_SIDE = 4  # a table with fewer rows is no picture
_MOST_LETTERS = 400
_MOST_VALUES = 24
_COLOUR_CHANNELS = (1, 3, 4)

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


@runtime_checkable
class FromFiles(Protocol):
    """Samples that lie in files, one each."""

    @property
    def paths(self) -> Sequence[Path]: ...


@runtime_checkable
class FromTexts(Protocol):
    """Samples that are texts."""

    @property
    def texts(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`row` is the sample's place in its source; the rest is empty where there is nothing of the kind."""

    row: int
    file: str = ""
    text: str = ""
    picture: Pixels | None = None  # (height, width) or (height, width, 3)


def shown(samples: Samples, index: int, *, columns: Sequence[str] = ()) -> Shown:
    """Sample number `index`. `columns` names the values of a sample of a table. What cannot be read is left out."""
    while isinstance(samples, Rows):
        index, samples = int(samples.indices[index]), samples.samples
    file = text = ""
    if isinstance(samples, FromFiles):
        file = "/".join(samples.paths[index].parts[-2:])
    if isinstance(samples, FromTexts):
        text = _shortened(samples.texts[index])
        return Shown(row=index, file=file, text=text)
    try:
        sample = samples[index]
    except (DataError, OSError):
        return Shown(row=index, file=file)
    array = _only_array(samples, sample)
    if array is None:
        return Shown(row=index, file=file)
    if array.ndim == 1:
        text = "" if file else _values(array, columns)
    return Shown(row=index, file=file, text=text, picture=picture_of(array))


def _only_array(samples: Samples, sample: Any) -> Array | None:
    """The sample where it is one array of numbers."""
    if isinstance(samples, NamedSamples) or isinstance(sample, Mapping):
        if len(sample) != 1:
            return None
        (sample,) = sample.values()
    array = np.asarray(sample)
    return array if array.dtype.kind in "uif" else None


def _shortened(text: str) -> str:
    text = " ".join(text[: 4 * _MOST_LETTERS].split())
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _values(array: Array, columns: Sequence[str]) -> str:
    """`length 5.1, width 3.5`: the first values of a row, by their columns where these have names."""
    names = columns if len(columns) == len(array) else [""] * len(array)
    parts = [f"{name} {value:.6g}".strip() for name, value in zip(names, array.tolist(), strict=True)]
    return ", ".join(parts[:_MOST_VALUES]) + (", …" if len(parts) > _MOST_VALUES else "")


def picture_of(array: Array) -> Pixels | None:
    """The array as a small picture; None where it has not the shape of one. A spectrogram is one too.

    Whole numbers of 8 bits stay as they are; others are stretched from their least to their greatest value.
    """
    if array.ndim == 3 and array.shape[2] not in _COLOUR_CHANNELS and array.shape[0] in _COLOUR_CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] not in _COLOUR_CHANNELS:
        return None
    if array.ndim not in (2, 3) or min(array.shape[:2]) < _LEAST_SIDE:
        return None
    if array.ndim == 3:
        array = array[..., 0] if array.shape[2] == 1 else array[..., :3]
    small = _shrunk(np.asarray(array, np.float64))
    if array.dtype != np.uint8:
        low, high = float(small.min()), float(small.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        small = (small - low) * (255 / (high - low)) if high > low else np.zeros_like(small)
    return np.asarray(np.clip(np.rint(small), 0, 255), np.uint8)


def _shrunk(array: Array) -> Array:
    """Means over squares, so that the longer side fits; what does not fill a square at the edge is left out."""
    factor = math.ceil(max(array.shape[:2]) / _MOST_PIXELS)
    if factor == 1:
        return array
    rows, columns = (max(1, side // factor) for side in array.shape[:2])
    steps = [min(factor, side) for side in array.shape[:2]]  # a side may be shorter than a square
    cut = array[: rows * steps[0], : columns * steps[1]]
    return np.asarray(cut.reshape(rows, steps[0], columns, steps[1], *array.shape[2:]).mean(axis=(1, 3)))
