"""What a sample is, as far as augmentation has to know."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from edgetrain.dataset.convert import Conversion, is_channels_last
from edgetrain.dataset.file_bytes import FileTokens
from edgetrain.dataset.images import ImageFiles
from edgetrain.dataset.samples import NamedSamples, Part, Rows
from edgetrain.dataset.series import Windows
from edgetrain.dataset.wav import Clips


class Kind(StrEnum):
    PICTURE = "pictures"
    SOUND = "sound"  # features of it: (mels, frames)
    SERIES = "series"  # (channels, time steps)
    TABLE = "rows of numbers"
    TOKENS = "tokens"  # texts and bytes: whole numbers that mean themselves
    SEVERAL = "samples of several arrays"


_KIND_OF_READER: Mapping[type, Kind] = {
    ImageFiles: Kind.PICTURE,
    Clips: Kind.SOUND,
    Windows: Kind.SERIES,
    FileTokens: Kind.TOKENS,
}


def kind_of(part: Part) -> Kind:
    """What the samples of the part are, by their reader, or by the type and shape of the first.

    Two dimensions are a grey picture where they hold 8 or 16 bits, and a series otherwise.
    """
    features: Any = part.features
    while isinstance(features, Rows):
        features = features.samples
    if isinstance(features, NamedSamples) and len(features.arrays) == 1:
        (features,) = features.arrays.values()
    if type(features) in _KIND_OF_READER:
        return _KIND_OF_READER[type(features)]
    sample = part.features[0]
    if isinstance(sample, Mapping):
        if len(sample) > 1:
            arrays = [np.asarray(array) for array in sample.values()]
            return Kind.TOKENS if all(_is_whole(array) for array in arrays) else Kind.SEVERAL
        (sample,) = sample.values()
    return _kind_of_array(np.asarray(sample))


def _is_whole(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind in "iub" and array.dtype != np.uint8


def _kind_of_array(sample: np.ndarray[Any, Any]) -> Kind:
    match sample.ndim:
        case 3:
            return Kind.PICTURE
        case 2:
            return Kind.PICTURE if sample.dtype in (np.uint8, np.uint16) else Kind.SERIES
        case _:
            return Kind.TOKENS if _is_whole(sample) else Kind.TABLE


def channels_of(part: Part, conversion: Conversion) -> int:
    """How many channels the pictures of the part have, by the first of them, as the recipe repeats them."""
    return picture_shape(part, 0, conversion)[0]


def picture_shape(part: Part, row: int, conversion: Conversion) -> tuple[int, int, int]:
    """Channels, height and width of a picture, as the recipe has them."""
    sample = part.features[row]
    if isinstance(sample, Mapping):
        (sample,) = sample.values()
    stored = np.asarray(sample)
    if stored.ndim == 2:
        stored = stored[np.newaxis]
    elif is_channels_last(stored):
        stored = stored.transpose(2, 0, 1)
    channels, height, width = stored.shape
    if channels == 1 and conversion.channels is not None:
        channels = conversion.channels
    return (channels, *(conversion.resize or (height, width)))
