"""Claims about the pictures that people are shown."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.augment.augmentation import Augmentation
from edgetrain.dataset.augment.examples import augmented_examples
from edgetrain.dataset.batches import BatchStream, Position
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Array, Dataset, Part
from edgetrain.drawing.pixels import pixels_to_png
from edgetrain.recipes import AugmentSection

RNG = np.random.default_rng(0)
SECTION = AugmentSection(flip="both", rotate=20.0, mixup=0.3)


def dataset_of(features: Array) -> Dataset:
    return Dataset(name="pictures", train=Part(features=features, labels=np.arange(len(features))))


def test_variants_are_what_the_first_epochs_train_on() -> None:
    dataset = dataset_of(RNG.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8))
    conversion, augmentation = Conversion(mean=(0.5,), std=(0.25,)), Augmentation.of(SECTION, dataset.train)
    examples = augmented_examples(dataset, conversion, augmentation, seed=3, count=4, variants=2)
    assert [example.row for example in examples] == [0, 2, 5, 8]
    for epoch in range(2):
        stream = BatchStream(
            dataset.train,
            batch=9,
            seed=3,
            conversion=conversion,
            position=Position(epoch=epoch),
            augmentation=augmentation,
        )
        x, y = np.empty((9, 3, 8, 8), np.float32), np.empty((9, 9), np.float32)
        stream.fill(x, y)
        order = np.random.Generator(np.random.PCG64([3, epoch])).permutation(9)
        for example in examples:
            seen = x[int(np.flatnonzero(order == example.row)[0])] * 0.25 + 0.5
            shown = example.variants[epoch].transpose(2, 0, 1) / 255
            np.testing.assert_allclose(shown, seen, atol=0.6 / 255)


def test_originals_are_the_stored_pictures() -> None:
    stored = RNG.integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
    dataset = dataset_of(stored)
    augmentation = Augmentation.of(SECTION, dataset.train)
    for example in augmented_examples(dataset, Conversion(mean=(0.5,)), augmentation, seed=0, count=99):
        np.testing.assert_array_equal(example.original, stored[example.row])
        assert len(example.variants) == 4
        assert any(not np.array_equal(variant, example.original) for variant in example.variants)


@pytest.mark.parametrize(
    ("features", "conversion", "shape"),
    [
        (RNG.integers(0, 256, (3, 8, 8), dtype=np.uint8), Conversion(), (8, 8)),
        (RNG.integers(0, 256, (3, 8, 8), dtype=np.uint8), Conversion(channels=3, resize=(12, 10)), (12, 10, 3)),
        (RNG.normal(0, 5, (3, 3, 8, 8)).astype(np.float32), Conversion(), (8, 8, 3)),
        (RNG.integers(0, 256, (3, 8, 8, 4), dtype=np.uint8), Conversion(), (8, 8, 3)),
    ],
)
def test_every_picture_can_be_drawn(features: Array, conversion: Conversion, shape: tuple[int, ...]) -> None:
    dataset = dataset_of(features)
    for example in augmented_examples(
        dataset, conversion, Augmentation.of(SECTION, dataset.train), seed=0, count=2, variants=1
    ):
        for picture in (example.original, *example.variants):
            assert picture.shape == shape
            assert picture.dtype == np.uint8
            assert np.ptp(picture) > 100
            assert pixels_to_png(picture).startswith(b"\x89PNG")


def test_there_is_nothing_to_show_of_a_table_or_of_nothing() -> None:
    table = dataset_of(RNG.normal(size=(4, 12)))
    augmentation = Augmentation.of(AugmentSection(mixup=0.2), table.train)
    assert augmented_examples(table, Conversion(), augmentation, seed=0, count=2) == []
    assert augmented_examples(table, Conversion(), None, seed=0, count=2) == []
