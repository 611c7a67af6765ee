"""Pictures with what becomes of them, for people to look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain.dataset.augment.augmentation import Augmentation, Variation
from edgetrain.dataset.augment.kinds import Kind, picture_shape
from edgetrain.dataset.batches import fill_rows
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Array, Dataset, Part

Pixels = np.ndarray[Any, np.dtype[np.uint8]]  # (height, width) where grey, else (height, width, 3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AugmentedExample:
    """A training picture as the model sees it, before normalisation: as it is, and as the first epochs had it."""

    row: int  # of the training part
    original: Pixels
    variants: tuple[Pixels, ...]


def augmented_examples(
    dataset: Dataset,
    conversion: Conversion,
    augmentation: Augmentation | None,
    *,
    seed: int,
    count: int,
    variants: int = 4,
    shape: tuple[int, int, int] | None = None,
) -> list[AugmentedExample]:
    """So many pictures of the training part, spread over it, with what a run of that seed made of them.

    `shape` is that of the model's input, (channels, height, width); None: as the recipe has each picture.
    Empty where nothing is augmented, or where the samples are no pictures. Raises `DataError` as `fill_rows`.
    """
    if augmentation is None or augmentation.kind is not Kind.PICTURE:
        return []
    part, plain = dataset.train, dataclasses.replace(conversion, mean=(), std=())
    rows = np.unique(np.linspace(0, len(part) - 1, min(count, len(part))).astype(np.intp))
    epochs = [augmentation.variation(seed=seed, epoch=epoch) for epoch in range(variants)]
    examples = []
    for row in map(int, rows):
        original, *varied = _pictures(part, row, shape or picture_shape(part, row, plain), plain, (None, *epochs))
        # Of pictures that are no bytes the darkest and brightest pixel say what black and white are.
        low, high = float(min(original.min(), 0.0)), float(max(original.max(), 1.0))
        pixels, *changed = (_pixels(picture, low, high) for picture in (original, *varied))
        examples.append(AugmentedExample(row=row, original=pixels, variants=tuple(changed)))
    return examples


def _pictures(
    part: Part,
    row: int,
    shape: tuple[int, int, int],
    conversion: Conversion,
    variations: Sequence[Variation | None],
) -> list[Array]:
    """The row's picture under each variation, as floats."""
    pictures = []
    for variation in variations:
        picture, unused_label = np.empty((1, *shape), np.float32), np.empty((1, *part.labels.shape[1:]), np.float32)
        fill_rows(part, np.array([row]), picture, unused_label, conversion, variation)
        pictures.append(picture[0])
    return pictures


def _pixels(picture: Array, low: float, high: float) -> Pixels:
    """Grey for one channel, else the first three as red, green and blue."""
    scaled = np.clip((picture - low) / (high - low), 0.0, 1.0)
    pixels = np.rint(scaled * 255).astype(np.uint8)
    return pixels[0] if len(pixels) < 3 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0))
